import type { ServerResponse } from "node:http";
import { finished } from "node:stream/promises";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { mebibyte } from "@sandgate/kit/base/sizes";

/** Output that answers of this process hold until they are sent, and those of a user: one of the largest size. */
const most = { ofUser: 32 * mebibyte, inProcess: 128 * mebibyte };
const retryAfterSeconds = 5;

/** The memory that output takes which is answered as a whole. */
export interface OutputBudget {
  /**
   * Returns what counts bytes of one answer, until that is sent or its client has left. Both throw RATE_LIMITED when
   * too much is held already.
   */
  open(userId: string, response: ServerResponse): (bytes: number) => void;
}

export function createOutputBudget(): OutputBudget {
  const ofUsers = new Map<string, number>();
  let inProcess = 0;

  function add(userId: string, bytes: number): void {
    const ofUser = (ofUsers.get(userId) ?? 0) + bytes;
    if (ofUser > 0) ofUsers.set(userId, ofUser);
    else ofUsers.delete(userId);
    inProcess += bytes;
  }

  function requireRoom(userId: string, bytes: number): void {
    const ofUser = (ofUsers.get(userId) ?? 0) + bytes;
    if (ofUser > most.ofUser) throw tooMuch("Your commands have too much output that is not sent yet.");
    if (inProcess + bytes > most.inProcess) throw tooMuch("Commands have too much output that is not sent yet.");
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
          add(userId, -held);
        });
      return (bytes) => {
        if (isSent) return;
        requireRoom(userId, bytes);
        add(userId, bytes);
        held += bytes;
      };
    },
  };
}

function tooMuch(message: string): DomainError {
  return new DomainError("RATE_LIMITED", message, {
    hint: "Take the output as a stream, with Accept: text/event-stream, or lower max_output_bytes.",
    retryAfterSeconds,
  });
}
