import { createHash } from "node:crypto";
import { type DescMessage, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import type { Call } from "@sandgate/kit/rpc/context";

/** The part of an id that follows from the Idempotency-Key; the rest follows from it and the request. */
const keyLength = "00000000-0000-8000".length;

/**
 * The id for a process that a call starts. With an Idempotency-Key it follows from the key and the request, a UUID of
 * version 8: the helper starts nothing under an id that it knows, so the call may be repeated for as long as the sandbox
 * lives, at any replica.
 */
export function processIdOf<D extends DescMessage>(
  call: Pick<Call, "user" | "idempotencyKey">,
  sandboxId: string,
  desc: D,
  request: MessageShape<D>,
): string {
  const { user, idempotencyKey } = call;
  if (idempotencyKey === undefined) return newId();
  // Half of it stays secret: who sees the id can't try out what the request said.
  const key = hash(JSON.stringify([user?.id ?? "", sandboxId, desc.typeName, idempotencyKey]));
  const id = Buffer.concat([key.subarray(0, 8), hash(Buffer.concat([key, toBinary(desc, request)])).subarray(0, 8)]);
  id.writeUInt8((id.readUInt8(6) & 0x0f) | 0x80, 6);
  id.writeUInt8((id.readUInt8(8) & 0x3f) | 0x80, 8);
  return id.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}

/** Throws CONFLICT when one of the ids was made with the key of `id` for another request. */
function requireSameRequest(id: string, ids: Iterable<string>): void {
  const key = id.slice(0, keyLength);
  for (const other of ids) {
    if (other === id || other.slice(0, keyLength) !== key) continue;
    throw new DomainError("CONFLICT", "This Idempotency-Key was used for a different request.", {
      hint: "Use a new key for a new request.",
    });
  }
}

/**
 * Returns what starts a process under an id. It throws CONFLICT when the key of that id was used for another request:
 * for a process that `list` names, or one that another call starts just now.
 */
export function createKeyedStart() {
  const starting = new Map<string, number>();

  return async <T>(id: string, list: () => Promise<readonly string[]>, start: () => Promise<T>): Promise<T> => {
    requireSameRequest(id, starting.keys());
    starting.set(id, (starting.get(id) ?? 0) + 1);
    try {
      requireSameRequest(id, await list());
      return await start();
    } finally {
      const others = (starting.get(id) ?? 1) - 1;
      if (others > 0) starting.set(id, others);
      else starting.delete(id);
    }
  };
}

function hash(data: string | Uint8Array): Buffer {
  return createHash("sha256").update(data).digest();
}
