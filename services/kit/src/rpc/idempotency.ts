import { createHash } from "node:crypto";
import { type DescMessage, type DescMethodUnary, fromBinary, type MessageShape, toBinary } from "@bufbuild/protobuf";
import type { Claim } from "../storage/idempotency-record.ts";
import type { Call } from "./context.ts";
import { DomainError } from "./errors.ts";
import type { Keyring } from "../storage/sealing.ts";

export type { Claim } from "../storage/idempotency-record.ts";

/** The first answers to calls with an Idempotency-Key; a transaction stores one with `tx.claim`, the store forgets it in time. */
export interface AnswerStore {
  /** The claim of this id, unless it is older than 24 h. */
  find(id: string): Promise<Claim | undefined>;
}

/** Calls of this process that are at work, by store and claim id, so that a repeated one waits instead of working too. */
const running = new WeakMap<AnswerStore, Map<string, Promise<unknown>>>();

/**
 * Runs the work of a creating call once per (user, workspace, rpc, Idempotency-Key) within 24 h. A call with the same
 * request gets the first answer again; one with another request is refused with CONFLICT. `work` asks `claimFor` for the
 * claim on its response and hands it to `tx.claim` in the transaction of the creation, so that only successes are kept.
 * Without a key `claimFor` answers undefined and the work just runs.
 */
export async function answerOnce<I extends DescMessage, O extends DescMessage>(options: {
  call: Call;
  method: Pick<DescMethodUnary<I, O>, "name" | "input" | "output">;
  request: MessageShape<I>;
  keyring: Keyring;
  answers: AnswerStore;
  work(claimFor: (response: MessageShape<O>) => Promise<Claim | undefined>): Promise<MessageShape<O>>;
}): Promise<MessageShape<O>> {
  const { call, method, keyring, answers, work } = options;
  const { name: rpc, output: schema } = method;
  if (call.idempotencyKey === undefined) return work(async () => undefined);

  const workspace = call.user?.workspaceId ?? "";
  const id = hash(
    JSON.stringify([call.user?.id ?? "", workspace, schema.file.proto.package, rpc, call.idempotencyKey]),
  ).toString("base64url");
  const requestHash = hash(toBinary(method.input, options.request));
  const about = { service: schema.file.proto.package, table: "kit_answers", record: id, workspace };
  const recall = async (): Promise<MessageShape<O> | undefined> => {
    const claim = await answers.find(id);
    if (!claim) return undefined;
    const opened = keyring.open(claim.sealed, about);
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

  const atWork = running.get(answers) ?? new Map<string, Promise<unknown>>();
  running.set(answers, atWork);
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
