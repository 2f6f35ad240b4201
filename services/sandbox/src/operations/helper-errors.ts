import { Code, ConnectError } from "@connectrpc/connect";
import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { type ErrorDetail, ErrorDetailSchema, Reason } from "@sandgate/proto/helper/v1/helper";

/** Characters of the helper's own words that a client gets. */
const maxWords = 300;

/** What a client is told of an error that the helper made, or that reaching it made. */
export function fromHelperError(error: unknown): DomainError {
  if (error instanceof DomainError) return error;
  if (!(error instanceof ConnectError)) return unusable(error);
  if (error.cause instanceof DomainError) return error.cause;
  const detail = error.findDetails(ErrorDetailSchema)[0];
  if (detail) return explain(detail, error);
  return error.code === Code.Unimplemented ? helperTooOld(error) : unusable(error);
}

/** The sandbox keeps the helper that it was started with, and that can't do what is asked. */
export function helperTooOld(cause?: unknown): DomainError {
  return new DomainError("CONFLICT", "The sandbox was started by an earlier version, which can't do that.", {
    hint: "Provision a new one.",
    errno: "ENOSYS",
    cause,
  });
}

export function notListening(cause?: unknown): DomainError {
  return new DomainError("UPSTREAM_ERROR", "Nothing listens on that port in the sandbox.", {
    hint: "Start a server there first.",
    callersFault: true,
    cause,
  });
}

const refusals: readonly DomainError["reason"][] = ["CONFLICT", "NOT_FOUND", "RATE_LIMITED", "VALIDATION_ERROR"];

/** Whether nothing was done. Otherwise nobody knows: the helper may not have come to answer. */
export function isRefusal({ reason }: DomainError): boolean {
  return refusals.includes(reason);
}

/** Whether the connection ended or never worked, so that another may. */
export function isConnectionLost(error: unknown): boolean {
  if (!(error instanceof ConnectError) || error.findDetails(ErrorDetailSchema).length > 0) return false;
  return [Code.Unavailable, Code.Aborted, Code.Internal, Code.Canceled].includes(error.code);
}

