import { newId } from "@sandgate/kit/base/ids";
import { hourMs } from "@sandgate/kit/base/time";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import { Permission, Role } from "@sandgate/proto/common/v1/access";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { budget } from "../domain/rate-counters.ts";
import { hashSecret } from "../domain/tokens.ts";
import { apiToken, at, createUser, event, mail, startSession, subjectsOf, takeMails } from "./store.fixture.ts";
import type { IdentityStore } from "./store.ts";

/** What every adapter of `ApiTokens` does. `open` returns an empty store. */
export function describeApiTokens(open: () => Promise<IdentityStore>): void {
  describe("API tokens", () => {
    let store: IdentityStore;
    const notice = (name: string, limit: number) => ({ mail: mail(name), budget: budget("notices", limit, hourMs) });

    beforeEach(async () => {
      store = await open();
    });

    afterEach(() => store.close());

    test("a token is found by its hash, with whether its user is an operator", async () => {
      const userId = await createUser(store);
      const { tokenHash, sessionId, notice, ...token } = apiToken(userId, "t", {
        workspaceId: newId(),
        role: Role.ADMIN,
        permissions: [Permission.READ, Permission.USE],
        expiresAt: at(1),
      });
      await store.apiTokens.create({ ...token, tokenHash, sessionId, notice }, 0, undefined, []);
      expect(await store.apiTokens.find(tokenHash)).toEqual({
        ...token,
        lastUsedAt: undefined,
        operator: false,
        secondFactor: false,
      });
      expect(await store.apiTokens.find(hashSecret("other"))).toBeUndefined();
    });

    test("a token's permissions are kept, and that it has none", async () => {
      const userId = await createUser(store);
      const kept = [undefined, [Permission.MANAGE], [Permission.READ, Permission.PROVISION]];
      for (const [i, permissions] of kept.entries()) {
        const token = apiToken(userId, `${i}`, { permissions, createdAt: at(-i) });
        await store.apiTokens.create(token, 0, undefined, []);
      }
      for (const [i, permissions] of kept.entries()) {
        expect((await store.apiTokens.find(hashSecret(`${i}`)))?.permissions).toEqual(permissions);
      }
      const listed = await store.apiTokens.list(userId, 10, undefined);
      expect(listed.map(({ permissions }) => permissions)).toEqual(kept);
    });

    test("a token is found by its id as by its hash, until it is revoked", async () => {
      const userId = await createUser(store);
      const token = apiToken(userId, "t");
      await store.apiTokens.create(token, 0, undefined, []);
      const found = await store.apiTokens.findById(token.id);
      expect(found).toMatchObject({ id: token.id, userId });
      expect(found).toEqual(await store.apiTokens.find(token.tokenHash));
      expect(await store.apiTokens.findById(newId())).toBeUndefined();
      await store.apiTokens.revoke(userId, token.id, [], undefined);
      expect(await store.apiTokens.findById(token.id)).toBeUndefined();
    });

    test("a token is made with its mail, and none for a session that has ended", async () => {
      const userId = await createUser(store);
      await takeMails(store, at(0));
      const { id: sessionId } = await startSession(store, userId, "session");
      const token = (name: string) => apiToken(userId, name, { sessionId, notice: notice(name, 10) });
      expect(await store.apiTokens.create(token("one"), 0, undefined, [event("one")])).toBe("done");
      await store.sessions.end(userId, sessionId, at(0), []);
      expect(await store.apiTokens.create(token("two"), 0, undefined, [event("two")])).toBe("session_ended");
      expect(await takeMails(store, at(0))).toEqual(["one"]);
      expect(await store.apiTokens.list(userId, 10, undefined)).toHaveLength(1);
      expect((await subjectsOf(store)).filter((subject) => subject !== "created")).toEqual(["one"]);
    });

    test("mails are added while their budget lasts, of which only tokens that are made consume", async () => {
      const userId = await createUser(store);
      await takeMails(store, at(0));
      const { id: sessionId } = await startSession(store, userId, "session");
      const create = (name: string, maxTokens: number) =>
        store.apiTokens.create(
          apiToken(userId, name, { sessionId, notice: notice(name, 2) }),
          maxTokens,
          undefined,
          [],
        );
      expect(await create("one", 1)).toBe("done");
      for (const name of ["refused", "refused again"]) expect(await create(name, 1)).toBe("too_many");
      expect(await create("two", 0)).toBe("done");
      expect(await create("three", 0)).toBe("done");
      await store.sessions.end(userId, sessionId, at(0), []);
      expect(await create("four", 0)).toBe("session_ended");
      expect(await takeMails(store, at(0))).toEqual(["one", "two"]);
    });

    test("all tokens of a user alone are revoked at once; nothing is published when there was none", async () => {
      const [ann, bob] = [await createUser(store), await createUser(store, "bob@example.com")];
      for (const token of ["one", "two"]) await store.apiTokens.create(apiToken(ann, token), 0, undefined, []);
      await store.apiTokens.create(apiToken(bob, "bob's"), 0, undefined, []);
      for (const name of ["revoked", "not again"]) await store.apiTokens.revokeAll(ann, [event(name)]);
      expect(await store.apiTokens.list(ann, 10, undefined)).toEqual([]);
      for (const token of ["one", "two"]) expect(await store.apiTokens.find(hashSecret(token))).toBeUndefined();
      expect(await store.apiTokens.find(hashSecret("bob's"))).toBeDefined();
      expect((await subjectsOf(store)).filter((subject) => subject !== "created")).toEqual(["revoked"]);
    });

    test("an idempotency record is stored with the token, and only the first", async () => {
      const userId = await createUser(store);
      const record: IdempotencyRecord = {
        id: "record",
        sealed: new Uint8Array([1]),
        service: "identity",
        workspace: "",
        owner: "ann",
      };
      await store.apiTokens.create(apiToken(userId, "first"), 0, record, []);
      await expect(store.apiTokens.create(apiToken(userId, "second"), 0, record, [])).rejects.toThrow();
      expect(await store.apiTokens.find(hashSecret("second"))).toBeUndefined();
    });

    test("a user has no more tokens than they may, expired ones included; a revocation frees a place at once", async () => {
      const [ann, bob] = [await createUser(store), await createUser(store, "bob@example.com")];
      const [first, second, third] = ["first", "second", "third"].map((token) => apiToken(ann, token));
      if (!first || !second || !third) throw new Error("three tokens were made");
      const record = { id: newId(), sealed: new Uint8Array([1]), service: "identity", workspace: "", owner: "ann" };
      expect(await store.apiTokens.create({ ...first, expiresAt: at(-1) }, 2, undefined, [])).toBe("done");
      expect(await store.apiTokens.create(second, 2, undefined, [])).toBe("done");
      expect(await store.apiTokens.create(third, 2, record, [])).toBe("too_many");
      expect(await store.apiTokens.find(third.tokenHash)).toBeUndefined();
      expect(await store.apiTokens.create(apiToken(bob, "bob's"), 2, undefined, [])).toBe("done");
      await store.apiTokens.revoke(ann, first.id, [], undefined);
      expect(await store.apiTokens.create(third, 2, record, [])).toBe("done");
      expect(await store.apiTokens.create(apiToken(ann, "fourth"), 2, undefined, [])).toBe("too_many");
      expect(await store.apiTokens.create(apiToken(ann, "fifth"), 0, undefined, [])).toBe("done");
    });

    test("of many tokens that are created at once for the last place, one is", async () => {
      const userId = await createUser(store);
      await store.apiTokens.create(apiToken(userId, "first"), 2, undefined, []);
      const outcomes = await Promise.all(
        [1, 2, 3, 4, 5].map((i) => store.apiTokens.create(apiToken(userId, `${i}`), 2, undefined, [])),
      );
      expect(outcomes.sort()).toEqual(["done", "too_many", "too_many", "too_many", "too_many"]);
      expect(await store.apiTokens.list(userId, 10, undefined)).toHaveLength(2);
    });

    test("tokens are listed newest first, page by page, each user's own", async () => {
      const ann = await createUser(store, "ann@example.com");
      const bob = await createUser(store, "bob@example.com");
      const created = [0, 1, 1, 2].map((ms, i) => apiToken(ann, `${i}`, { createdAt: at(ms) }));
      for (const token of created) await store.apiTokens.create(token, 0, undefined, []);
      await store.apiTokens.create(apiToken(bob, "bob's"), 0, undefined, []);

      const newestFirst = created.map(({ id }) => id).toReversed();
      const first = await store.apiTokens.list(ann, 2, undefined);
      const rest = await store.apiTokens.list(ann, 10, first[1]);
      expect([...first, ...rest].map(({ id }) => id)).toEqual(newestFirst);
    });

    test("only its owner revokes a token, once, with an event", async () => {
      const ann = await createUser(store, "ann@example.com");
      const bob = await createUser(store, "bob@example.com");
      const token = apiToken(ann, "t");
      await store.apiTokens.create(token, 0, undefined, []);
      expect(await store.apiTokens.revoke(bob, token.id, [event("revoked")], undefined)).toBe(false);
      expect(await store.apiTokens.revoke(ann, token.id, [event("revoked")], undefined)).toBe(true);
      expect(await store.apiTokens.revoke(ann, token.id, [event("revoked")], undefined)).toBe(false);
      expect(await store.apiTokens.find(token.tokenHash)).toBeUndefined();
      expect(await store.apiTokens.list(ann, 10, undefined)).toEqual([]);
      expect((await subjectsOf(store)).filter((subject) => subject === "revoked")).toHaveLength(1);
    });

    test("an idempotency record is stored with the revocation, and only with one", async () => {
      const ann = await createUser(store, "ann@example.com");
      const token = apiToken(ann, "t");
      await store.apiTokens.create(token, 0, undefined, []);
      const record = { id: "record", sealed: new Uint8Array([1]), service: "identity", workspace: "", owner: "ann" };
      expect(await store.apiTokens.revoke(ann, newId(), [], record)).toBe(false);
      expect(await store.idempotency.find("record")).toBeUndefined();
      expect(await store.apiTokens.revoke(ann, token.id, [], record)).toBe(true);
      expect(await store.idempotency.find("record")).toEqual({ id: record.id, sealed: record.sealed });
    });

    test("the time of the last use never goes back", async () => {
      const token = apiToken(await createUser(store), "t");
      await store.apiTokens.create(token, 0, undefined, []);
      await store.apiTokens.recordUses([{ id: token.id, usedAt: at(120_000) }]);
      await store.apiTokens.recordUses([{ id: token.id, usedAt: at(60_000) }]);
      expect((await store.apiTokens.find(token.tokenHash))?.lastUsedAt).toEqual(at(120_000));
    });
  });
}
