import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FastifyRequest } from "fastify";
import type { SignedIn } from "../../pipeline/base/signed-in.ts";
import type { RouteContext } from "../../pipeline/route.ts";
import type { Names } from "../names.ts";
import { noSuchSandbox, type Places } from "../places.ts";
import { createSignatures } from "./signatures.ts";

declare module "fastify" {
  interface FastifyRequest {
    /** The id of the sandbox that a request of envd is about, once its caller is known. */
    sandboxId: string;
  }
}

/** Finds who sends a request. Throws SANDBOX_NOT_FOUND, UNAUTHENTICATED or INVALID_TOKEN. */
type SignIn = (request: FastifyRequest) => Promise<SignedIn>;

/** Finds who sends a request to a sandbox. */
export interface Access {
  /** By the access token that was made for them and that sandbox. */
  byToken: SignIn;
  /** By that, or by what was signed with it: of a request for the content of a file. */
  byTokenOrSignature: SignIn;
}

export function createAccess(
  o: Pick<RouteContext, "authenticator" | "clients"> & { names: Names; places: Places },
): Access {
  const { authenticator, names, places } = o;
  const signatures = createSignatures(o);

  async function findToken(request: FastifyRequest, sandboxId: string): Promise<string | undefined> {
    const token = request.headers["x-access-token"];
    if (typeof token !== "string") return undefined;
    const tokenId = await names.fromAccessToken(sandboxId, token);
    if (tokenId !== undefined) return tokenId;
    throw new DomainError("INVALID_TOKEN", "The access token is not valid for this sandbox.", {
      hint: "Connect to the sandbox again.",
    });
  }

  const signInBy =
    (findElse: (request: FastifyRequest, sandboxId: string) => Promise<string>): SignIn =>
    async (request) => {
      const sandboxId = await names.fromSandboxName(request.sandboxName);
      if (sandboxId === undefined) throw noSuchSandbox();
      const tokenId = (await findToken(request, sandboxId)) ?? (await findElse(request, sandboxId));
      const [signedIn, { workspaceId }] = await Promise.all([
        authenticator.findApiToken(tokenId, request.id),
        places.ofSandbox(sandboxId, request.id),
      ]);
      request.sandboxId = sandboxId;
      return { ...signedIn, ticket: { id: tokenId, workspaceId } };
    };

  return {
    byToken: signInBy(() => {
      throw new DomainError("UNAUTHENTICATED", "The request has no access token.", {
        hint: "Connect to the sandbox first: its answer has the token for X-Access-Token.",
      });
    }),
    // A signature that expires meanwhile doesn't end what has begun.
    byTokenOrSignature: signInBy(
      async (request, sandboxId) => request.signedIn?.ticket?.id ?? signatures.findSigner(request, sandboxId),
    ),
  };
}

/** The user that a request of envd names: by Basic authentication without a password. Empty: the image's. */
export function userOf({ headers: { authorization } }: Pick<FastifyRequest, "headers">): string {
  const encoded = /^basic (.*)$/i.exec(authorization ?? "")?.[1];
  if (encoded === undefined) return "";
  return Buffer.from(encoded, "base64").toString().split(":")[0] ?? "";
}
