import { newId } from "@sandgate/kit/base/ids";
import { asFacade } from "@sandgate/kit/rpc/context";
import { test } from "@sandgate/test-support/test";
import { describe, expect } from "vitest";
import {
  advance,
  as,
  bus,
  close,
  createUser,
  identity,
  nobody,
  now,
  open,
  password,
  service,
  signedIn,
  username,
  useService,
  verifyAccessToken,
} from "./service.fixture.ts";

useService();

describe("the keys of tokens, at an operator's command,", () => {
  const command = (...options: string[]) => service.commands?.["rotate-keys"]?.(new Set(options));
  const refused = { reason: "INVALID_TOKEN" };

  test("change while sessions go on, also for a refresh that is tried again", async () => {
    await open();
    await createUser();
    const tokens = await signedIn();
    const { refreshToken } = tokens;
    const first = (await identity.refreshSession({ refreshToken }, nobody())).tokens;
    expect(await command()).toEqual({ signs_from: new Date(now + 600_000).toISOString(), sessions: "go on" });
    const again = (await identity.refreshSession({ refreshToken }, nobody())).tokens;
    expect(again?.refreshToken).toBe(first?.refreshToken);
    const next = (await identity.refreshSession({ refreshToken: first?.refreshToken ?? "" }, nobody())).tokens;
    advance(1_000);
    const repeated = (await identity.refreshSession({ refreshToken: first?.refreshToken ?? "" }, nobody())).tokens;
    expect(repeated?.refreshToken).toBe(next?.refreshToken);
    await verifyAccessToken(tokens.accessToken);
    // Used again after its successor was, it ends the session, whichever key derived that.
    await expect(identity.refreshSession({ refreshToken }, nobody())).rejects.toMatchObject(refused);
    const last = { refreshToken: next?.refreshToken ?? "" };
    await expect(identity.refreshSession(last, nobody())).rejects.toMatchObject(refused);
  });

  test("are dropped at once in an emergency, and all sessions end", async () => {
    await open();
    await createUser();
    const [idle, active] = [await signedIn(), await signedIn()];
    const { tokens: refreshed } = await identity.refreshSession({ refreshToken: active.refreshToken }, nobody());
    await command("emergency");
    for (const { accessToken, refreshToken } of [idle, refreshed ?? active]) {
      await expect(verifyAccessToken(accessToken)).rejects.toThrow("no applicable key");
      await expect(identity.refreshSession({ refreshToken }, nobody())).rejects.toMatchObject(refused);
    }
    const { endedSessionIds } = await identity.getSigningKeys({}, nobody());
    expect(endedSessionIds).toEqual([]);
    const fresh = await signedIn();
    await verifyAccessToken(fresh.accessToken);
    await identity.refreshSession({ refreshToken: fresh.refreshToken }, nobody());
  });
});

