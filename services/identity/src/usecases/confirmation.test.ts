import { join } from "node:path";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { addMs, dayMs, hourMs, minuteMs } from "@sandgate/kit/base/time";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { hashSecret } from "../domain/tokens.ts";
import { createPasswordHasher } from "../passwords/hasher.ts";
import { openSqliteStore } from "../store/store.sqlite.ts";
import { confirmCaller } from "./confirmation.ts";

test("in an account without a password a sign-in of the last five minutes confirms the caller", async ({ folder }) => {
  const logger = createLogger({ service: "identity", level: "silent" });
  const store = await openSqliteStore({ file: join(folder, "identity.sqlite"), logger });
  const signedInAt = new Date();
  const [id, sessionId] = [newId(), newId()];
  const name = { username: "ann@example.com", usernameKey: "ann@example.com" };
  const identity = { issuer: "https://issuer.test", subject: "1", name };
  await store.singleSignOn.resolveUser(identity, { created: { id, events: [] }, holder: undefined }, signedInAt);
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
  await store.close();
});
