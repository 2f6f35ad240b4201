import { createLogger } from "@sandgate/kit/base/logging";
import { expect, test } from "vitest";
import type { PullProgress } from "../domain/sandbox.ts";
import { createPullRecorder } from "./pull-progress.ts";

const logger = createLogger({ service: "sandbox", level: "silent" });
const at = (downloadedBytes: number): PullProgress => ({ downloadedBytes, totalBytes: 3 });

test("records how far a pull is while it goes on, and the last before its end is known", async () => {
  const recorded: PullProgress[] = [];
  const first = Promise.withResolvers<void>();
  const during = createPullRecorder({
    async record(sandboxId, progress) {
      expect(sandboxId).toBe("s1");
      recorded.push(progress);
      first.resolve();
    },
    logger,
  });
  const result = await during("s1", async (onProgress) => {
    onProgress(at(1));
    await first.promise;
    onProgress(at(2));
    onProgress(at(3));
    return "pulled";
  });
  expect(result).toBe("pulled");
  expect(recorded).toEqual([at(1), at(3)]);
});

test("records nothing of an image that is there already", async () => {
  const during = createPullRecorder({ record: () => Promise.reject(new Error("not asked for")), logger });
  expect(await during("s1", async () => "there")).toBe("there");
});

test("a pull doesn't fail for want of its record", async () => {
  const during = createPullRecorder({ record: () => Promise.reject(new Error("the database is away")), logger });
  const pull = async (onProgress: (now: PullProgress) => void) => {
    onProgress(at(3));
    return "pulled";
  };
  expect(await during("s1", pull)).toBe("pulled");
});
