import { expect, test } from "vitest";
import { resolverReason } from "./isolation.ts";

test("names the engines that run their resolver in every container", () => {
  const reasonOf = (ServerVersion: string, LiveRestoreEnabled = false) =>
    resolverReason({ ServerVersion, LiveRestoreEnabled });
  expect(["20.10.24+dfsg1", "25.0.6"].map((version) => reasonOf(version))).toEqual([undefined, undefined]);
  expect(["26.0.0", "29.1.0", "library-import"].map((version) => reasonOf(version))).toEqual([
    expect.stringContaining("26.0.0"),
    expect.stringContaining("29.1.0"),
    expect.stringContaining("library-import"),
  ]);
  expect(reasonOf("20.10.24", true)).toContain("live-restore");
});
