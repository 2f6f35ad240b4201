import { DomainError } from "@sandgate/kit/base/domain-error";
import { describe, expect, test } from "vitest";
import { type CreateState, checkCreate, isUsageNeeded, type Quotas } from "./quota.ts";
import { acceptSandbox } from "./sandbox.ts";

const noQuota = { maxSandboxes: 0, maxMemoryMb: 0 };
const unlimited: Quotas = { workspace: noQuota, user: noQuota, installation: noQuota };
const sandbox = acceptSandbox({
  id: "s1",
  name: "web",
  workspaceId: "w1",
  image: { imageId: "i1", reference: "alpine:3", registryId: "", isDefault: false, memoryMb: 256 },
  labels: {},
  createdBy: "u1",
  now: new Date(0),
});
const empty: CreateState = {
  isWorkspaceDeleted: false,
  isNameTaken: false,
  workspace: { sandboxes: 1, memoryMb: 256 },
  user: undefined,
  installation: undefined,
};

function refusalOf(quotas: Quotas, state: CreateState): { reason: string; hint: string | undefined } | undefined {
  try {
    checkCreate(sandbox, quotas, state);
    return undefined;
  } catch (error) {
    if (!(error instanceof DomainError)) throw error;
    return { reason: error.reason, hint: error.hint };
  }
}

describe("a create", () => {
  test("is accepted up to each limit, its own sandbox included", () => {
    const quota = { maxSandboxes: 2, maxMemoryMb: 512 };
    const quotas = { workspace: quota, user: quota, installation: quota };
    const full = { sandboxes: 2, memoryMb: 512 };
    expect(refusalOf(quotas, { ...empty, workspace: full, user: full, installation: full })).toBeUndefined();
  });

  test.each<[what: keyof Quotas, hint: string]>([
    ["workspace", "A workspace may hold 1 sandboxes at once."],
    ["user", "A user's workspaces may hold 1 sandboxes at once together"],
    ["installation", "reached its limit of sandboxes"],
  ])("is refused above the number of the %s's quota", (what, hint) => {
    const refusal = refusalOf(
      { ...unlimited, [what]: { maxSandboxes: 1, maxMemoryMb: 0 } },
      { ...empty, [what]: { sandboxes: 2, memoryMb: 512 } },
    );
    expect(refusal).toEqual({ reason: "PROVISIONING_FAILED", hint: expect.stringContaining(hint) });
  });

  test.each<[what: keyof Quotas, hint: string]>([
    ["workspace", "with this one they would hold 512 MB"],
    ["user", "A user's workspaces may hold 511 MB of memory together"],
    ["installation", "reached its limit of memory"],
  ])("is refused above the memory of the %s's quota", (what, hint) => {
    const refusal = refusalOf(
      { ...unlimited, [what]: { maxSandboxes: 0, maxMemoryMb: 511 } },
      { ...empty, [what]: { sandboxes: 2, memoryMb: 512 } },
    );
    expect(refusal).toEqual({ reason: "PROVISIONING_FAILED", hint: expect.stringContaining(hint) });
  });

  test("is refused for a deleted workspace before anything else, and for its name last", () => {
    const quotas = { ...unlimited, workspace: { maxSandboxes: 1, maxMemoryMb: 0 } };
    const state = { ...empty, isNameTaken: true, workspace: { sandboxes: 2, memoryMb: 0 } };
    expect(refusalOf(quotas, { ...state, isWorkspaceDeleted: true })?.reason).toBe("WORKSPACE_FORBIDDEN");
    expect(refusalOf(quotas, state)?.reason).toBe("PROVISIONING_FAILED");
    expect(refusalOf(unlimited, state)?.reason).toBe("SANDBOX_NAME_CONFLICT");
  });
});

test("a wider usage is needed where it is limited, unless the workspace's own quota refuses the create", () => {
  const workspace = { sandboxes: 2, memoryMb: 512 };
  const limited = { maxSandboxes: 2, maxMemoryMb: 0 };
  expect(isUsageNeeded("user", unlimited, workspace)).toBe(false);
  expect(isUsageNeeded("user", { ...unlimited, user: limited }, workspace)).toBe(true);
  const full = { ...unlimited, workspace: { maxSandboxes: 1, maxMemoryMb: 0 }, installation: limited };
  expect(isUsageNeeded("installation", full, workspace)).toBe(false);
});
