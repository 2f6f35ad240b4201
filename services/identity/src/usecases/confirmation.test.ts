import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { addMs, dayMs, hourMs, minuteMs } from "@sandgate/kit/base/time";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { hashSecret } from "../domain/tokens.ts";
import { createPasswordHasher } from "../passwords/hasher.ts";
import { openSqliteStore } from "../store/store.sqlite.ts";
import { confirmCaller, requireRecentSignIn } from "./confirmation.ts";

test("in an account without a password a sign-in of the last five minutes confirms the caller", async ({ folder }) => {
  const logger = createLogger({ service: "identity", level: "silent" });
  const store = await openSqliteStore({ file: join(folder, "identity.sqlite"), logger });
  const signedInAt = new Date();
  const [id, sessionId] = [newId(), newId()];
  const name = { username: "ann@example.com", usernameKey: "ann@example.com" };
  const identity = { issuer: "https://issuer.test", subject: "1", provider: "google", name, verified: true };
  await store.singleSignOn.resolveUser(
    identity,
    { created: { id, events: [] }, holder: undefined, address: "" },
    signedInAt,
  );
  await store.sessions.create({
    id: sessionId,
    userId: id,
    passwordHash: undefined,
    client: { address: "", userAgent: "" },
    createdAt: signedInAt,
    expiresAt: addMs(signedInAt, dayMs),
    refreshTokenHash: hashSecret("token"),
    refreshTokenExpiresAt: addMs(signedInAt, hourMs),
    events: [],
  });
  const hasher = createPasswordHasher();
  const confirm = (ms: number, credentialId = sessionId) =>
    confirmCaller(
      { store, hasher, now: () => addMs(signedInAt, ms) },
      { id, credential: "session", credentialId, operator: false },
      "whatever",
    );
  expect(await confirm(5 * minuteMs - 1)).toMatchObject({ id, username: "ann@example.com" });
  for (const late of [confirm(5 * minuteMs), confirm(0, newId())]) {
    await expect(late).rejects.toMatchObject({ reason: "INVALID_CREDENTIALS" });
  }
  const caller = (credentialId = sessionId) => ({ id, credential: "session" as const, credentialId, operator: false });
  const require = (ms: number, who = caller()) => requireRecentSignIn({ store, now: () => addMs(signedInAt, ms) }, who);
  await require(5 * minuteMs - 1);
  await store.sessions.endOthers(id, undefined, signedInAt, []);
  for (const refused of [require(5 * minuteMs), require(0), require(0, caller(newId()))]) {
    await expect(refused).rejects.toMatchObject({ reason: "FORBIDDEN", hint: "Sign in again, then retry." });
  }
  await store.close();
});
