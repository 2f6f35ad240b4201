import { describe, expect, test } from "vitest";
import { createApiTokenUses } from "./api-token-uses.ts";

const at = (ms: number) => new Date(ms);

describe("the log of uses", () => {
  test("keeps the last use to the minute and is empty after it was taken", () => {
    const log = createApiTokenUses();
    log.record({ id: "a", lastUsedAt: undefined }, at(60_000));
    log.record({ id: "a", lastUsedAt: undefined }, at(179_999));
    log.record({ id: "b", lastUsedAt: undefined }, at(61_000));
    expect(log.take()).toEqual([
      { id: "a", usedAt: at(120_000) },
      { id: "b", usedAt: at(60_000) },
    ]);
    expect(log.take()).toEqual([]);
  });

  test("has nothing to store for a token whose minute is stored", () => {
    const log = createApiTokenUses();
    log.record({ id: "a", lastUsedAt: at(120_000) }, at(179_999));
    expect(log.take()).toEqual([]);
    log.record({ id: "a", lastUsedAt: at(120_000) }, at(180_000));
    expect(log.take()).toEqual([{ id: "a", usedAt: at(180_000) }]);
  });
});
