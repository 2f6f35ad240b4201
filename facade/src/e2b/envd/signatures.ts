import { hash, timingSafeEqual } from "node:crypto";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { asFacade } from "@sandgate/kit/rpc/context";
import { Permission } from "@sandgate/proto/common/v1/access";
import type { FastifyRequest } from "fastify";
import { LoadingCache } from "../../pipeline/admission/loading-cache.ts";
import type { Clients } from "../../pipeline/base/clients.ts";
import type { Names } from "../names.ts";
import type { Places } from "../places.ts";

/** An API token that may use a sandbox, and an access token that was made of the two. */
interface Signer {
  tokenId: string;
  accessToken: string;
}

/** Finds who signed the address of a file. */
export interface Signatures {
  /** The id of the API token, which may have been revoked since. Throws UNAUTHENTICATED or INVALID_TOKEN. */
  findSigner(request: FastifyRequest, sandboxId: string): Promise<string>;
}

/** A signature is by an access token that the request doesn't have: each that may use the sandbox is tried. */
const maxSigners = 200;
const signersAgeMs = 1_000;
/** Of the list that is read for a signature by none of the known signers: its token may be newer than they are. */
const newSignersAgeMs = 100;
/** Of the sandboxes whose signers are remembered. */
const maxRemembered = 100;
const operations: Readonly<Record<string, string>> = { GET: "read", HEAD: "read", POST: "write" };

export function createSignatures(o: {
  clients: Pick<Clients, "identity" | "workspace">;
  names: Names;
  places: Places;
}): Signatures {
  const { names, places } = o;
  const { identity, workspace } = o.clients;
  const known = new LoadingCache<Signer[]>({ maxAgeMs: signersAgeMs, maxEntries: maxRemembered });
  const newest = new LoadingCache<Signer[]>({ maxAgeMs: newSignersAgeMs, maxEntries: maxRemembered });

  async function listSigners(sandboxId: string, requestId: string): Promise<Signer[]> {
    const call = asFacade({ requestId });
    const { workspaceId, createdBy } = await places.ofSandbox(sandboxId, requestId);
    const { userIds } = await workspace.listMemberIds({ workspaceId }, call);
    // The sandbox's own first, who signs most likely.
    const members = [...new Set([createdBy, ...userIds])].filter((id) => id !== "");
    const { tokenIds } = await identity.listUsableApiTokens(
      { userIds: members, workspaceId, permission: Permission.USE },
      call,
    );
    const signers = tokenIds.slice(0, maxSigners).map(async (tokenId) => {
      const accessTokens = await names.toAccessTokens(sandboxId, tokenId);
      return accessTokens.map((accessToken) => ({ tokenId, accessToken }));
    });
    return (await Promise.all(signers)).flat();
  }

  return {
    async findSigner(request, sandboxId) {
      const { path = "", username = "", signature, signature_expiration: expiration } = textsOf(request.query);
      if (signature === undefined) {
        throw new DomainError("UNAUTHENTICATED", "The request has neither an access token nor a signature.", {
          hint: "Connect to the sandbox first: its answer has the token for X-Access-Token, and to sign addresses with.",
        });
      }
      const before = `${path}:${operations[request.method]}:${username}:`;
      const after = expiration === undefined ? "" : `:${expiration}`;
      const given = Buffer.from(signature);
      const isSigner = ({ accessToken }: Signer) => isEqual(given, sign(before + accessToken + after));
      const findIn = async (signers: LoadingCache<Signer[]>) =>
        (await signers.get(sandboxId, () => listSigners(sandboxId, request.id))).find(isSigner);
      const signer = (await findIn(known)) ?? (await findIn(newest));
      if (!signer) {
        throw new DomainError("INVALID_TOKEN", "The signature is not valid.", {
          hint: "It holds for one path, operation, user and time, and as long as the API token that it was made with.",
        });
      }
      if (expiration !== undefined && !(Number(expiration) >= Math.floor(Date.now() / 1000))) {
        // In E2B's words, and no others, which programs look for.
        throw new DomainError("INVALID_TOKEN", "signature is already expired", { hint: "" });
      }
      return signer.tokenId;
    },
  };
}

function sign(text: string): Buffer {
  return Buffer.from(`v1_${hash("sha256", text, "base64").replace("=", "")}`);
}

function isEqual(given: Buffer, expected: Buffer): boolean {
  return given.length === expected.length && timingSafeEqual(given, expected);
}

/** The fields of a query that were given once. */
function textsOf(query: unknown): Partial<Record<string, string>> {
  const fields = Object.entries(Object(query)).filter((each): each is [string, string] => typeof each[1] === "string");
  return Object.fromEntries(fields);
}
