import { DomainError } from "@sandgate/kit/base/domain-error";

/** Exit codes of an exec whose program could not be started, for whatever reason. */
const notStarted = new Set([126, 127]);
const noProgram = /no such file or directory|executable file not found|exec format error/i;
/** A tenant may remove the image's folder, in which each program is started. */
const noFolder = /\bcwd\b/;

/** RUNTIME_UNAVAILABLE where the runtime answers: this sandbox doesn't run, or its helper can't be started. */
export class HelperUnavailable extends DomainError {
  constructor(message: string, cause: unknown) {
    super("RUNTIME_UNAVAILABLE", message, { cause });
  }
}

/** Whether an OCI runtime says that the program isn't there, or is none that the machine's processor can run. */
export function saysNoProgram(words: string): boolean {
  return noProgram.test(words) && !noFolder.test(words);
}

/** The error of a connection to a helper that ended before it said anything. */
export function explainHelperEnd(exitCode: number | null, words: string): DomainError {
  const cause = new Error(`the helper ended with ${exitCode}: ${words.trim()}`);
  if (exitCode !== null && notStarted.has(exitCode) && saysNoProgram(words)) {
    return new DomainError("CONFLICT", "This sandbox lacks the helper that commands and files need.", {
      hint: "An earlier version of the platform made it. Provision a new sandbox.",
      errno: "ENOSYS",
      cause,
    });
  }
  return new HelperUnavailable("The sandbox's helper could not be started.", cause);
}

/** The error where there is nothing to connect to. */
export function sandboxEnded(cause?: unknown): DomainError {
  return new HelperUnavailable("The sandbox does not run any more.", cause);
}
