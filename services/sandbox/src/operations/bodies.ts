import { followSignal } from "@sandgate/kit/base/abort";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { Totals } from "@sandgate/kit/base/totals";

/** Contents of files and archives that are on their way, for each sandbox. */
export interface Bodies {
  /** Counts one, until it is released. Throws CONFLICT with EMFILE when there are too many. */
  take(sandboxId: string): () => void;
}

export function createBodies(maxOfSandbox: number): Bodies {
  const taken = new Totals();
  return {
    take(sandboxId) {
      if (taken.of(sandboxId) >= maxOfSandbox) {
        throw new DomainError(
          "CONFLICT",
          `${maxOfSandbox} files and archives of the sandbox are on their way already.`,
          {
            hint: "Wait for one of these requests to end.",
            errno: "EMFILE",
          },
        );
      }
      taken.add(sandboxId, 1);
      return () => void taken.add(sandboxId, -1);
    },
  };
}

/** A limit of the time in which nothing of a stream moves. */
export interface StallLimit {
  /** Aborts with UPSTREAM_ERROR once nothing has moved for too long, and with the signal that it was made of. */
  readonly signal: AbortSignal;
  moved(): void;
  /** Aborts the signal with this error. */
  fail(error: unknown): void;
  stop(): void;
}

export function createStallLimit(signal: AbortSignal, ms: number): StallLimit {
  const ends = new AbortController();
  const fail = (error: unknown) => ends.abort(error);
  const timer = setTimeout(() => fail(new DomainError("UPSTREAM_ERROR", "The sandbox did not respond in time.")), ms);
  followSignal(ends, signal);
  return {
    signal: ends.signal,
    moved: () => void timer.refresh(),
    fail,
    stop: () => clearTimeout(timer),
  };
}
