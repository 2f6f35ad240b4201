import { mebibyte } from "@sandgate/kit/base/sizes";
import type { WriteStdinResponse } from "@sandgate/proto/sandbox/v1/processes";

/** Of one write, as the contract allows. */
export const maxInputBytes = mebibyte;
/** For one write: a full pipe is answered after 30 s. */
export const inputTimeoutMs = 45_000;

/**
 * Writes `data`, and with `eof` the end of the input after it, until all of it was taken or the input is closed. Answers
 * with the last write's answer, and fails as a write does. `known` is how many bytes of input there were before, for
 * helpers that don't tell what they took of a write: with those, what others write meanwhile counts as this input's.
 */
export async function writeAll(
  write: (data: Uint8Array, eof: boolean) => Promise<WriteStdinResponse>,
  data: Uint8Array,
  eof: boolean,
  known: bigint,
): Promise<WriteStdinResponse> {
  let reached = known;
  for (let rest = data; ; ) {
    const part = rest.subarray(0, maxInputBytes);
    const answer = await write(part, eof && part.length === rest.length);
    // A full pipe is answered with what it took so far.
    const taken = Number(answer.taken ?? answer.offset - reached);
    reached = answer.offset;
    rest = rest.subarray(Math.max(0, Math.min(taken, part.length)));
    if (answer.closed || rest.length === 0) return answer;
  }
}
