import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import { type Keyring, openKeyring } from "@sandgate/kit/storage/sealing";
import { createLocalJWKSet, decodeProtectedHeader, jwtVerify } from "jose";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openSqliteStore } from "../store/store.sqlite.ts";
import type { IdentityStore } from "../store/store.ts";
import { findOutdatedKeys, needsNewKey, openSigningKeys, pickSigningKey } from "./signing-keys.ts";

const MINUTE_MS = 60_000;
const DAY_MS = 24 * 60 * MINUTE_MS;
const T0 = Date.UTC(2026, 0, 1);
const keysAt = (...times: number[]) => times.map((createdAt) => ({ createdAt }));

describe("the rules of signing keys", () => {
  test("a key is made when there is none, and 90 days later", () => {
    expect(needsNewKey([], T0)).toBe(true);
    expect(needsNewKey(keysAt(T0), T0 + 90 * DAY_MS - 1)).toBe(false);
    expect(needsNewKey(keysAt(T0), T0 + 90 * DAY_MS)).toBe(true);
    expect(needsNewKey(keysAt(T0, T0 + 90 * DAY_MS), T0 + 91 * DAY_MS)).toBe(false);
  });

  test("the first key signs at once, a later one when the facades know it", () => {
    const [old, young] = [{ createdAt: T0 }, { createdAt: T0 + 90 * DAY_MS }];
    expect(pickSigningKey([], T0)).toBeUndefined();
    expect(pickSigningKey([old], T0)).toBe(old);
    expect(pickSigningKey([young, old], young.createdAt + 10 * MINUTE_MS - 1)).toBe(old);
    expect(pickSigningKey([young, old], young.createdAt + 10 * MINUTE_MS)).toBe(young);
  });

  test("a key goes when its successor has signed for a day", () => {
    const [old, young] = [{ createdAt: T0 }, { createdAt: T0 + 90 * DAY_MS }];
    const signedForADay = young.createdAt + 10 * MINUTE_MS + DAY_MS;
    expect(findOutdatedKeys([old, young], signedForADay - 1)).toEqual([]);
    expect(findOutdatedKeys([old, young], signedForADay)).toEqual([old]);
    expect(findOutdatedKeys([old], T0 + 1000 * DAY_MS)).toEqual([]);
  });
});

describe("signing keys", () => {
  let folder: string;
  let keyring: Keyring;
  let store: IdentityStore;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "sandgate-identity-"));
    keyring = await openKeyring({ file: join(folder, "keys.json"), create: true });
    const logger = createLogger({ service: "identity", level: "silent" });
    store = await openSqliteStore({ file: join(folder, "identity.sqlite"), logger });
  });

  afterEach(async () => {
    await store.close();
    await rm(folder, { recursive: true });
  });

  const issuer = "https://sandgate.example";
  const claims = { userId: "ann", sessionId: "s1", operator: true };
  const open = (now: () => number) => openSigningKeys({ store, keyring, issuer, audience: "sandgate", now });

  test("sign tokens that the published keys verify", async () => {
    const keys = await open(() => T0);
    const token = await keys.signAccessToken(claims);
    const { payload, protectedHeader } = await jwtVerify(token, createLocalJWKSet(await keys.publicJwks()), {
      ...{ issuer, audience: "sandgate", typ: "at+jwt", algorithms: ["EdDSA"] },
      currentDate: new Date(T0),
    });
    const seconds = T0 / 1000;
    expect(payload).toEqual({
      ...{ iss: issuer, aud: "sandgate", sub: "ann", sid: "s1", op: true },
      ...{ iat: seconds, exp: seconds + 300 },
    });
    expect(protectedHeader.kid).toBeTruthy();
  });

  test("are the same for every replica and after a restart, and publish no private part", async () => {
    const [first, second] = await Promise.all([open(() => T0), open(() => T0)]);
    const jwks = await first.publicJwks();
    expect(jwks.keys).toHaveLength(1);
    expect(await second.publicJwks()).toEqual(jwks);
    expect(first.refreshKey()).toEqual(second.refreshKey());
    for (const key of jwks.keys) expect(key).not.toHaveProperty("d");
    const [stored] = await store.listKeys();
    expect(stored?.publicJwk).not.toContain('"d"');
  });

  test("take turns without a token of theirs failing", async () => {
    let now = T0;
    const keys = await open(() => now);
    const kidOf = async () => decodeProtectedHeader(await keys.signAccessToken(claims)).kid;
    const first = await kidOf();

    now = T0 + 90 * DAY_MS;
    await keys.maintain();
    expect(await kidOf()).toBe(first);
    expect((await keys.publicJwks()).keys).toHaveLength(2);

    now += 10 * MINUTE_MS;
    const second = await kidOf();
    expect(second).not.toBe(first);

    now += DAY_MS;
    await keys.maintain();
    expect((await keys.publicJwks()).keys.map(({ kid }) => kid)).toEqual([second]);
  });
});
