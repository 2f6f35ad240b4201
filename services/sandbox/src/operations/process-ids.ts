import { createHash } from "node:crypto";
import { type DescMessage, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { newId } from "@sandgate/kit/base/ids";
import type { Call } from "@sandgate/kit/rpc/context";

/** Under what the helper starts a process. */
export interface ProcessId {
  id: string;
  /** Of the Idempotency-Key; empty without one. */
  key: Uint8Array;
}

/**
 * The id for a process that a call starts. With an Idempotency-Key it follows from the key and the request, a UUID of
 * version 8. The helper knows what each key started, so the call may be repeated at any replica: the same request finds the
 * same process, and another one is refused.
 */
export function processIdOf<D extends DescMessage>(
  call: Pick<Call, "user" | "idempotencyKey">,
  sandboxId: string,
  desc: D,
  request: MessageShape<D>,
): ProcessId {
  const { user, idempotencyKey } = call;
  if (idempotencyKey === undefined) return { id: newId(), key: new Uint8Array() };
  // It stays secret: who sees the id can't try out what the request said.
  const key = hash(JSON.stringify([user?.id ?? "", sandboxId, desc.typeName, idempotencyKey]));
  const id = hash(Buffer.concat([key, toBinary(desc, request)])).subarray(0, 16);
  id.writeUInt8((id.readUInt8(6) & 0x0f) | 0x80, 6);
  id.writeUInt8((id.readUInt8(8) & 0x3f) | 0x80, 8);
  return { id: id.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-"), key: hash(key) };
}

function hash(data: string | Uint8Array): Buffer {
  return createHash("sha256").update(data).digest();
}
