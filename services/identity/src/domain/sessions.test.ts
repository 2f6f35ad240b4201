import { describe, expect, test } from "vitest";
import { judgeRefresh, refreshTokenExpiry, successorOf } from "./sessions.ts";

const at = (ms: number) => new Date(ms);
const session = { endedAt: undefined, expiresAt: at(1_000_000) };
const fresh = { expiresAt: at(500_000), usedAt: undefined, successorUsed: false };

describe("a presented refresh token", () => {
  test("is exchanged while it is fresh", () => {
    expect(judgeRefresh(fresh, session, at(499_999))).toBe("rotate");
    expect(judgeRefresh(fresh, session, at(500_000))).toBe("bad");
  });

  test("that was used gets its successor again for ten seconds", () => {
    const used = { ...fresh, usedAt: at(100_000) };
    expect(judgeRefresh(used, session, at(100_000))).toBe("repeat");
    expect(judgeRefresh(used, session, at(110_000))).toBe("repeat");
    expect(judgeRefresh(used, session, at(110_001))).toBe("reused");
    expect(judgeRefresh(used, session, at(600_000))).toBe("reused");
  });

  test("is no retry once its successor was used", () => {
    expect(judgeRefresh({ ...fresh, usedAt: at(100_000), successorUsed: true }, session, at(100_001))).toBe("reused");
  });

  test("is bad once its session has ended or has run for its time", () => {
    expect(judgeRefresh(fresh, { ...session, endedAt: at(1) }, at(100))).toBe("bad");
    expect(judgeRefresh({ ...fresh, usedAt: at(1) }, { ...session, endedAt: at(2) }, at(90_000))).toBe("bad");
    expect(judgeRefresh({ ...fresh, expiresAt: at(2_000_000) }, session, at(1_000_000))).toBe("bad");
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
