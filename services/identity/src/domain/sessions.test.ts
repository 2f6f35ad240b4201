import { describe, expect, test } from "vitest";
import { decideRefresh, type RefreshState, refreshTokenExpiry, successorOf } from "./sessions.ts";

const at = (ms: number) => new Date(ms);
const session = {
  id: "s1",
  userId: "ann",
  operator: false,
  secondFactor: false,
  endedAt: undefined,
  expiresAt: at(10_000_000),
};
const presented = { expiresAt: at(500_000), usedAt: undefined };
const successor = { expiresAt: at(600_000), usedAt: undefined };
const used = { presented: { ...presented, usedAt: at(100_000) }, successor };
const refreshed = (refreshTokenExpiresAt: Date) => ({
  outcome: "refreshed",
  sessionId: "s1",
  userId: "ann",
  operator: false,
  secondFactor: false,
  refreshTokenExpiresAt,
});
const bad = { refreshed: { outcome: "bad" } };
const reused = {
  refreshed: { outcome: "reused", sessionId: "s1" },
  change: { type: "end_session", sessionId: "s1" },
};

function decide(state: Partial<RefreshState>, ms: number) {
  return decideRefresh({ session, presented, successor: undefined, ...state }, at(ms));
}

describe("a presented refresh token", () => {
  test("is exchanged while it is fresh", () => {
    expect(decide({}, 499_999)).toEqual({
      refreshed: refreshed(at(2_299_999)),
      change: { type: "rotate", sessionId: "s1", expiresAt: at(2_299_999) },
    });
    expect(decide({}, 500_000)).toEqual(bad);
    expect(decideRefresh(undefined, at(0))).toEqual(bad);
  });

  test("that was used gets its successor again for ten seconds", () => {
    for (const ms of [100_000, 110_000]) expect(decide(used, ms)).toEqual({ refreshed: refreshed(at(600_000)) });
    for (const ms of [110_001, 600_000]) expect(decide(used, ms)).toEqual(reused);
  });

  test("is bad when its successor is asked of another key than the one that derived it", () => {
    expect(decide({ ...used, successor: undefined }, 100_000)).toEqual(bad);
  });

  test("is no retry once its successor was used", () => {
    expect(decide({ ...used, successor: { ...successor, usedAt: at(100_001) } }, 100_001)).toEqual(reused);
  });

  test("is bad once its session has ended or has run for its time", () => {
    expect(decide({ session: { ...session, endedAt: at(1) } }, 100)).toEqual(bad);
    expect(decide({ ...used, session: { ...session, endedAt: at(100_001) } }, 190_000)).toEqual(bad);
    const lasting = { ...presented, expiresAt: at(20_000_000) };
    expect(decide({ presented: lasting }, 10_000_000)).toEqual(bad);
  });
});

describe("a new refresh token", () => {
  test("lives for 1800 seconds, but not longer than its session", () => {
    expect(refreshTokenExpiry({ expiresAt: at(10_000_000) }, at(0))).toEqual(at(1_800_000));
    expect(refreshTokenExpiry({ expiresAt: at(1_000) }, at(0))).toEqual(at(1_000));
  });

  test("follows from the presented one, its session and the server's key", () => {
    const key = new Uint8Array(32).fill(1);
    const successor = successorOf("token", "session", key);
    expect(successor).toMatch(/^[A-Za-z0-9_-]{43}$/);
    expect(successorOf("token", "session", key)).toBe(successor);
    expect(successorOf("token", "other", key)).not.toBe(successor);
    expect(successorOf("other", "session", key)).not.toBe(successor);
    expect(successorOf("token", "session", new Uint8Array(32).fill(2))).not.toBe(successor);
  });
});
