import type { ServerResponse } from "node:http";
import { finished } from "node:stream/promises";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { Totals } from "@sandgate/kit/base/totals";

const retryAfterSeconds = 5;

/** The memory that large answers take which are held as a whole until they are sent. */
export interface AnswerBudget {
  /**
   * Returns what counts bytes of one answer, until that is sent or its client has left. Both throw RATE_LIMITED when
   * too much is held already.
   */
  open(userId: string, response: ServerResponse): (bytes: number) => void;
}

export function createAnswerBudget(o: {
  /** Bytes that answers of a user hold at most. One that has more by itself is always refused. */
  ofUser: number;
  /** The same for all users of this process. */
  inProcess: number;
  /** What RATE_LIMITED says: of a user's answers, of all answers, and what to do. */
  messages: { ofUser: string; inProcess: string; hint: string };
}): AnswerBudget {
  const heldBytes = new Totals();

  function requireRoom(userId: string, bytes: number): void {
    if (heldBytes.of(userId) + bytes > o.ofUser) throw tooMuch(o.messages.ofUser);
    if (heldBytes.all + bytes > o.inProcess) throw tooMuch(o.messages.inProcess);
  }

  function tooMuch(message: string): DomainError {
    return new DomainError("RATE_LIMITED", message, { hint: o.messages.hint, retryAfterSeconds });
  }

  return {
    open(userId, response) {
      requireRoom(userId, 1);
      let held = 0;
      let isSent = false;
      void finished(response)
        .catch(() => undefined)
        .finally(() => {
          isSent = true;
          heldBytes.add(userId, -held);
        });
      return (bytes) => {
        if (isSent) return;
        requireRoom(userId, bytes);
        heldBytes.add(userId, bytes);
        held += bytes;
      };
    },
  };
}
