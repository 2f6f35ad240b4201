import { createLogger } from "@sandgate/kit/base/logging";
import { expect, test } from "vitest";
import { createLocalRateLimiter } from "./rate-limiter.local.ts";
import { type Consumed, createSharedRateLimiter } from "./rate-limiter.shared.ts";

const logger = createLogger({ service: "facade", level: "silent" });

/** One count behind several facades, as identity keeps it. */
function createCount(clock: { ms: number }) {
  const windows = new Map<string, { used: number; endsAt: number }>();
  let calls = 0;
  return {
    get calls() {
      return calls;
    },
    async consume(key: Uint8Array, limit: number, wanted: number): Promise<Consumed> {
      calls += 1;
      const id = Buffer.from(key).toString("hex");
      let window = windows.get(id);
      if (!window || window.endsAt <= clock.ms) window = { used: 0, endsAt: clock.ms + 60_000 };
      const granted = Math.min(wanted, limit - window.used);
      window.used += granted;
      windows.set(id, window);
      return { granted, remaining: limit - window.used, resetMs: window.endsAt - clock.ms };
    },
  };
}

function openFacades(count: number) {
  const clock = { ms: 1_000 };
  const shared = createCount(clock);
  const now = () => clock.ms;
  const facades = Array.from({ length: count }, () =>
    createSharedRateLimiter({ consume: shared.consume, fallback: createLocalRateLimiter({ now }), logger, now }),
  );
  return { clock, shared, facades };
}

test.each([600, 10, 1])("three facades together let %i requests a minute through", async (limit) => {
  const { clock, shared, facades } = openFacades(3);
  for (let minute = 0; minute < 2; minute++) {
    const statuss = await Promise.all(
      Array.from({ length: 3 * limit + 30 }, async (_, i) => facades[i % 3]?.consume("user u1", limit)),
    );
    expect(statuss.filter((status) => status?.allowed)).toHaveLength(limit);
    for (const status of statuss) {
      expect(status?.remaining).toBeGreaterThanOrEqual(0);
      expect(status?.resetSeconds).toBeLessThanOrEqual(60);
    }
    clock.ms += 60_000;
  }
  // Far fewer than requests, for a limit that is large.
  expect(shared.calls).toBeLessThan(2 * (limit / 10 + 100));
});

test("a request that counts for several keys asks for all of them at once, and refused ones count for none", async () => {
  const { shared, facades } = openFacades(2);
  const user = { key: "all of u1", limit: 120 };
  const send = (requests: number, token: string, limit: number) =>
    Promise.all(
      Array.from({ length: requests }, async (_, i) =>
        facades[i % 2]?.consumeAll([{ key: `token ${token}`, limit }, user]),
      ),
    );
  const allowed = (all: Awaited<ReturnType<typeof send>>) =>
    all.filter((statuses) => statuses?.every((status) => status.allowed));

  const first = await send(100, "a", 60);
  expect(allowed(first)).toHaveLength(60);
  expect(first.filter((statuses) => statuses?.[0]?.allowed === false)).toHaveLength(40);
  // 60 requests in batches of 2 of the token's and 4 of the user's.
  expect(shared.calls).toBeLessThanOrEqual(60 / 2 + 60 / 4 + 8);

  expect(allowed(await send(100, "b", 600))).toHaveLength(60);
  expect(await send(1, "c", 60)).toMatchObject([[{ allowed: true }, { allowed: false, remaining: 0 }]]);
  expect(await facades[0]?.consume("token c", 60)).toMatchObject({ allowed: true, remaining: 59 });
});

test("keys don't share a limit", async () => {
  const [facade] = openFacades(1).facades;
  expect(await facade?.consume("a", 1)).toMatchObject({ allowed: true, remaining: 0 });
  expect(await facade?.consume("a", 1)).toMatchObject({ allowed: false });
  expect(await facade?.consume("b", 1)).toMatchObject({ allowed: true });
});

test("a count that can't be reached is replaced by the facade's own, and asked again after a while", async () => {
  const clock = { ms: 1_000 };
  const now = () => clock.ms;
  const shared = createCount(clock);
  let tries = 0;
  let isAway = true;
  const limiter = createSharedRateLimiter({
    consume(...asked) {
      tries += 1;
      return isAway ? Promise.reject(new Error("down")) : shared.consume(...asked);
    },
    fallback: createLocalRateLimiter({ now }),
    logger,
    now,
  });
  expect(await limiter.consume("a", 2)).toMatchObject({ allowed: true, remaining: 1 });
  expect(await limiter.consume("a", 2)).toMatchObject({ allowed: true, remaining: 0 });
  expect(await limiter.consume("a", 2)).toMatchObject({ allowed: false });
  // Each try may take as long as a deadline.
  expect(tries).toBe(1);
  isAway = false;
  clock.ms += 2_000;
  expect(await limiter.consume("a", 2)).toMatchObject({ allowed: true });
  expect(tries).toBe(2);
});
