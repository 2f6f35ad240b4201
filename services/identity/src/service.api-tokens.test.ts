import { timestampDate, timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient, type Transport } from "@connectrpc/connect";
import { newId } from "@sandgate/kit/base/ids";
import { dayMs } from "@sandgate/kit/base/time";
import { createCallingTransport } from "@sandgate/kit/rpc/clients";
import { asService } from "@sandgate/kit/rpc/context";
import { createInternalKeys } from "@sandgate/kit/rpc/internal-auth";
import { Permission, Role } from "@sandgate/proto/common/v1/access";
import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { describe, expect } from "vitest";
import {
  advance,
  as,
  bus,
  createUser,
  identity,
  network,
  nobody,
  now,
  open,
  password,
  readMails,
  signedInAs,
  useService,
} from "./service.fixture.ts";

useService();

describe("API tokens", () => {
  test("a token is shown once, verified, listed without its secret and revoked", async () => {
    await open();
    const id = await createUser();
    const workspaceId = newId();
    const { apiToken, token } = await identity.createApiToken({ description: "ci", workspaceId }, as(id));
    expect(token).toMatch(/^sgt_[0-9A-Za-z]{36}$/);
    const tokenId = apiToken?.id ?? "";
    advance(90_000);
    const verified = await identity.verifyApiToken({ token }, nobody());
    expect(verified).toMatchObject({ tokenId, userId: id, workspaceId, operator: false });
    expect(verified.expiresAt).toBeUndefined();
    const { apiTokens } = await identity.listApiTokens({}, as(id));
    expect(apiTokens).toMatchObject([{ id: tokenId, description: "ci", tokenHint: token.slice(0, 8), workspaceId }]);
    const [listed] = apiTokens;
    expect(listed?.lastUsedAt && timestampDate(listed.lastUsedAt).toISOString()).toBe("2026-01-01T00:01:00.000Z");

    const heard: string[] = [];
    bus.watch("identity.api_tokens.revoked", (body) => heard.push(body));
    await identity.revokeApiToken({ tokenOrId: token }, as(id));
    expect(heard).toEqual([tokenId]);
    await expect(identity.verifyApiToken({ token }, nobody())).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
    for (const tokenOrId of [token, tokenId, "", "sgt_nonsense"]) {
      await expect(identity.revokeApiToken({ tokenOrId }, as(id))).rejects.toMatchObject({
        reason: "API_KEY_NOT_FOUND",
      });
    }
  });

  test("making one sends a mail to its user, ten times an hour at most, and none that names the token", async () => {
    await open();
    const id = await createUser();
    const tokens: string[] = [];
    for (let i = 0; i < 12; i++) tokens.push((await identity.createApiToken({ description: "ci" }, as(id))).token);
    const [, ...notices] = await readMails(11);
    expect(notices).toHaveLength(10);
    expect(notices[0]?.text).toContain("Your Sandgate account has a new API token");
    expect(notices[0]?.text).toContain(`begins with ${tokens[0]?.slice(0, 8)}.`);
    for (const token of tokens) expect(notices.some(({ text }) => text.includes(token))).toBe(false);
  });

  test("a user revokes all of them at once", async () => {
    await open();
    const id = await createUser();
    const make = async () => (await identity.createApiToken({ description: "ci" }, as(id))).token;
    const [one, two] = [await make(), await make()];
    const heard: string[] = [];
    bus.watch("identity.api_tokens.revoked", (body) => heard.push(body));
    await identity.revokeApiTokens({}, as(id));
    await identity.revokeApiTokens({}, as(id));
    expect(new Set(heard)).toEqual(new Set([id]));
    for (const token of [one, two]) {
      await expect(identity.verifyApiToken({ token }, nobody())).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
    }
    expect((await identity.listApiTokens({}, as(id))).apiTokens).toEqual([]);
    await identity.verifyApiToken({ token: await make() }, nobody());
  });

  test("those are listed with which users may do something in a workspace, 200 at most", async () => {
    await open();
    const [one, two, workspaceId, other] = [await createUser(), newId(), newId(), newId()];
    const make = async (userId: string, o: object = {}) =>
      (await identity.createApiToken({ description: "ci", ...o }, as(userId))).apiToken?.id;
    const list = async (userIds: string[], permission: Permission = Permission.USE) =>
      (await identity.listUsableApiTokens({ userIds, workspaceId, permission }, nobody())).tokenIds;
    const any = await make(one);
    advance(1);
    const bound = await make(one, { workspaceId });
    await make(one, { workspaceId: other });
    const reading = await make(one, { permissions: [Permission.READ] });
    const expiring = await make(one, { expiresAt: timestampFromMs(now + 1_000) });
    const using = await make(two, { permissions: [Permission.USE] });
    expect(await list([one, two])).toEqual([expiring, bound, any, using]);
    expect(await list([two, one, newId()])).toEqual([using, expiring, bound, any]);
    expect(await list([one], Permission.READ)).toEqual([expiring, reading, bound, any]);
    advance(1_000);
    expect(await list([one])).toEqual([bound, any]);
    await identity.revokeApiToken({ tokenOrId: bound ?? "" }, as(one));
    expect(await list([one])).toEqual([any]);
    const many = Array.from({ length: 5 }, () => newId());
    for (const userId of many) for (let i = 0; i < 50; i++) await make(userId);
    expect(await list(many)).toHaveLength(200);
    await expect(list([one], Permission.UNSPECIFIED)).rejects.toMatchObject({ reason: "VALIDATION_ERROR" });
  });

  test("none is made with a session that has ended", async () => {
    await open();
    const id = await createUser();
    const own = await signedInAs(id);
    await identity.createApiToken({ description: "ci" }, own());
    await identity.endOtherSessions({}, as(id));
    await expect(identity.createApiToken({ description: "ci" }, own())).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
  });

  test("a revocation whose answer was lost is made again, by the facade itself, and succeeds", async () => {
    await open();
    const id = await createUser();
    const { apiToken, token } = await identity.createApiToken({ description: "ci" }, as(id));
    const served = network.transport("facade", "identity");
    const { signer } = await createInternalKeys(["facade"]);
    let calls = 0;
    const cutting: Transport = {
      stream: served.stream,
      async unary(method, signal, timeoutMs, header, input) {
        // Signed already by the transport that it goes through.
        const key = new Headers(header).get("idempotency-key") ?? "";
        const answer = await served.unary(
          method,
          signal,
          timeoutMs,
          undefined,
          input,
          as(id, { idempotencyKey: key }).contextValues,
        );
        calls += 1;
        if (calls === 1) throw new ConnectError("connection lost", Code.Aborted);
        return answer;
      },
    };
    const facade = createClient(
      IdentityService,
      createCallingTransport({ inner: cutting, signer: signer("facade"), audience: "identity" }),
    );
    await facade.revokeApiToken({ tokenOrId: token }, as(id, { idempotencyKey: "one request" }));
    expect(calls).toBe(2);
    for (const tokenOrId of [token, apiToken?.id ?? ""]) {
      const next = as(id, { idempotencyKey: newId() });
      await expect(facade.revokeApiToken({ tokenOrId }, next)).rejects.toMatchObject({ reason: "API_KEY_NOT_FOUND" });
    }
  });

  test("another user's token can't be revoked, neither by itself nor by its id", async () => {
    await open();
    const id = await createUser();
    const { apiToken, token } = await identity.createApiToken({ description: "ci" }, as(id));
    for (const tokenOrId of [token, apiToken?.id ?? ""]) {
      await expect(identity.revokeApiToken({ tokenOrId }, as(newId()))).rejects.toMatchObject({
        reason: "API_KEY_NOT_FOUND",
      });
    }
    await identity.revokeApiToken({ tokenOrId: apiToken?.id ?? "" }, as(id));
    await expect(identity.verifyApiToken({ token }, nobody())).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  });

  test("a token expires at its time, which must be in the future", async () => {
    await open();
    const id = await createUser();
    const expiring = (ms: number) => ({ description: "ci", expiresAt: timestampFromMs(ms) });
    await expect(identity.createApiToken(expiring(now), as(id))).rejects.toMatchObject({
      reason: "VALIDATION_ERROR",
      violations: [{ field: "expires_at" }],
    });
    const { token } = await identity.createApiToken(expiring(now + 1000), as(id));
    await identity.verifyApiToken({ token }, nobody());
    advance(1000);
    await expect(identity.verifyApiToken({ token }, nobody())).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  });

  test("a token lasts no longer than an operator allows, and as long unless it is made to expire earlier", async () => {
    await open({ SANDGATE_API_TOKEN_MAX_DAYS: "30" });
    const id = await createUser();
    const latest = now + 30 * dayMs;
    const { apiToken } = await identity.createApiToken({ description: "ci" }, as(id));
    expect(apiToken?.expiresAt && timestampDate(apiToken.expiresAt)).toEqual(new Date(latest));
    const expiring = (ms: number) => ({ description: "ci", expiresAt: timestampFromMs(ms) });
    await identity.createApiToken(expiring(latest), as(id));
    await expect(identity.createApiToken(expiring(latest + 1), as(id))).rejects.toMatchObject({
      reason: "VALIDATION_ERROR",
      violations: [{ field: "expires_at", issue: "must be within 30 days, the limit that an operator has set" }],
    });
  });

  test("a token with a role says so, and has no rights of an operator", async () => {
    await open({ SANDGATE_ADMIN_PASSWORD: password });
    const { users } = await identity.batchGetUsers({ usernames: ["admin@localhost"] }, nobody());
    const id = users[0]?.id ?? "";
    const limited = await identity.createApiToken({ description: "ci", role: Role.OWNER }, as(id));
    expect(limited.apiToken?.role).toBe(Role.OWNER);
    expect(await identity.verifyApiToken({ token: limited.token }, nobody())).toMatchObject({
      operator: false,
      role: Role.OWNER,
    });
    const { token } = await identity.createApiToken({ description: "ci" }, as(id));
    expect(await identity.verifyApiToken({ token }, nobody())).toMatchObject({
      operator: true,
      role: Role.UNSPECIFIED,
    });
    const { apiTokens } = await identity.listApiTokens({}, as(id));
    expect(apiTokens.map(({ role }) => role)).toEqual([Role.UNSPECIFIED, Role.OWNER]);
  });

  test("a token that is bound to a workspace has no rights of an operator", async () => {
    await open({ SANDGATE_ADMIN_PASSWORD: password });
    const { users } = await identity.batchGetUsers({ usernames: ["admin@localhost"] }, nobody());
    const id = users[0]?.id ?? "";
    const { token } = await identity.createApiToken({ description: "ci", workspaceId: newId() }, as(id));
    expect(await identity.verifyApiToken({ token }, nobody())).toMatchObject({ operator: false });
  });

  test("the end of a token that is bound to a workspace belongs to it, as its beginning does", async () => {
    await open();
    const [id, workspaceId] = [await createUser(), newId()];
    const heard: string[] = [];
    await bus.consume({
      consumer: "tokens",
      subjects: ["sandgate.identity.api_token.*.v1"],
      async handle({ subject, entityId, workspaceId }) {
        heard.push(`${subject.split(".").at(-2)} ${entityId} ${workspaceId}`);
      },
    });
    const expected: string[] = [];
    for (const bound of [workspaceId, ""]) {
      for (const by of ["token", "id"]) {
        const { apiToken, token } = await identity.createApiToken({ description: "ci", workspaceId: bound }, as(id));
        const tokenId = apiToken?.id ?? "";
        await identity.revokeApiToken({ tokenOrId: by === "id" ? tokenId : token }, as(id));
        expected.push(`created ${tokenId} ${bound}`, `revoked ${tokenId} ${bound}`);
      }
    }
    await until(() => expect(heard.toSorted()).toEqual(expected.toSorted()));
  });

  test("a token has its permissions, in order, wherever it is shown, verified or asked for again", async () => {
    await open();
    const id = await createUser();
    const request = { description: "ci", permissions: [Permission.USE, Permission.READ] };
    const key = { idempotencyKey: "k" };
    const { apiToken, token } = await identity.createApiToken(request, as(id, key));
    const permissions = [Permission.READ, Permission.USE];
    expect(apiToken?.permissions).toEqual(permissions);
    expect((await identity.createApiToken(request, as(id, key))).apiToken?.permissions).toEqual(permissions);
    const verified = await identity.verifyApiToken({ token, heedsPermissions: true }, nobody());
    expect(verified.permissions).toEqual(permissions);
    const unlimited = await identity.createApiToken({ description: "ci" }, as(id));
    expect((await identity.verifyApiToken({ token: unlimited.token }, nobody())).permissions).toEqual([]);
    const { apiTokens } = await identity.listApiTokens({}, as(id));
    expect(apiTokens.map((each) => each.permissions)).toEqual([[], permissions]);
    await identity.revokeApiToken({ tokenOrId: token }, as(id));
    await expect(identity.verifyApiToken({ token, heedsPermissions: true }, nobody())).rejects.toMatchObject({
      reason: "INVALID_TOKEN",
    });
  });

  test("a token with permissions is invalid to a caller that doesn't heed them, as an earlier version", async () => {
    await open();
    const request = { description: "ci", permissions: [Permission.READ] };
    const { token } = await identity.createApiToken(request, as(await createUser()));
    await expect(identity.verifyApiToken({ token }, nobody())).rejects.toMatchObject({ reason: "INVALID_TOKEN" });
  });

  test("a permission that is unknown, unspecified or named twice makes no token", async () => {
    await open();
    for (const permissions of [[Permission.UNSPECIFIED], [5 as Permission], [Permission.READ, Permission.READ]]) {
      await expect(identity.createApiToken({ description: "ci", permissions }, as(newId()))).rejects.toMatchObject({
        reason: "VALIDATION_ERROR",
      });
    }
  });

  test("a workspace must be a UUID", async () => {
    await open();
    const request = { description: "ci", workspaceId: "lab" };
    await expect(identity.createApiToken(request, as(newId()))).rejects.toMatchObject({
      violations: [{ field: "workspace_id" }],
    });
  });

  test("the same Idempotency-Key gets the same token, another request with it a conflict", async () => {
    await open();
    const id = await createUser();
    const request = { description: "ci" };
    const first = await identity.createApiToken(request, as(id, { idempotencyKey: "k" }));
    expect((await identity.createApiToken(request, as(id, { idempotencyKey: "k" }))).token).toBe(first.token);
    await expect(
      identity.createApiToken({ description: "other" }, as(id, { idempotencyKey: "k" })),
    ).rejects.toMatchObject({ reason: "CONFLICT" });
    expect((await identity.listApiTokens({}, as(id))).apiTokens).toHaveLength(1);
  });

  test("a token is made with its mail, however many were refused before", async () => {
    await open({ SANDGATE_USER_MAX_API_TOKENS: "1" });
    const id = await createUser();
    const { apiToken } = await identity.createApiToken({ description: "ci" }, as(id));
    for (let i = 0; i < 10; i++) {
      await expect(identity.createApiToken({ description: "ci" }, as(id))).rejects.toMatchObject({
        reason: "CONFLICT",
      });
    }
    await identity.revokeApiToken({ tokenOrId: apiToken?.id ?? "" }, as(id));
    await identity.createApiToken({ description: "ci" }, as(id));
    const [, ...notices] = await readMails(3);
    for (const { text } of notices) expect(text).toContain("Your Sandgate account has a new API token");
  });

  test("a user has 50 unless set, and a retry of the last one still gets it", async () => {
    await open();
    const id = await createUser();
    const last = { idempotencyKey: "last" };
    for (let had = 0; had < 49; had++) await identity.createApiToken({ description: "ci" }, as(id));
    const { token } = await identity.createApiToken({ description: "last" }, as(id, last));
    const { apiTokens } = await identity.listApiTokens({}, as(id));
    expect(apiTokens).toHaveLength(50);
    await expect(identity.createApiToken({ description: "ci" }, as(id))).rejects.toMatchObject({
      reason: "CONFLICT",
      hint: expect.stringContaining("may have 50 API tokens"),
    });
    expect((await identity.createApiToken({ description: "last" }, as(id, last))).token).toBe(token);
    await identity.revokeApiToken({ tokenOrId: apiTokens[9]?.id ?? "" }, as(id));
    await identity.createApiToken({ description: "ci" }, as(id));
  });

  test("the list comes in pages, newest first", async () => {
    await open();
    const id = await createUser();
    for (const description of ["one", "two", "three"]) await identity.createApiToken({ description }, as(id));
    const first = await identity.listApiTokens({ page: { limit: 2 } }, as(id));
    const rest = await identity.listApiTokens({ page: { limit: 2, cursor: first.nextCursor } }, as(id));
    expect([...first.apiTokens, ...rest.apiTokens].map(({ description }) => description)).toEqual([
      "three",
      "two",
      "one",
    ]);
    expect(rest.nextCursor).toBe("");
    await expect(identity.listApiTokens({ page: { cursor: "x" } }, as(id))).rejects.toMatchObject({
      violations: [{ field: "query.cursor" }],
    });
  });

  test("an API token can't manage API tokens, and only the facade may ask for them", async () => {
    await open();
    await expect(identity.listApiTokens({}, as(newId(), { credential: "api_token" }))).rejects.toMatchObject({
      reason: "FORBIDDEN",
    });
    const workspace = createClient(IdentityService, network.transport("workspace", "identity"));
    await expect(workspace.verifyApiToken({ token: "" }, asService())).rejects.toThrow();
    expect(await workspace.batchGetUsers({ userIds: [newId()] }, asService())).toMatchObject({ users: [] });
  });
});
