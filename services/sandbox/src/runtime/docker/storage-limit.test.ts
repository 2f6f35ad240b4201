import { expect, test } from "vitest";
import { storageProblem } from "./storage-limit.ts";

test.each([
  ["overlay2", "extfs", "overlay2 on extfs has no quotas"],
  ["vfs", "btrfs", "vfs on btrfs has no quotas"],
  ["overlay2", "xfs", undefined],
  ["btrfs", undefined, undefined],
  ["overlayfs", undefined, undefined],
])("whether %s on %s can limit what a container writes", (driver, backing, problem) => {
  const status = backing === undefined ? null : [["Backing Filesystem", backing]];
  expect(storageProblem({ Driver: driver, DriverStatus: status })).toBe(problem);
});
