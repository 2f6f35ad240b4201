import { createHash } from "node:crypto";
import { type DescMessage, type DescMethodUnary, fromBinary, type MessageShape, toBinary } from "@bufbuild/protobuf";
import { DomainError } from "../base/domain-error.ts";
import type { IdempotencyRecord, IdempotencyStore } from "../storage/idempotency-record.ts";
import type { Keyring } from "../storage/sealing.ts";
import type { Call } from "./context.ts";

/**
 * Returns what runs the work of a creating call once within 24 h for each user, workspace, RPC and Idempotency-Key. A
 * repetition with the same request gets the first response again; one with another request is refused with CONFLICT.
 * `work` gets the record of its response from `recordFor` and passes it to `tx.keepIdempotencyRecord` in the
 * transaction of the creation, so only successes are kept. Without a key `recordFor` returns undefined, and the work
 * just runs. `store` is the service's, whose database keeps the records.
 */
export function createRunIdempotent(o: { keyring: Keyring; store: { readonly idempotency: IdempotencyStore } }) {
  const { keyring } = o;
  const { idempotency } = o.store;
  /** Calls in progress, by record id. A repeated call waits for them instead of doing the work too. */
  const running = new Map<string, Promise<unknown>>();

  return async function runIdempotent<I extends DescMessage, O extends DescMessage>(
    call: Call,
    method: Pick<DescMethodUnary<I, O>, "name" | "input" | "output">,
    request: MessageShape<I>,
    work: (
      recordFor: (response: MessageShape<O>) => Promise<IdempotencyRecord | undefined>,
    ) => Promise<MessageShape<O>>,
  ): Promise<MessageShape<O>> {
    const { name: rpc, output: schema } = method;
    if (call.idempotencyKey === undefined) return work(async () => undefined);

    const workspace = call.user?.workspaceId ?? "";
    const id = hash(
      JSON.stringify([call.user?.id ?? "", workspace, schema.file.proto.package, rpc, call.idempotencyKey]),
    ).toString("base64url");
    const requestHash = hash(toBinary(method.input, request));
    const about = { service: schema.file.proto.package, table: "kit_answers", record: id, workspace };
    const findAnswer = async (): Promise<MessageShape<O> | undefined> => {
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
      const first = await findAnswer();
      if (first) return first;
      try {
        return await work(async (response) => ({
          id,
          service: about.service,
          workspace,
          owner: workspace || (call.user?.id ?? ""),
          sealed: keyring.seal(Buffer.concat([requestHash, toBinary(schema, response)]), about),
        }));
      } catch (error) {
        // The first call with this key may have run in another replica and caused the conflict that this one failed with.
        const winner = await findAnswer();
        if (winner) return winner;
        throw error;
      }
    };

    for (let ahead = running.get(id); ahead; ahead = running.get(id)) await ahead.catch(() => undefined);
    const own = answer();
    running.set(id, own);
    try {
      return await own;
    } finally {
      running.delete(id);
    }
  };
}

function hash(data: string | Uint8Array): Buffer {
  return createHash("sha256").update(data).digest();
}
