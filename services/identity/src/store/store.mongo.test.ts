import { newId } from "@sandgate/kit/base/ids";
import { addMs } from "@sandgate/kit/base/time";
import { openMongo } from "@sandgate/kit/storage/mongo";
import type { MongoStoreOptions } from "@sandgate/kit/storage/open-store";
import { Role } from "@sandgate/proto/common/v1/access";
import { describeOnMongo } from "@sandgate/test/stores";
import { afterEach, beforeEach, expect, test } from "vitest";
import { migrations } from "./migrations.mongo.ts";
import { describeIdentityStore } from "./store.contract.ts";
import { createMongoStore, openMongoStore } from "./store.mongo.ts";

await describeOnMongo("identity", openMongoStore, describeIdentityStore);

async function openWithDatabase(options: MongoStoreOptions) {
  const database = await openMongo({ ...options, migrations });
  return { ...createMongoStore(database), db: database.db };
}

await describeOnMongo("identity", openWithDatabase, (_, open) => {
  let opened: Awaited<ReturnType<typeof open>>;
  beforeEach(async () => {
    opened = await open();
  });
  afterEach(() => opened.close());

  const kept = ["verifications", "sessions", "refresh_tokens", "api_tokens", "mails", "request_windows"];
  const endsIn = async (name: string) => {
    const found = await opened.db.collection<{ removeAt?: Date }>(name).find().hint({ _id: 1 }).toArray();
    return found.map(({ removeAt }) => removeAt);
  };

  test("the collections whose documents expire have a TTL index, and no others", async () => {
    for (const name of [...kept, "held_slots", "sso_attempts", "known_networks"]) {
      const expiring = (await opened.db.collection(name).indexes()).filter(
        (index) => index.expireAfterSeconds !== undefined,
      );
      expect(expiring, name).toMatchObject([{ key: { removeAt: 1 }, expireAfterSeconds: 0 }]);
    }
    for (const name of ["users", "keys", "turns"]) {
      const indexes = await opened.db.collection(name).indexes();
      expect(
        indexes.filter((index) => index.expireAfterSeconds !== undefined),
        name,
      ).toEqual([]);
    }
  });

  test("documents have the time of their removal, which changes with them", async () => {
    const store = opened;
    const hourMs = 3_600_000;
    const dayMs = 24 * hourMs;
    const now = new Date(Date.UTC(2100, 0, 1));
    const at = (ms: number) => [addMs(now, ms)];
    const hash = (byte: number) => new Uint8Array(32).fill(byte);
    const mail = { id: newId(), sealed: new Uint8Array([1]) };
    const client = { address: "192.0.2.1", userAgent: "curl" };
    const userId = newId();
    await store.registrations.register({
      id: userId,
      username: "ann@example.com",
      usernameKey: "ann@example.com",
      passwordHash: "hash",
      createdAt: now,
      mails: { verification: { tokenHash: hash(1), expiresAt: addMs(now, dayMs), mail }, notice: mail },
      events: [],
    });
    expect(await endsIn("verifications")).toEqual(at(dayMs));
    expect(await endsIn("mails")).toEqual(at(dayMs));
    await store.mails.finish(mail.id);
    expect(await endsIn("mails")).toEqual(at(dayMs + hourMs));

    await store.sessions.create({
      id: newId(),
      userId,
      passwordHash: "hash",
      client,
      createdAt: now,
      expiresAt: addMs(now, 30 * dayMs),
      refreshTokenHash: hash(2),
      refreshTokenExpiresAt: addMs(now, hourMs),
      events: [],
    });
    expect(await endsIn("sessions")).toEqual(at(hourMs + dayMs));
    expect(await endsIn("refresh_tokens")).toEqual(at(hourMs + dayMs));
    await store.refreshTokens.rotate(
      { presentedHash: hash(2), successorHash: hash(3), client, eventsOfReuse: [] },
      addMs(now, 1000),
    );
    expect(await endsIn("sessions")).toEqual(at(1000 + 1_800_000 + dayMs));
    await store.refreshTokens.endSession(hash(3), addMs(now, 2000), []);
    expect(await endsIn("sessions")).toEqual(at(2000 + dayMs));

    const token = {
      userId,
      description: "",
      hint: "",
      workspaceId: undefined,
      sessionId: newId(),
      notice: undefined,
      role: Role.UNSPECIFIED,
      permissions: undefined,
      createdAt: now,
    };
    await store.apiTokens.create(
      { ...token, id: "a", tokenHash: hash(4), expiresAt: addMs(now, hourMs) },
      0,
      undefined,
      [],
    );
    await store.apiTokens.create({ ...token, id: "b", tokenHash: hash(5), expiresAt: undefined }, 0, undefined, []);
    expect(await endsIn("api_tokens")).toEqual([...at(hourMs + 30 * dayMs), undefined]);

    await store.rateCounters.consume({ key: hash(6), limit: 1, windowMs: 60_000 }, 1, now);
    expect(await endsIn("request_windows")).toEqual(at(60_000));
  });

  test("documents of the previous version get the time of their removal from the migration", async () => {
    const [, letExpire] = migrations;
    const { db } = opened;
    const before = <D extends { _id: string }>(name: string, documents: D[]) =>
      db.collection<{ _id: string }>(name).insertMany(documents);
    await before("sessions", [
      { _id: "idle", idleAt: 4e12 },
      { _id: "over", idleAt: 4e12, endedAt: 3.9e12 },
    ]);
    await before("api_tokens", [{ _id: "lasting" }]);
    await letExpire?.run(db);
    const dayMs = 24 * 3_600_000;
    expect(await endsIn("sessions")).toEqual([new Date(4e12 + dayMs), new Date(3.9e12 + dayMs)]);
    expect(await endsIn("api_tokens")).toEqual([undefined]);
  });
});
