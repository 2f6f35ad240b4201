import { join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import { planStatements } from "@sandgate/test/plans";
import { describeOnSqlite } from "@sandgate/test/stores";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { describeIdentityStore } from "./store.contract.ts";
import { openSqliteStore } from "./store.sqlite.ts";

describeOnSqlite("identity", openSqliteStore, describeIdentityStore);

test("an index has a user's API tokens in their order", async ({ folder }) => {
  const file = join(folder, "identity.sqlite");
  const store = await openSqliteStore({ file, logger: createLogger({ service: "identity", level: "silent" }) });
  const before = { createdAt: new Date(), id: "t1" };
  expect(await planStatements(file, () => store.apiTokens.list("u1", 10, before))).toEqual([
    "SEARCH t USING INDEX api_tokens_page (user_id=? AND (created_at,id)<(?,?))",
  ]);
  await store.close();
});

test("an attempt to sign in by a provider goes once it has expired", async ({ folder }) => {
  const file = join(folder, "identity.sqlite");
  const store = await openSqliteStore({ file, logger: createLogger({ service: "identity", level: "silent" }) });
  const now = new Date();
  const hash = new Uint8Array(32);
  const attempt = { stateHash: hash, browserHash: hash, provider: "google", redirectUri: "", expiresAt: now };
  await store.singleSignOn.addAttempt(attempt);
  expect(await store.expiry.sweep(new Date(now.getTime() - 1), 10)).toBe(0);
  expect(await store.expiry.sweep(now, 10)).toBe(1);
  await store.close();
});
