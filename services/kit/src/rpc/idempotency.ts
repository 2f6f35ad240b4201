import { createHash } from "node:crypto";
import { type DescMessage, type DescMethodUnary, fromBinary, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { DomainError } from "../base/domain-error.ts";
import type { IdempotencyRecord, IdempotencyStore } from "../storage/idempotency-record.ts";
import type { Keyring } from "../storage/sealing.ts";
import type { Call } from "./context.ts";

/** Calls of this process that are at work, by store and record id, so that a repeated one waits instead of working too. */
const running = new WeakMap<IdempotencyStore, Map<string, Promise<unknown>>>();

/**
 * Runs the work of a creating call once per (user, workspace, rpc, Idempotency-Key) within 24 h. A call with the same
 * request gets the first answer again; one with another request is refused with CONFLICT. `work` asks `recordFor` for the
 * record of its response and hands it to `tx.keepIdempotencyRecord` in the transaction of the creation, so that only successes are kept.
 * Without a key `recordFor` answers undefined and the work just runs.
 */
export async function runIdempotent<I extends DescMessage, O extends DescMessage>(options: {
  call: Call;
  method: Pick<DescMethodUnary<I, O>, "name" | "input" | "output">;
  request: MessageShape<I>;
  keyring: Keyring;
  /** The service's store, in whose database the answers are kept. */
  store: { readonly idempotency: IdempotencyStore };
  work(recordFor: (response: MessageShape<O>) => Promise<IdempotencyRecord | undefined>): Promise<MessageShape<O>>;
}): Promise<MessageShape<O>> {
  const { call, method, keyring, work } = options;
  const { idempotency } = options.store;
  const { name: rpc, output: schema } = method;
  if (call.idempotencyKey === undefined) return work(async () => undefined);

  const workspace = call.user?.workspaceId ?? "";
  const id = hash(
    JSON.stringify([call.user?.id ?? "", workspace, schema.file.proto.package, rpc, call.idempotencyKey]),
  ).toString("base64url");
  const requestHash = hash(toBinary(method.input, options.request));
  const about = { service: schema.file.proto.package, table: "kit_answers", record: id, workspace };
  const recall = async (): Promise<MessageShape<O> | undefined> => {
    const record = await idempotency.find(id);
    if (!record) return undefined;
    const opened = keyring.open(record.sealed, about);
    if (!requestHash.equals(opened.subarray(0, requestHash.length))) {
      throw new DomainError("CONFLICT", "This Idempotency-Key was used for a different request.", {
        hint: "Use a new key for a new request.",
      });
    }
    return fromBinary(schema, opened.subarray(requestHash.length));
  };
  const answer = async (): Promise<MessageShape<O>> => {
    const first = await recall();
    if (first) return first;
    try {
      return await work(async (response) => ({
        id,
        sealed: keyring.seal(Buffer.concat([requestHash, toBinary(schema, response)]), about),
      }));
    } catch (error) {
      // What the first call with this key has made meanwhile, at another replica, may be what this one failed on.
      const winner = await recall();
      if (winner) return winner;
      throw error;
    }
  };

  const atWork = running.get(idempotency) ?? new Map<string, Promise<unknown>>();
  running.set(idempotency, atWork);
  for (let ahead = atWork.get(id); ahead; ahead = atWork.get(id)) await ahead.catch(() => undefined);
  const own = answer();
  atWork.set(id, own);
  try {
    return await own;
  } finally {
    atWork.delete(id);
  }
}

function hash(data: string | Uint8Array): Buffer {
  return createHash("sha256").update(data).digest();
}
