import { expect, test } from "vitest";
import { containerOptionsOf } from "./container-options.ts";

test("leaves core dumps to a rootless engine's own limit, which it may have no right to raise", () => {
  const spec = { sandboxId: "s1", workspaceId: "w1", reference: "sha256:aa", memoryMb: 64, cpus: 1, pids: 64 };
  const defaults = { installationId: "i1", nameservers: [], ociRuntime: undefined, diskMb: 16, limitsDisk: false };
  const limitsOf = (isRootless: boolean) => {
    const allocation = {
      networkName: "n1",
      cgroupParent: undefined,
      isRootless,
      volumes: [],
      env: {},
      helper: undefined,
    };
    return containerOptionsOf(spec, allocation, defaults).HostConfig?.Ulimits;
  };
  expect(limitsOf(false)).toEqual([{ Name: "core", Soft: 1, Hard: 1 }]);
  expect(limitsOf(true)).toBeUndefined();
});