describe("sessions", () => {
  test("an access token names the user, the session and its expiry", async () => {
    await open();
    const id = await createUser();
    const { accessToken } = await signedIn();
    const seconds = now / 1000;
    expect(await verifyAccessToken(accessToken)).toMatchObject({
      sub: id,
      op: false,
      iat: seconds,
      exp: seconds + 300,
      iss: "http://127.0.0.1:8080",
      aud: "sandgate",
    });
  });

  test("a refresh continues the session, across a restart too", async () => {
    await open();
    await createUser();
    const first = await signedIn();
    const { sid } = await verifyAccessToken(first.accessToken);
    advance(60_000);
    const second = await identity.refreshSession({ refreshToken: first.refreshToken }, nobody());
    expect(second.tokens?.refreshExpiresInSeconds).toBe(1800);
    expect((await verifyAccessToken(second.tokens?.accessToken ?? "")).sid).toBe(sid);
    await close();
    await open();
    advance(5_000);
    const retried = await identity.refreshSession({ refreshToken: first.refreshToken }, nobody());
    expect(retried.tokens?.refreshToken).toBe(second.tokens?.refreshToken);
  });

  test("a stolen refresh token ends the session, and the facades are notified", async () => {
    await open();
    await createUser();
    const first = await signedIn();
    const { sid } = await verifyAccessToken(first.accessToken);
    const heard: string[] = [];
    bus.watch("identity.sessions.ended", (body) => heard.push(body));
    const second = await identity.refreshSession({ refreshToken: first.refreshToken }, nobody());
    advance(10_001);
    for (const token of [first.refreshToken, second.tokens?.refreshToken ?? ""]) {
      await expect(identity.refreshSession({ refreshToken: token }, nobody())).rejects.toMatchObject({
        reason: "INVALID_TOKEN",
      });
    }
    expect(heard).toEqual([sid]);
    expect((await identity.getSigningKeys({}, nobody())).endedSessionIds).toEqual([sid]);
    advance(331_000);
    expect((await identity.getSigningKeys({}, nobody())).endedSessionIds).toEqual([]);
  });

  test("a user sees and ends the own sessions, and the facades are notified", async () => {
    await open();
    const id = await createUser();
    const started = [];
    for (const userAgent of ["curl", "Firefox", "Safari"]) {
      const client = { address: "192.0.2.7", userAgent };
      const { tokens } = await identity.signIn({ username, password, client }, nobody());
      started.push(String((await verifyAccessToken(tokens?.accessToken ?? "")).sid));
      advance(1000);
    }
    const [first = "", second = "", current = ""] = started;
    const mine = () => {
      const user = { id, credential: "session" as const, credentialId: current, operator: false };
      return asFacade({ requestId: newId(), user });
    };
    const { sessions } = await identity.listSessions({}, mine());
    expect(sessions).toMatchObject([
      { id: current, current: true, address: "192.0.2.7", userAgent: "Safari" },
      { id: second, current: false, userAgent: "Firefox" },
      { id: first, current: false, userAgent: "curl" },
    ]);
    const heard: string[] = [];
    bus.watch("identity.sessions.ended", (body) => heard.push(body));
    await expect(identity.endSession({ sessionId: first }, as(newId()))).rejects.toMatchObject({ reason: "NOT_FOUND" });
    await identity.endSession({ sessionId: first }, mine());
    await expect(identity.endSession({ sessionId: first }, mine())).rejects.toMatchObject({ reason: "NOT_FOUND" });
    await identity.endOtherSessions({}, mine());
    expect(heard).toEqual([first, second]);
    expect((await identity.listSessions({}, mine())).sessions.map((session) => session.id)).toEqual([current]);
  });

  test("a session lives until its refresh token expires, and a refresh prolongs it", async () => {
    await open();
    const id = await createUser();
    const { accessToken, refreshToken } = await signedIn();
    const { sid } = await verifyAccessToken(accessToken);
    const own = () => as(id, { credentialId: String(sid) });
    expect((await identity.getSession({}, own())).expiresInMs).toBe(1_800_000);
    advance(1_000_000);
    expect((await identity.getSession({}, own())).expiresInMs).toBe(800_000);
    const { tokens } = await identity.refreshSession({ refreshToken }, nobody());
    advance(1_799_999);
    expect((await identity.getSession({}, own())).expiresInMs).toBe(1);
    advance(1);
    const refused = { reason: "INVALID_TOKEN" };
    await expect(identity.getSession({}, own())).rejects.toMatchObject(refused);
    await expect(identity.getSession({}, as(id))).rejects.toMatchObject(refused);
    await expect(identity.refreshSession({ refreshToken: tokens?.refreshToken ?? "" }, nobody())).rejects.toMatchObject(
      refused,
    );
  });

  test("signing out ends the session; an unknown token gets the same answer", async () => {
    await open();
    await createUser();
    const { accessToken, refreshToken } = await signedIn();
    const { sid } = await verifyAccessToken(accessToken);
    await identity.signOut({ refreshToken }, nobody());
    await identity.signOut({ refreshToken }, nobody());
    await identity.signOut({ refreshToken: "unknown" }, nobody());
    expect((await identity.getSigningKeys({}, nobody())).endedSessionIds).toEqual([sid]);
    await expect(identity.refreshSession({ refreshToken }, nobody())).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
  });
});
