import { join } from "node:path";
import { create, toBinary } from "@bufbuild/protobuf";
import { timestampFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import { callOf, userOf } from "@sandgate/kit/context";
import { DomainError, invalid } from "@sandgate/kit/errors";
import { answerOnce } from "@sandgate/kit/idempotency";
import { isUuid, newId } from "@sandgate/kit/ids";
import { decodeCursor, pageLimit, toPage } from "@sandgate/kit/page";
import { startRelay } from "@sandgate/kit/relay";
import { type Repetition, repeat } from "@sandgate/kit/repeat";
import type { RunningService, ServiceEnvironment } from "@sandgate/kit/service";
import { choice, defineSettings, readSettings, SettingsError, secret, text } from "@sandgate/kit/settings";
import {
  type ApiToken as ApiTokenMessage,
  ApiTokenSchema,
  CreateApiTokenRequestSchema,
  CreateApiTokenResponseSchema,
  IdentityService,
} from "@sandgate/proto/identity/v1/identity";
import { createAccounts } from "./accounts.ts";
import { type ApiToken, createUseLog, hintOf, isApiToken, isExpired, newApiToken } from "./api-tokens.ts";
import { apiTokenRevoked, signalApiTokenRevoked } from "./events.ts";
import { createFileTransport, createMailQueue, createSmtpTransport } from "./mail.ts";
import { createPasswordHasher } from "./passwords.ts";
import { cutoffsAt } from "./retention.ts";
import { createSessions } from "./sign-in.ts";
import { openSigningKeys } from "./signing-keys.ts";
import { openSqliteStore } from "./store.sqlite.ts";
import { hashSecret } from "./tokens.ts";
import { DEFAULT_OPERATOR_USERNAME, PASSWORD_LENGTH, type User, usernameKey } from "./users.ts";

export const identitySettings = defineSettings({
  data: text("SANDGATE_DATA", { default: "./data", doc: "Folder of this machine's data; mails are written under it." }),
  publicUrl: text("SANDGATE_PUBLIC_URL", {
    default: "http://127.0.0.1:8080",
    doc: "Address under which clients reach the API; the base of links in mails and the issuer of session tokens.",
  }),
  registration: choice("SANDGATE_REGISTRATION", ["open", "closed"], {
    default: "open",
    doc: "Whether anybody may register an account.",
  }),
  smtpUrl: secret("SANDGATE_SMTP_URL", {
    optional: true,
    doc: "SMTP server for mails (smtp[s]://user:password@host:port). Without it each mail is written to a file.",
  }),
  mailFrom: text("SANDGATE_MAIL_FROM", { default: "Sandgate <sandgate@localhost>", doc: "Sender of mails." }),
  adminUsername: text("SANDGATE_ADMIN_USERNAME", {
    default: DEFAULT_OPERATOR_USERNAME,
    doc: "User name of the operator account that the first start creates.",
  }),
  adminPassword: secret("SANDGATE_ADMIN_PASSWORD", {
    optional: true,
    doc: "Password of that account. Without it a random one is made and shown once.",
  }),
});

/** The audience of session tokens: every facade of the installation. */
const AUDIENCE = "sandgate";

const MAINTENANCE_EVERY_MS = 60_000;
const SWEEP_EVERY_MS = 10 * 60_000;
const USES_STORED_EVERY_MS = 10_000;
/** Rows of a kind that one sweep's transaction deletes, so that none holds the writer for long. */
const SWEEP_SLICE = 200;

export interface IdentityRunning extends RunningService {
  /** The operator account that this start created with a password of its own making, to be shown once. */
  firstStart?: { username: string; password: string };
}

/** Opens the service; `now` is the clock of every time-dependent rule. */
export async function openIdentityService(
  environment: ServiceEnvironment,
  now: () => number = Date.now,
): Promise<IdentityRunning> {
  const { bus, keyring, logger } = environment;
  const settings = readSettings(identitySettings, environment.env);
  const publicUrl = parsePublicUrl(settings.publicUrl);
  checkSmtpUrl(settings.smtpUrl);
  checkAdminPassword(settings.adminPassword);

  const { database, store } = await openSqliteStore({ file: environment.database.file, logger });
  const hasher = createPasswordHasher();
  const keys = await openSigningKeys({ store, keyring, issuer: publicUrl, audience: AUDIENCE, now });
  const from = settings.mailFrom;
  const transport =
    settings.smtpUrl === undefined
      ? createFileTransport({ folder: join(settings.data, "mail"), from, logger })
      : createSmtpTransport({ url: settings.smtpUrl, from });
  const mails = createMailQueue({ store, keyring, transport, logger, now });
  const accounts = createAccounts({ store, hasher, mails, publicUrl, registration: settings.registration, now });
  const sessions = createSessions({ store, hasher, keys, bus, now });
  const uses = createUseLog();
  const inBackground = new Set<Promise<void>>();
  const repetitions: Repetition[] = [];
  let relay: { stop(): Promise<void> } | undefined;

  async function storeUses(): Promise<void> {
    const noted = uses.take();
    if (noted.length > 0) await store.noteApiTokenUses(noted);
  }

  async function sweep(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (await store.sweep(cutoffsAt(now()), SWEEP_SLICE)) >= SWEEP_SLICE);
  }

  /** Runs what the answer must not wait for, since its time would tell something. */
  function runInBackground(what: string, task: () => Promise<void>): void {
    const run = task()
      .catch((error: unknown) => logger.error({ err: error }, `failed to ${what}`))
      .finally(() => inBackground.delete(run));
    inBackground.add(run);
  }

  const handlers: ServiceImpl<typeof IdentityService> = {
    async register(request, context) {
      await accounts.register(request, callOf(context));
      return {};
    },
    async verifyEmail({ token }) {
      await accounts.verifyEmail(token);
      return {};
    },
    resendVerification({ username }) {
      runInBackground("renew a verification", () => accounts.resendVerification(username));
      return {};
    },

    async signIn({ username, password }) {
      return { tokens: await sessions.signIn(username, password) };
    },
    async refreshSession({ refreshToken }) {
      return { tokens: await sessions.refresh(refreshToken) };
    },
    async signOut({ refreshToken }) {
      await sessions.signOut(refreshToken);
      return {};
    },

    createApiToken(request, context) {
      const call = callOf(context);
      const user = userOf(call);
      return answerOnce({
        call,
        rpc: "CreateApiToken",
        request: toBinary(CreateApiTokenRequestSchema, request),
        schema: CreateApiTokenResponseSchema,
        keyring,
        answers: database.answers,
        async work(claimFor) {
          const createdAt = now();
          const token = newApiToken();
          const record: ApiToken = {
            id: newId(createdAt),
            userId: user.id,
            description: request.description,
            hint: hintOf(token),
            workspaceId: parseWorkspaceId(request.workspaceId),
            expiresAt: request.expiresAt && timestampMs(request.expiresAt),
            createdAt,
            lastUsedAt: undefined,
          };
          if (isExpired(record, createdAt)) throw invalid("expires_at", "must be in the future");
          const response = create(CreateApiTokenResponseSchema, { apiToken: toApiToken(record), token });
          await store.createApiToken({ ...record, tokenHash: hashSecret(token) }, await claimFor(response));
          return response;
        },
      });
    },
    async listApiTokens({ page }, context) {
      const user = userOf(callOf(context));
      await storeUses();
      const limit = pageLimit(page?.limit);
      const tokens = await store.listApiTokens(user.id, limit + 1, decodeCursor(page?.cursor ?? ""));
      const { rows, nextCursor } = toPage(tokens, limit, (token) => token);
      return { apiTokens: rows.map(toApiToken), nextCursor };
    },
    async revokeApiToken({ tokenOrId }, context) {
      const call = callOf(context);
      const user = userOf(call);
      const id = isApiToken(tokenOrId) ? (await store.findApiToken(hashSecret(tokenOrId)))?.id : tokenOrId;
      if (id === undefined || !(await store.revokeApiToken(user.id, id, [apiTokenRevoked(id, user.id, call)]))) {
        throw new DomainError("API_KEY_NOT_FOUND", "You have no such API token.");
      }
      signalApiTokenRevoked(bus, id);
      return {};
    },
    async verifyApiToken({ token }) {
      const found = isApiToken(token) ? await store.findApiToken(hashSecret(token)) : undefined;
      if (!found || isExpired(found, now())) {
        throw new DomainError("INVALID_TOKEN", "The API token is unknown, was revoked or has expired.");
      }
      uses.note(found, now());
      return {
        tokenId: found.id,
        userId: found.userId,
        operator: found.operator,
        ...(found.workspaceId !== undefined && { workspaceId: found.workspaceId }),
        ...(found.expiresAt !== undefined && { expiresAt: timestampFromMs(found.expiresAt) }),
      };
    },

    async batchGetUsers({ userIds, usernames }) {
      const users = await store.findUsers(userIds, usernames.map(usernameKey));
      return { users: users.map(toUser) };
    },
    async getSigningKeys() {
      const [jwks, endedSessionIds] = await Promise.all([keys.publicJwks(), sessions.listEnded()]);
      return { jwks: JSON.stringify(jwks), endedSessionIds, issuer: publicUrl, audience: AUDIENCE };
    },
  };

  const operator = await accounts.createFirstOperator(settings.adminUsername, settings.adminPassword);

  return {
    ...(operator &&
      settings.adminPassword === undefined && {
        firstStart: { username: settings.adminUsername, password: operator.password },
      }),
    routes: (router) => {
      router.service(IdentityService, handlers);
    },
    async start() {
      relay = startRelay({ outbox: database.outbox, bus, logger, metrics: environment.metrics });
      mails.start();
      repetitions.push(
        repeat({ what: "maintain the signing keys", everyMs: MAINTENANCE_EVERY_MS, logger, work: keys.maintain }),
        repeat({ what: "sweep what has expired", everyMs: SWEEP_EVERY_MS, logger, work: sweep }),
        repeat({ what: "store when API tokens were used", everyMs: USES_STORED_EVERY_MS, logger, work: storeUses }),
      );
    },
    async dependencies() {
      await store.hasOperator();
      return { database: "ok", mail: mails.state() };
    },
    async drain() {
      await Promise.all(repetitions.map((repetition) => repetition.stop()));
      await Promise.all(inBackground);
      await mails.stop();
      await relay?.stop();
    },
    async close() {
      await Promise.all(inBackground);
      await storeUses();
      await database.close();
    },
  };
}

