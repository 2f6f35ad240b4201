import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FastifyRequest } from "fastify";
import type { SignedIn } from "../../pipeline/base/signed-in.ts";
import type { RouteContext } from "../../pipeline/route.ts";
import type { Names } from "../names.ts";
import { noSuchSandbox, type Places } from "../places.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** The id of the sandbox that a request of envd is about, once its caller is known. */
    sandboxId: string;
  }
}

/** Finds who sends a request to a sandbox, by the access token that was made for them and that sandbox. */
export function createAccess(o: Pick<RouteContext, "authenticator"> & { names: Names; places: Places }) {
  const { authenticator, names, places } = o;

  /** Throws SANDBOX_NOT_FOUND, UNAUTHENTICATED or INVALID_TOKEN. */
  return async function signIn(request: FastifyRequest): Promise<SignedIn> {
    const sandboxId = await names.fromSandboxName(request.sandboxName);
    if (sandboxId === undefined) throw noSuchSandbox();
    const token = request.headers["x-access-token"];
    if (typeof token !== "string") {
      throw new DomainError("UNAUTHENTICATED", "The request has no access token.", {
        hint: "Connect to the sandbox first: its answer has the token for X-Access-Token.",
      });
    }
    const tokenId = await names.fromAccessToken(sandboxId, token);
    if (tokenId === undefined) {
      throw new DomainError("INVALID_TOKEN", "The access token is not valid for this sandbox.", {
        hint: "Connect to the sandbox again.",
      });
    }
    const [signedIn, { workspaceId }] = await Promise.all([
      authenticator.findApiToken(tokenId, request.id),
      places.ofSandbox(sandboxId, request.id),
    ]);
    request.sandboxId = sandboxId;
    return { ...signedIn, ticket: { id: tokenId, workspaceId } };
  };
}

/** The user that a request of envd names: by Basic authentication without a password. Empty: the image's. */
export function userOf({ headers: { authorization } }: Pick<FastifyRequest, "headers">): string {
  const encoded = /^basic (.*)$/i.exec(authorization ?? "")?.[1];
  if (encoded === undefined) return "";
  return Buffer.from(encoded, "base64").toString().split(":")[0] ?? "";
}
