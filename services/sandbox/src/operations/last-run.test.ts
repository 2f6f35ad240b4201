import { DomainError } from "@sandgate/kit/base/domain-error";
import { expect, test } from "vitest";
import { explainHelperEnd, sandboxEnded } from "../runtime/helper-end.ts";
import { findLastRun } from "./last-run.ts";

const connectionsThatFail = (error: Error) => ({ open: () => Promise.reject(error) });

test.each([
  ["is killed as it starts", explainHelperEnd(137, "")],
  ["can't be started", explainHelperEnd(null, "fork: resource temporarily unavailable")],
  ["is not in the sandbox", explainHelperEnd(126, "stat /.sandgate/helper: no such file or directory")],
  ["was in a container that has ended", sandboxEnded()],
])("a helper that %s knows of no run", async (_what, error) => {
  expect(await findLastRun(connectionsThatFail(error), "a")).toBeUndefined();
});

test("an engine that can't be asked is no answer", async () => {
  const down = new DomainError("RUNTIME_UNAVAILABLE", "The container engine can't be reached.");
  await expect(findLastRun(connectionsThatFail(down), "a")).rejects.toBe(down);
});
