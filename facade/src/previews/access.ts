import { hash } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { timestampDate } from "@bufbuild/protobuf/wkt";
import { DomainError, hasReason } from "@sandgate/kit/base/domain-error";
import { asFacade } from "@sandgate/kit/rpc/context";
import {
  OpenPreviewLinkRequestSchema,
  type Preview,
  PreviewAccess,
  ResolvePreviewRequestSchema,
  type ResolvePreviewResponse,
} from "@sandgate/proto/sandbox/v1/previews";
import { LoadingCache } from "../pipeline/admission/loading-cache.ts";
import type { WorkspaceScope } from "../pipeline/admission/workspace-scope.ts";
import type { Clients } from "../pipeline/base/clients.ts";
import { present } from "../pipeline/messages/contract.ts";
import { maxLengthOf } from "../pipeline/messages/field-rules.ts";
import { previewTokenHeader, setCookieOf, takeCookie, takeLink } from "./credentials.ts";
import { labelPattern } from "./hosts.ts";

/** A request on a preview's host. */
export interface PreviewRequest {
  label: string;
  /** The preview's own origin, as browsers name it. */
  origin: string;
  method: string;
  /** Path and query. */
  url: string;
  headers: IncomingHttpHeaders;
  isWebSocket: boolean;
  requestId: string;
}

/** What to do with it: pass it on, without what opened it, or send the browser back with a cookie. */
export type PreviewAdmission =
  | { preview: Preview; url: string; cookie: string | undefined }
  | { location: string; setCookie: string };

export interface PreviewAccessCheck {
  /**
   * Admits a request to the sandbox. Throws NOT_FOUND for a preview that doesn't live, UNAUTHENTICATED or INVALID_TOKEN
   * for a private one, and FORBIDDEN for what another site makes a browser do with its cookie.
   */
  admit(request: PreviewRequest): Promise<PreviewAdmission>;
}

/** No answer is older: a preview that has ended is unknown a second later. */
const maxAgeMs = 500;
const maxTokenLength = maxLengthOf(ResolvePreviewRequestSchema, "token");
const maxCookieLength = maxLengthOf(ResolvePreviewRequestSchema, "cookie");
const maxLinkLength = maxLengthOf(OpenPreviewLinkRequestSchema, "link");

export function createPreviewAccess(o: {
  clients: Pick<Clients, "previews">;
  scope: Pick<WorkspaceScope, "isMember">;
}): PreviewAccessCheck {
  const { previews } = o.clients;
  const resolved = new LoadingCache<ResolvePreviewResponse>({ maxAgeMs });

  /** What the host leads to and whether it opens. A preview ends with its creator's membership. */
  async function resolve(label: string, shown: { token?: string; cookie?: string }, requestId: string) {
    // Tokens and cookies are hashed, so that none is kept in memory. A hash ends with a character that no label has.
    const key =
      shown.token === undefined && shown.cookie === undefined
        ? label
        : hash("sha256", JSON.stringify([label, shown.token ?? null, shown.cookie ?? null]), "base64");
    const { preview, access } = await resolved
      .get(key, () => previews.resolvePreview({ label, ...shown }, asFacade({ requestId })))
      .catch((error: unknown) => {
        throw hasReason(error, "NOT_FOUND") ? noSuchPreview() : error;
      });
    if (!preview || !(await o.scope.isMember(preview.workspaceId, preview.createdBy, requestId))) throw noSuchPreview();
    return { preview, access };
  }

  async function spendLink(label: string, link: string, requestId: string): Promise<string> {
    if (link.length > maxLinkLength) throw badLink();
    const { cookie, expiresAt } = await previews.openPreviewLink({ label, link }, asFacade({ requestId }));
    return setCookieOf(cookie, timestampDate(present(expiresAt)));
  }

  return {
    async admit({ label, origin, method, url: given, headers, isWebSocket, requestId }) {
      if (!labelPattern.test(label)) throw noSuchPreview();
      const { rest, value } = takeCookie(headers.cookie);
      const { url, value: link } = takeLink(given);
      const token = headers[previewTokenHeader]?.toString();
      const cookie = token === undefined ? value : undefined;
      const isTooLong = (token?.length ?? 0) > maxTokenLength || (cookie?.length ?? 0) > maxCookieLength;
      const shown = {
        ...(token !== undefined && { token: isTooLong ? "too long" : token }),
        ...(cookie !== undefined && { cookie: isTooLong ? "too long" : cookie }),
      };
      const { preview, access } = await resolve(label, shown, requestId);
      const admitted = { preview, url, cookie: rest };
      if (preview.public) return admitted;
      if (link !== undefined && method === "GET" && !isWebSocket) {
        // On this host, whatever the path looks like.
        return { location: `${origin}${url}`, setCookie: await spendLink(label, link, requestId) };
      }
      if (access !== PreviewAccess.GRANTED) throw refused(access);
      const isSafe = (method === "GET" || method === "HEAD") && !isWebSocket;
      if (token === undefined && !isSafe) requireOwnOrigin(headers, origin);
      return admitted;
    },
  };
}

/** A browser sends its cookie with what another site makes it request, too. */
function requireOwnOrigin(headers: IncomingHttpHeaders, own: string): void {
  const { origin } = headers;
  if (origin === undefined ? headers["sec-fetch-site"] === "same-origin" : origin === own) return;
  throw new DomainError("FORBIDDEN", "The request comes from another site than the preview.", {
    hint: `Programs send the preview's token as X-Sandgate-Token.`,
  });
}

function refused(access: PreviewAccess): DomainError {
  const hint =
    "Send the preview's token in the X-Sandgate-Token header, or open a link made with POST /sandboxes/{sandbox_id}/ports/{preview_id}/links.";
  return access === PreviewAccess.MISSING
    ? new DomainError("UNAUTHENTICATED", "The preview is private, and the request has no token.", { hint })
    : new DomainError("INVALID_TOKEN", "The token doesn't open this preview.", { hint });
}

function badLink(): DomainError {
  return new DomainError("INVALID_TOKEN", "The link is not valid. It may have been used or have expired.", {
    hint: "Make a new one with POST /sandboxes/{sandbox_id}/ports/{preview_id}/links. It can be opened once.",
  });
}

/** The same for one that never was, has expired or was revoked, and for one whose sandbox has ended. */
export function noSuchPreview(): DomainError {
  return new DomainError("NOT_FOUND", "There is no such preview.", {
    hint: "It may have expired. List a sandbox's previews with GET /sandboxes/{sandbox_id}/ports.",
  });
}
