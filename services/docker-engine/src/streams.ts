import { readLines } from "@sandgate/kit/base/streams";

/** Values of a stream of JSON, one on each line, whatever the chunks they come in. */
export async function* readJsonLines(stream: NodeJS.ReadableStream): AsyncGenerator<unknown> {
  for await (const line of readLines(stream)) if (line.trim() !== "") yield JSON.parse(line);
}

/** A failure that the engine reports in a stream, after it has answered 200. */
class ProgressFailure extends Error {
  override readonly name = "ProgressFailure";
  readonly statusCode = 500;
}

/** Reads the progress of a pull or a build to its end. Throws a ProgressFailure when that is a failure. */
export async function finishProgress(progress: NodeJS.ReadableStream): Promise<void> {
  for await (const message of readJsonLines(progress)) {
    if (typeof message === "object" && message !== null && "error" in message) {
      throw new ProgressFailure(String(message.error));
    }
  }
}
