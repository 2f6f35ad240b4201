import type { RuntimeFailure } from "./lifecycle.ts";

/** What the words of an engine, containerd or runc about a start mean: causes that are in the image. */
const causes: readonly (readonly [pattern: RegExp, text: string])[] = [
  [/exec format error/i, "the image's command is for another platform, or no program"],
  [/permission denied/i, "the image's command may not be executed"],
  [/no command specified/i, "the image has no command"],
  [/unable to find (user|group)|no matching entries in/i, "the image doesn't have its user or group"],
  [/is not a directory/i, "the image's working directory is no directory"],
  [/is a directory/i, "the image's command is a directory"],
  [/executable file|no such file/i, "the image lacks its command, or what that needs to run"],
];

/** What containerd says when the OCI runtime has written no log, which tells nothing of the image. */
const noLog = /\(open \S+log\.json: no such file or directory\)/;

/** The failure of a start. `isFinal`: its cause is in the image, so that each attempt ends the same. */
export function startFailureOf(said: string): RuntimeFailure & { isFinal: boolean } {
  const [, text] = causes.find(([pattern]) => pattern.test(said.replace(noLog, ""))) ?? [];
  return {
    reason: "start_failed",
    message:
      text === undefined ? "The container could not be started." : `The container could not be started: ${text}.`,
    detail: said,
    isFinal: text !== undefined,
  };
}
