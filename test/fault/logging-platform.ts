import { buildLoggingImage, openTestEngine } from "@sandgate/test-support/images";
import { expect } from "vitest";
import { type DistributedPlatform, startDistributed } from "../platform/distributed/platform.ts";
import { unlimitedSandboxes } from "../platform/limits.ts";
import { type Operator, openOperator } from "../platform/operator.ts";
import { findProblems } from "./checker.ts";
import { acknowledgedIn, type Journal } from "./journal.ts";

/** A distributed platform whose sandboxes on this machine's engine write a few lines when they start. */
export interface LoggingPlatform extends AsyncDisposable {
  platform: DistributedPlatform;
  operator: Operator;
  imageId: string;
  loggedLines: readonly string[];
}

export async function startLoggingPlatform(
  lines: number,
  options: Parameters<typeof startDistributed>[0],
): Promise<LoggingPlatform> {
  await using starting = new AsyncDisposableStack();
  const loggedLines = Array.from({ length: lines }, (_, index) => `line ${index}`);
  const image = starting.adopt(await buildLoggingImage(openTestEngine(), loggedLines), (each) => each.remove());
  const platform = starting.adopt(await startDistributed({ settings: unlimitedSandboxes, ...options }), (each) =>
    each.stop(),
  );
  const operator = await openOperator(platform);
  const imageId = await operator.registerImage(image.reference);
  const started = starting.move();
  return { platform, operator, imageId, loggedLines, [Symbol.asyncDispose]: () => started.disposeAsync() };
}

/**
 * Expects that the callers met nothing that no fault explains, and that the stores, the streams and the engine soon
 * agree with them.
 */
export async function expectConsistent(journal: Journal, on: LoggingPlatform, timeout: number): Promise<void> {
  expect(journal.violations).toEqual([]);
  const kinds = new Set(acknowledgedIn(journal).map(({ kind }) => kind));
  expect(kinds).toEqual(new Set(["workspace", "image", "token", "sandbox"]));
  await expect.poll(() => findProblems({ ...on, journal }), { timeout, interval: 3_000 }).toEqual([]);
}