function explain({ reason, errno, field }: ErrorDetail, cause: ConnectError): DomainError {
  const conflict = (name: string, message: string, hint?: string) =>
    new DomainError("CONFLICT", message, { hint, errno: name, cause });
  switch (reason) {
    case Reason.ERRNO:
      if (errno === "ENOENT") {
        return new DomainError("NOT_FOUND", "The sandbox has no such file or folder (ENOENT).", { errno, cause });
      }
      return conflict(wordsOf(errno), `The sandbox refused it: ${wordsOf(errno)}.`, errnoHints[errno]);
    case Reason.PROCESS_NOT_FOUND:
      return noSuchProcess(cause);
    case Reason.PROCESS_ENDED:
      return processEnded(cause);
    case Reason.TOO_MANY_PROCESSES:
      return conflict("EAGAIN", "64 processes run in the sandbox already.", "Wait for one to end, or end one.");
    case Reason.CWD_NOT_A_DIRECTORY:
      return invalid(
        "command.cwd",
        `is no folder that can be entered${errno && ` (${wordsOf(errno)})`}`,
        wordsOf(errno) || "ENOTDIR",
      );
    case Reason.USER_UNKNOWN:
      return invalid(wordsOf(field) || "command.user", "the sandbox has no such user");
    case Reason.USER_NOT_PERMITTED:
      return conflict(
        "EPERM",
        "The image's own user isn't root, so no other can be used.",
        "Leave `user` out, or use an image whose user is root.",
      );
    case Reason.START_FAILED:
      return conflict(
        wordsOf(errno) || "EAGAIN",
        `No process could be started in the sandbox${errno && ` (${wordsOf(errno)})`}.`,
        "Its limit of processes or memory is used up. End a process.",
      );
    case Reason.STDIN_CLOSED:
      return conflict("EPIPE", "The standard input of the process is closed.");
    case Reason.STDIN_GAP:
      return conflict("ESPIPE", "`offset` is beyond the input that was taken so far.", "Send what is missing first.");
    case Reason.NOT_A_TERMINAL:
      return conflict("ENOTTY", "The process has no terminal.");
    case Reason.INVALID:
      return invalid(wordsOf(field), wordsOf(cause.rawMessage));
    case Reason.NOT_A_FILE:
      return conflict("EISDIR", "The path is no regular file.");
    case Reason.NOT_A_DIRECTORY:
      return conflict("ENOTDIR", "The path is no folder.");
    case Reason.ALREADY_EXISTS:
      return conflict("EEXIST", "There is something at the path already.");
    case Reason.NOT_EMPTY:
      return conflict(
        "ENOTEMPTY",
        "The folder is not empty.",
        "Send `recursive=true` to remove it with all that is in it.",
      );
    case Reason.IS_ROOT:
      return conflict("EBUSY", "The root folder can't be removed or moved.");
    case Reason.PRECONDITION_FAILED:
      return conflict(
        "EEXIST",
        "The file is not as If-Match or If-None-Match demands.",
        "Read it again and decide from there.",
      );
    case Reason.RANGE_NOT_SATISFIABLE:
      return invalid("header.range", "lies outside of the file");
    case Reason.BAD_ARCHIVE:
      return invalid("body", wordsOf(cause.rawMessage));
    case Reason.TOO_LARGE:
      return invalid("body", "is larger than the limit");
    case Reason.NOT_LISTENING:
      return notListening(cause);
    case Reason.KEY_USED:
      return conflict(
        "EEXIST",
        "This Idempotency-Key was used for a different request.",
        "Use a new key for a new request.",
      );
    case Reason.PROCESS_FORGOTTEN:
      return conflict(
        "ESRCH",
        "The process that this Idempotency-Key started has ended, and was forgotten since.",
        "Use a new key to run it again. The last 1,000 that ended are kept.",
      );
    case Reason.WATCHER_NOT_FOUND:
      return new DomainError("NOT_FOUND", "The sandbox has no such watcher.", {
        hint: "Create another watcher. Where 32 are open, a watcher that nobody has asked for 5 minutes may end.",
        cause,
      });
    case Reason.TOO_MANY_WATCHERS:
      return conflict("EMFILE", "32 watchers are open in the sandbox already.", "Remove one.");
    case Reason.WATCH_LIMIT:
      return conflict(
        "EMFILE",
        "No more folders can be watched: the machine's limit of watches is used up.",
        "Watch fewer folders, or one without those below it. The operator can raise fs.inotify.max_user_watches and max_user_instances.",
      );
    default:
      return unusable(cause);
  }
}

const errnoHints: Partial<Record<string, string>> = {
  EACCES: "The sandbox's user may not do that.",
  EPERM: "The sandbox's user may not do that.",
  ENOSPC: "The sandbox's disk is full. Remove something.",
  EDQUOT: "The sandbox's disk is full. Remove something.",
  EROFS: "That part of the sandbox can't be written to.",
};

export function processEnded(cause?: unknown): DomainError {
  return new DomainError("CONFLICT", "The process has ended.", { errno: "ESRCH", cause });
}

function noSuchProcess(cause: unknown): DomainError {
  return new DomainError("NOT_FOUND", "The sandbox has no such process.", {
    hint: "List them with GET /sandboxes/{sandbox_id}/processes. The last 1,000 that ended are kept.",
    cause,
  });
}

/** The helper lies, is gone, or does not answer. Its own words are for the log alone. */
function unusable(cause: unknown): DomainError {
  return new DomainError("UPSTREAM_ERROR", "The sandbox's helper did not answer as it should.", {
    hint: "Try again. If it persists, something in the sandbox disturbs the helper: provision a new one.",
    cause,
  });
}

/** The helper's words are the tenant's: short, and on one line. */
function wordsOf(text: string): string {
  return text.slice(0, maxWords).replaceAll(/[\p{Cc}\p{Cf}]+/gu, " ");
}
