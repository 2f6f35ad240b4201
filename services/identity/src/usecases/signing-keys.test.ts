import { join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import { addMs } from "@sandgate/kit/base/time";
import { type Keyring, openKeyring } from "@sandgate/kit/storage/sealing";
import { test } from "@sandgate/test-support/test";
import { createLocalJWKSet, decodeProtectedHeader, jwtVerify } from "jose";
import { afterEach, describe, expect, vi } from "vitest";
import { openSqliteStore } from "../store/store.sqlite.ts";
import type { IdentityStore } from "../store/store.ts";
import { openSigningKeys, type SigningKeys } from "./signing-keys.ts";

const minuteMs = 60_000;
const dayMs = 24 * 60 * minuteMs;
const t0 = new Date(Date.UTC(2026, 0, 1));
const at = (ms: number) => addMs(t0, ms);

describe("signing keys", () => {
  let folder: string;
  let keyring: Keyring;
  let store: IdentityStore;

  test.beforeEach(async ({ folder: own }) => {
    folder = own;
    keyring = await openKeyring({ file: join(folder, "keys.json"), create: true });
    const logger = createLogger({ service: "identity", level: "silent" });
    store = await openSqliteStore({ file: join(folder, "identity.sqlite"), logger });
  });

  afterEach(async () => {
    await store.close();
  });

  const issuer = "https://sandgate.example";
  const claims = { userId: "ann", sessionId: "s1", operator: true, needsSecondFactor: false };
  const open = (now: () => Date) => openSigningKeys({ store, keyring, issuer, audience: "sandgate", now });
  const signingKeyOf = async (keys: SigningKeys) =>
    decodeProtectedHeader(await (await keys.current()).signAccessToken(claims)).kid;
  const publishedBy = async (keys: SigningKeys) => (await keys.publicJwks()).keys.map(({ kid }) => kid);

  test("sign tokens that the published keys verify", async () => {
    const keys = await open(() => t0);
    const token = await (await keys.current()).signAccessToken(claims);
    const { payload, protectedHeader } = await jwtVerify(token, createLocalJWKSet(await keys.publicJwks()), {
      issuer,
      audience: "sandgate",
      typ: "at+jwt",
      algorithms: ["EdDSA"],
      currentDate: t0,
    });
    const seconds = t0.getTime() / 1000;
    expect(payload).toEqual({
      iss: issuer,
      aud: "sandgate",
      sub: "ann",
      sid: "s1",
      op: true,
      iat: seconds,
      exp: seconds + 300,
    });
    expect(protectedHeader.kid).toBeTruthy();
  });

  test("are the same for every replica and after a restart, and publish no private part", async () => {
    const [first, second] = await Promise.all([open(() => t0), open(() => t0)]);
    const jwks = await first.publicJwks();
    expect(jwks.keys).toHaveLength(1);
    expect(await second.publicJwks()).toEqual(jwks);
    expect((await first.current()).refreshKeys).toEqual((await second.current()).refreshKeys);
    for (const key of jwks.keys) expect(key).not.toHaveProperty("d");
    const [stored] = await store.keys.list();
    expect(stored?.publicJwk).not.toContain('"d"');
  });

  test("are replaced without any valid token failing", async () => {
    let now = t0;
    const keys = await open(() => now);
    const kidOf = () => signingKeyOf(keys);
    const first = await kidOf();

    now = at(90 * dayMs);
    await keys.maintain();
    expect(await kidOf()).toBe(first);
    expect((await keys.publicJwks()).keys).toHaveLength(2);

    now = addMs(now, 10 * minuteMs);
    const second = await kidOf();
    expect(second).not.toBe(first);

    now = addMs(now, dayMs);
    await keys.maintain();
    expect((await keys.publicJwks()).keys.map(({ kid }) => kid)).toEqual([second]);
  });

  test("are replaced at a command: a new one signs once it is known, an old one verifies for a day", async () => {
    let now = t0;
    const [keys, replica] = [await open(() => now), await open(() => now)];
    const first = await signingKeyOf(keys);
    const { refreshKeys } = await keys.current();

    now = at(dayMs);
    expect(await keys.rotate()).toEqual({ signsFrom: addMs(now, 10 * minuteMs) });
    expect(await signingKeyOf(replica)).toBe(first);
    expect((await replica.current()).refreshKeys).toEqual([expect.anything(), ...refreshKeys]);

    now = addMs(now, 10 * minuteMs);
    const second = await signingKeyOf(replica);
    expect(second).not.toBe(first);
    await replica.maintain();
    expect(await publishedBy(keys)).toEqual([second, first]);

    now = addMs(now, dayMs);
    await replica.maintain();
    expect(await publishedBy(keys)).toEqual([second]);
    expect((await keys.current()).refreshKeys).toHaveLength(1);
    expect((await keys.current()).refreshKeys).not.toEqual(refreshKeys);
  });

  test("are all replaced at once in an emergency, for every replica", async () => {
    const [keys, replica] = [await open(() => t0), await open(() => t0)];
    await keys.rotate();
    const old = await publishedBy(replica);
    const { refreshKeys } = await replica.current();
    await keys.replaceAll();
    const [fresh, ...others] = await publishedBy(replica);
    expect(old).not.toContain(fresh);
    expect(others).toEqual([]);
    expect(await signingKeyOf(replica)).toBe(fresh);
    expect((await replica.current()).refreshKeys).toHaveLength(1);
    for (const key of refreshKeys) expect((await replica.current()).refreshKeys).not.toContainEqual(key);
  });

  test("stolen ones are gone before the first session ends, which may take minutes", async () => {
    const keys = await open(() => t0);
    const old = await publishedBy(keys);
    const published: (string | undefined)[] = [];
    vi.spyOn(store.keys, "replaceAll").mockImplementation(async () => {
      published.push(...(await publishedBy(keys)));
    });
    await keys.replaceAll();
    expect(published).toHaveLength(1);
    expect(old).not.toContain(published[0]);
  });
});