/** The address in its normal form, without a slash at its end. */
function parsePublicUrl(text: string): string {
  const url = URL.parse(text);
  if (url?.protocol === "http:" || url?.protocol === "https:") return url.href.replace(/\/+$/, "");
  throw new SettingsError([`${identitySettings.publicUrl.name} must be an http or https address, not "${text}"`]);
}

function checkSmtpUrl(text: string | undefined): void {
  if (text === undefined || ["smtp:", "smtps:"].includes(URL.parse(text)?.protocol ?? "")) return;
  throw new SettingsError([`${identitySettings.smtpUrl.name} must be an smtp or smtps address`]);
}

function checkAdminPassword(password: string | undefined): void {
  const { min, max } = PASSWORD_LENGTH;
  if (password === undefined || (password.length >= min && password.length <= max)) return;
  throw new SettingsError([`${identitySettings.adminPassword.name} must have ${min} to ${max} characters`]);
}

/** Empty: not bound to a workspace. Whether the user is a member is the facade's to check. */
function parseWorkspaceId(given: string): string | undefined {
  if (given === "") return undefined;
  const id = given.toLowerCase();
  if (!isUuid(id)) throw invalid("workspace_id", "must be a UUID");
  return id;
}

function toUser({ id, username, verified, operator, createdAt }: User) {
  return { id, username, verified, operator, createdAt: timestampFromMs(createdAt) };
}

function toApiToken(token: ApiToken): ApiTokenMessage {
  return create(ApiTokenSchema, {
    id: token.id,
    description: token.description,
    tokenHint: token.hint,
    workspaceId: token.workspaceId ?? "",
    createdAt: timestampFromMs(token.createdAt),
    ...(token.expiresAt !== undefined && { expiresAt: timestampFromMs(token.expiresAt) }),
    ...(token.lastUsedAt !== undefined && { lastUsedAt: timestampFromMs(token.lastUsedAt) }),
  });
}
