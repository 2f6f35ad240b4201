import type { ServerResponse } from "node:http";
import { finished } from "node:stream/promises";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { createFairLimit } from "@sandgate/kit/base/fair-limit";

/**
 * Large reads that run at once in this process, and of a user until they are sent: what is read waits there in memory.
 */
const running = { inProcess: 4, ofUser: 2 };
/** Those that wait are counted too. */
const open = { inProcess: 64, ofUser: 10 };
const maxWaitMs = 10_000;
const retryAfterSeconds = 2;

/** Reads of more than a page. */
export interface LargeReads {
  /**
   * Runs a read when it is its user's turn. A few wait, since a dashboard asks for several at once and would rather
   * have them a little later than ask again. Throws RATE_LIMITED when too many wait already, or the turn doesn't come
   * within 10 s.
   */
  run<T>(o: { userId: string; response: ServerResponse; signal: AbortSignal; read: () => Promise<T> }): Promise<T>;
}

export function createLargeReads(): LargeReads {
  const turnOfUser = createFairLimit({ perKey: running.ofUser });
  const turnInProcess = createFairLimit({ perKey: running.inProcess });
  const ofUsers = new Map<string, number>();
  let inProcess = 0;

  function count(userId: string, change: 1 | -1): void {
    const ofUser = (ofUsers.get(userId) ?? 0) + change;
    if (ofUser > 0) ofUsers.set(userId, ofUser);
    else ofUsers.delete(userId);
    inProcess += change;
  }

  return {
    run({ userId, response, signal, read }) {
      if ((ofUsers.get(userId) ?? 0) >= open.ofUser) throw rateLimited("Too many of your large reads are open.");
      if (inProcess >= open.inProcess) throw rateLimited("Too many large reads are open.");
      const timeout = AbortSignal.timeout(maxWaitMs);
      const waiting = AbortSignal.any([signal, timeout]);
      const { promise, resolve, reject } = Promise.withResolvers<Awaited<ReturnType<typeof read>>>();
      let hasBegun = false;
      const begin = () => {
        hasBegun = true;
        return read();
      };
      const readAndSend = async () => {
        resolve(await turnInProcess("all", begin, waiting));
        // A client that goes away has no more to send either.
        await finished(response).catch(() => undefined);
      };
      count(userId, 1);
      turnOfUser(userId, readAndSend, waiting)
        .catch((error: unknown) => {
          const isLate = !hasBegun && timeout.aborted && !signal.aborted;
          reject(isLate ? rateLimited("Other large reads took too long.") : error);
        })
        .finally(() => count(userId, -1));
      return promise;
    },
  };
}

function rateLimited(message: string): DomainError {
  return new DomainError("RATE_LIMITED", message, {
    hint: "Ask for fewer rows or a shorter time window, or for fewer sandboxes at once.",
    retryAfterSeconds,
  });
}
