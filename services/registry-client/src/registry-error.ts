import type { GuardedResponse } from "./guarded-request.ts";

/**
 * `unauthorized`: the registry refuses the credential, or access with it. `not_found`: it has no such image.
 * `refused_address`: it is at an address where only registries named by the operator may be. `rate_limited`: it takes
 * no more requests for a while. `unreachable`: no usable answer.
 */
export type RegistryProblem = "unauthorized" | "not_found" | "refused_address" | "rate_limited" | "unreachable";

export class RegistryError extends Error {
  readonly problem: RegistryProblem;
  /** Of `rate_limited`, where the registry says so. */
  readonly retryAfterSeconds: number | undefined;

  constructor(problem: RegistryProblem, message: string, o: { cause?: unknown; retryAfterSeconds?: number } = {}) {
    super(message, o.cause === undefined ? undefined : { cause: o.cause });
    this.name = "RegistryError";
    this.problem = problem;
    this.retryAfterSeconds = o.retryAfterSeconds;
  }
}

/** The longest that a registry is left alone for, whatever it says. */
const maxRetryAfterSeconds = 6 * 3_600;

/** The platform's reason for a failed pull, by the registry's problem. */
export const pullFailureReasons = {
  unauthorized: "IMAGE_PULL_UNAUTHORIZED",
  not_found: "IMAGE_NOT_FOUND_IN_REGISTRY",
  refused_address: "REGISTRY_UNREACHABLE",
  rate_limited: "REGISTRY_UNREACHABLE",
  unreachable: "REGISTRY_UNREACHABLE",
} as const satisfies Record<RegistryProblem, string>;

/** The error that an answer of the registry stands for. */
export function problemOf({ status, headers }: GuardedResponse, host: string, path = "v2/"): RegistryError {
  if (status === 401 || status === 403)
    return new RegistryError("unauthorized", `The registry ${host} refused access to ${path}.`);
  if (status === 404) return new RegistryError("not_found", `The registry ${host} has no ${path}.`);
  if (status === 429) {
    const retryAfterSeconds = readRetryAfter(headers["retry-after"]);
    const when = retryAfterSeconds === undefined ? "for now" : `until ${timeIn(retryAfterSeconds)}`;
    return new RegistryError(
      "rate_limited",
      `The registry ${host} takes no more requests ${when} (429 Too Many Requests).`,
      retryAfterSeconds === undefined ? {} : { retryAfterSeconds },
    );
  }
  return new RegistryError("unreachable", `The registry ${host} answered with status ${status}.`);
}

/** The time that many seconds from now, to the second. */
function timeIn(seconds: number): string {
  return new Date(Date.now() + seconds * 1000).toISOString().replace(/\.\d+/, "");
}

/** Seconds, or a date (RFC 9110, 10.2.3), up to `maxRetryAfterSeconds`. */
function readRetryAfter(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  const seconds = /^\d+$/.test(header) ? Number(header) : Math.ceil((Date.parse(header) - Date.now()) / 1000);
  return Number.isNaN(seconds) ? undefined : Math.min(Math.max(1, seconds), maxRetryAfterSeconds);
}
