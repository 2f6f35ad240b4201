import { DomainError } from "@sandgate/kit/base/domain-error";
import { describe, expect, test } from "vitest";
import {
  type CreateState,
  checkCreate,
  chooseEvicted,
  countFailure,
  isUsageNeeded,
  maxEvicted,
  needsEviction,
  type Quotas,
} from "./quota.ts";
import { acceptSandbox, becomeReady, type FailureReason, fail, isFailedAttempt } from "./sandbox.ts";

const noQuota = { maxSandboxes: 0, maxMemoryMb: 0 };
const unlimited: Quotas = {
  workspace: noQuota,
  user: noQuota,
  installation: noQuota,
  maxRecordBytes: 0,
  maxFailuresPerHour: 0,
};
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
  recordBytes: 4_096,
  failures: undefined,
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
    const quotas = { ...unlimited, workspace: quota, user: quota, installation: quota };
    const full = { sandboxes: 2, memoryMb: 512 };
    expect(refusalOf(quotas, { ...empty, workspace: full, user: full, installation: full })).toBeUndefined();
  });

  test.each<[what: keyof Quotas, hint: string]>([
    ["workspace", "A workspace may hold 1 sandbox at once."],
    ["user", "A user's workspaces may hold 1 sandbox at once together"],
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

describe("the records of a workspace", () => {
  const quotas = { ...unlimited, maxRecordBytes: 10_000 };
  const stateWith = (recordBytes: number): CreateState => ({ ...empty, recordBytes });
  const ended = (...sizes: (number | undefined)[]) =>
    sizes.map((recordBytes, index) => ({
      id: `r${index}`,
      ...(recordBytes !== undefined && { recordBytes }),
    }));

  test("count for as much as their labels take, escapes included", () => {
    const bytesOf = (labels: Record<string, string>) =>
      acceptSandbox({ ...sandbox, labels, now: new Date(0) }).recordBytes ?? 0;
    expect(bytesOf({})).toBeGreaterThanOrEqual(1_024);
    expect(bytesOf({ a: "x".repeat(255) }) - bytesOf({})).toBeGreaterThanOrEqual(256);
    expect(bytesOf({ a: "\u{1f600}".repeat(255) })).toBeGreaterThanOrEqual(bytesOf({}) + 4 * 255);
    expect(bytesOf({ a: "\u0001".repeat(255) })).toBeGreaterThanOrEqual(bytesOf({}) + 6 * 255);
  });

  test("make room above the quota alone, which 0 turns off", () => {
    expect(needsEviction(quotas, stateWith(10_000))).toBe(false);
    expect(needsEviction(quotas, stateWith(10_001))).toBe(true);
    expect(needsEviction(unlimited, stateWith(10_001))).toBe(false);
  });

  test("go the oldest first, as few as are needed", () => {
    const oldest = ended(1_000, undefined, 2_000, 2_000);
    const evicted = (recordBytes: number) => chooseEvicted(quotas, stateWith(recordBytes), oldest).map(({ id }) => id);
    expect(evicted(10_001)).toEqual(["r0"]);
    expect(evicted(11_001)).toEqual(["r0", "r1", "r2"]);
    expect(evicted(15_000)).toEqual(["r0", "r1", "r2", "r3"]);
  });

  test("are not read further than is needed", () => {
    function* read() {
      yield* ended(1_000);
      throw new Error("one is enough");
    }
    expect(chooseEvicted(quotas, stateWith(11_000), read())).toHaveLength(1);
  });

  test("refuse a new one that doesn't fit although all that have ended go, with the cause", () => {
    expect(() => chooseEvicted(quotas, stateWith(15_001), ended(1_000, 2_000, 2_000))).toThrow(
      expect.objectContaining({ reason: "PROVISIONING_FAILED", hint: expect.stringContaining("labels") }),
    );
  });

  test("shrink with each create to a quota that was lowered", () => {
    const many = ended(...Array.from({ length: 2 * maxEvicted }, () => 1_000));
    expect(chooseEvicted(quotas, stateWith(10_000_000), many)).toEqual(many.slice(0, maxEvicted));
  });
});

describe("failed attempts", () => {
  const at = (seconds: number) => new Date(seconds * 1000);
  const failed = (reason: FailureReason) => fail(sandbox, { reason, message: "" }, at(0));

  test("are sandboxes that failed without having been ready, unless the platform was at fault", () => {
    expect(isFailedAttempt(failed("image_not_found_in_registry"))).toBe(true);
    expect(isFailedAttempt(failed("registry_unreachable"))).toBe(true);
    for (const reason of ["runtime_lost", "provisioning_failed", "image_pull_failed"] as const) {
      expect(isFailedAttempt(failed(reason))).toBe(false);
    }
    expect(isFailedAttempt(fail(becomeReady(sandbox, at(0)), { reason: "exited", message: "" }, at(1)))).toBe(false);
    expect(isFailedAttempt(sandbox)).toBe(false);
  });

  test("are counted for an hour that begins with the first", () => {
    const first = countFailure(undefined, at(0));
    expect(first).toEqual({ failures: 1, endsAt: at(3600) });
    expect(countFailure(first, at(3599))).toEqual({ failures: 2, endsAt: at(3600) });
    expect(countFailure(first, at(3600))).toEqual({ failures: 1, endsAt: at(7200) });
  });

  test("refuse a create from their limit on until the hour is over, and say when that is", () => {
    const quotas = { ...unlimited, maxFailuresPerHour: 2 };
    const created = (seconds: number, failures: number) => () =>
      checkCreate({ ...sandbox, createdAt: at(seconds) }, quotas, {
        ...empty,
        failures: { failures, endsAt: at(3600) },
      });
    expect(created(0, 1)).not.toThrow();
    expect(created(3_500.5, 2)).toThrow(
      expect.objectContaining({
        reason: "RATE_LIMITED",
        retryAfterSeconds: 100,
        hint: expect.stringContaining("2 sandboxes failed within an hour"),
      }),
    );
    expect(created(3600, 2)).not.toThrow();
  });
});
