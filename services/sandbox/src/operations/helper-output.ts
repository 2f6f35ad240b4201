import { DomainError } from "@sandgate/kit/base/domain-error";
import { type Output, OutputStream } from "@sandgate/proto/helper/v1/process";

/** How much output the helper was asked for: of all, or of each of stdout, as which a terminal's counts, and stderr. */
export interface OutputLimit {
  bytes: number;
  of: "all" | "each";
}

/** Returns what is given each output that comes, and throws UPSTREAM_ERROR once that is more than the limit. */
export function createOutputCheck({ bytes, of }: OutputLimit): (output: Output) => void {
  let stdout = 0;
  let stderr = 0;
  return ({ stream, data }) => {
    if (stream === OutputStream.STDERR) stderr += data.length;
    else stdout += data.length;
    if ((of === "all" ? stdout + stderr : Math.max(stdout, stderr)) <= bytes) return;
    throw new DomainError("UPSTREAM_ERROR", "The sandbox's helper sent more output than it was asked for.");
  };
}
