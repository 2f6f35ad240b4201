import { DomainError, messageOf } from "@sandgate/kit/base/domain-error";

/** The HTTP status the engine refused a call with; undefined when there was no answer at all. */
export function statusOf(error: unknown): number | undefined {
  return error instanceof Error && "statusCode" in error && typeof error.statusCode === "number"
    ? error.statusCode
    : undefined;
}

/** The engine's own message, without what the client wraps around it. */
export function engineMessageOf(error: unknown): string {
  return messageOf(error)
    .replace(/^\(HTTP code \d+\) .*? - /s, "")
    .trim();
}

/** Resolves with undefined where the engine answers with one of these statuses. */
export async function ignoreStatus<T>(statuses: readonly number[], call: Promise<T>): Promise<T | undefined> {
  try {
    return await call;
  } catch (error) {
    const status = statusOf(error);
    if (status !== undefined && statuses.includes(status)) return undefined;
    throw error;
  }
}

/** RUNTIME_UNAVAILABLE, unless it is a DomainError already. The engine's message stays in the cause, for the log. */
export function toRuntimeUnavailable(error: unknown): DomainError {
  if (error instanceof DomainError) return error;
  const message =
    statusOf(error) === undefined ? "The container engine can't be reached." : "The container engine failed.";
  return new DomainError("RUNTIME_UNAVAILABLE", message, { cause: error });
}

/** For `catch`: throws what `toRuntimeUnavailable` makes of the error. */
export function throwUnavailable(error: unknown): never {
  throw toRuntimeUnavailable(error);
}
