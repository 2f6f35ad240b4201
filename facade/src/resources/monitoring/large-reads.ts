import type { ServerResponse } from "node:http";
import { finished } from "node:stream/promises";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { createFairLimit } from "@sandgate/kit/base/fair-limit";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { Totals } from "@sandgate/kit/base/totals";
import { createAnswerBudget } from "../../pipeline/limits/answer-budget.ts";

/** Large reads that run at once in this process, and of a user until they are sent. */
const running = { inProcess: 4, ofUser: 2 };
/** Those that wait are counted too, and those that are being sent are not. */
const open = { inProcess: 64, ofUser: 10 };
const maxWaitMs = 10_000;
const retryAfterSeconds = 2;
const hint = "Ask for fewer rows or a shorter time window, or for fewer sandboxes at once.";

/**
 * An answer with so many bytes gets no further page, because a byte of a line may be six in JSON. 500 of the longest
 * lines have less, so that the default limit is met unless much is escaped.
 */
const fullBytes = 32 * mebibyte;
/** The most bytes of a page: 256 KiB of lines, all escaped, and what rows have besides. */
const pageBytes = 2 * mebibyte;
const answerBytes = fullBytes + pageBytes;

/** Reads of more than a page. */
export interface LargeReads {
  /**
   * Runs a read when it is its user's turn. A few wait, since a dashboard asks for several at once and would rather
   * have them a little later than ask again. `read` is given what counts the bytes of its answer, which returns whether
   * that may have another page. Throws RATE_LIMITED when too many wait already, the turn doesn't come within 10 s, or
   * answers that are not sent yet hold too much.
   */
  run<T>(o: {
    userId: string;
    response: ServerResponse;
    signal: AbortSignal;
    read: (hold: (bytes: number) => boolean) => Promise<T>;
  }): Promise<T>;
}

export function createLargeReads(): LargeReads {
  const turnOfUser = createFairLimit({ perKey: running.ofUser });
  const turnInProcess = createFairLimit({ perKey: running.inProcess });
  const budget = createAnswerBudget({
    ofUser: running.ofUser * answerBytes,
    inProcess: 6 * answerBytes,
    messages: {
      ofUser: "Too much data of your large reads is waiting to be sent.",
      inProcess: "Too much data of large reads is waiting to be sent.",
      hint,
    },
  });
  const opened = new Totals();

  return {
    run({ userId, response, signal, read }) {
      if (opened.of(userId) >= open.ofUser) throw rateLimited("Too many of your large reads are open.");
      if (opened.all >= open.inProcess) throw rateLimited("Too many large reads are open.");
      const timeout = AbortSignal.timeout(maxWaitMs);
      const waiting = AbortSignal.any([signal, timeout]);
      const { promise, resolve, reject } = Promise.withResolvers<Awaited<ReturnType<typeof read>>>();
      let hasBegun = false;
      const begin = async () => {
        hasBegun = true;
        const take = budget.open(userId, response);
        let held = 0;
        return read((bytes) => {
          take(bytes);
          held += bytes;
          return held < fullBytes;
        });
      };
      const readAndSend = async () => {
        resolve(await turnInProcess("all", begin, waiting));
        // A client that goes away has no more to send either.
        await finished(response).catch(() => undefined);
      };
      opened.add(userId, 1);
      turnOfUser(userId, readAndSend, waiting).catch((error: unknown) => {
        const isLate = !hasBegun && timeout.aborted && !signal.aborted;
        reject(isLate ? rateLimited("Other large reads took too long.") : error);
      });
      return promise.finally(() => void opened.add(userId, -1));
    },
  };
}

function rateLimited(message: string): DomainError {
  return new DomainError("RATE_LIMITED", message, { hint, retryAfterSeconds });
}
