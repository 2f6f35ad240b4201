import { newId } from "@sandgate/kit/base/ids";
import { addMs, dayMs, minuteMs } from "@sandgate/kit/base/time";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import { Role } from "@sandgate/proto/common/v1/access";
import type { NewApiToken } from "../domain/api-tokens.ts";
import type { Registration } from "../domain/registrations.ts";
import type { NewSecondFactor } from "../domain/second-factors.ts";
import { type NewSession, type Refreshed, refreshTokenSeconds, sessionSeconds } from "../domain/sessions.ts";
import { hashSecret } from "../domain/tokens.ts";
import { type FirstOperator, usernameKey } from "../domain/users.ts";
import type { IdentityStore } from "./store.ts";

/** In the far future: MongoDB removes what has expired by its own clock. */
export const at = (ms: number) => new Date(Date.UTC(2100, 0, 1) + ms);

export const event = (subject: string): StagedEvent => ({ id: newId(), subject, bytes: new Uint8Array([1]) });
export const mail = (text: string) => ({ id: newId(), sealed: new Uint8Array(Buffer.from(text)) });
export const otherClient = { address: "2001:db8::1", userAgent: "Firefox" };

export function registration(username: string, more: Partial<Registration> & { link?: string } = {}): Registration {
  const { link = newId(), createdAt = at(0), ...others } = more;
  return {
    id: newId(),
    username,
    usernameKey: usernameKey(username),
    passwordHash: "hash",
    createdAt,
    mails: {
      verification: { tokenHash: hashSecret(link), expiresAt: addMs(createdAt, dayMs), mail: mail("verify") },
      notice: mail("notice"),
    },
    events: [event("created")],
    ...others,
  };
}

export function firstOperator(username: string, events: readonly StagedEvent[] = []): FirstOperator {
  const createdAt = at(0);
  const name = { username, usernameKey: usernameKey(username) };
  return {
    user: { id: newId(), ...name, passwordHash: "hash", verifiedAt: createdAt, operator: true, createdAt },
    events,
  };
}

export function session(userId: string, token: string, more: Partial<NewSession> = {}): NewSession {
  return {
    id: newId(),
    userId,
    passwordHash: "hash",
    client: { address: "192.0.2.1", userAgent: "curl" },
    createdAt: at(0),
    expiresAt: at(sessionSeconds * 1000),
    refreshTokenHash: hashSecret(token),
    refreshTokenExpiresAt: at(refreshTokenSeconds * 1000),
    events: [],
    ...more,
  };
}

export function apiToken(userId: string, token: string, more: Partial<NewApiToken> = {}): NewApiToken {
  return {
    id: newId(),
    userId,
    description: "ci",
    hint: "sgt_abcd",
    workspaceId: undefined,
    role: Role.UNSPECIFIED,
    permissions: undefined,
    expiresAt: undefined,
    createdAt: at(0),
    tokenHash: hashSecret(token),
    sessionId: newId(),
    notice: undefined,
    ...more,
  };
}

export async function createUser(store: IdentityStore, username = "ann@example.com"): Promise<string> {
  const link = newId();
  const user = registration(username, { link });
  await store.registrations.register(user);
  await store.registrations.verify(hashSecret(link), "hash", at(0), []);
  return user.id;
}

export async function startSession(
  store: IdentityStore,
  userId: string,
  token: string,
  more?: Partial<NewSession>,
): Promise<NewSession> {
  const started = session(userId, token, more);
  await store.sessions.create(started);
  return started;
}

export function rotate(
  store: IdentityStore,
  token: string,
  successor: string,
  now: Date,
  eventsOfReuse: readonly StagedEvent[] = [],
): Promise<Refreshed> {
  const hashes = { presentedHash: hashSecret(token), successorHash: hashSecret(successor) };
  return store.refreshTokens.rotate({ ...hashes, client: otherClient, eventsOfReuse }, now);
}

export async function takeMails(store: IdentityStore, now: Date): Promise<string[]> {
  const taken = await store.mails.takeDue(now, addMs(now, 60_000), 100);
  return taken.map(({ sealed }) => Buffer.from(sealed).toString());
}

export async function subjectsOf(store: IdentityStore): Promise<string[]> {
  return (await store.outbox.unsent(100)).map(({ subject }) => subject);
}

/** A user whom nothing was mailed or published about. */
export async function createProviderUser(store: IdentityStore): Promise<string> {
  const id = newId();
  const name = { username: `${id}@example.com`, usernameKey: `${id}@example.com` };
  const identity = { issuer: "https://issuer.test", subject: id, provider: "google", name, verified: true };
  const first = { created: { id, events: [] }, holder: undefined, address: "" };
  await store.singleSignOn.resolveUser(identity, first, at(0));
  return id;
}

export const recoveryCodes = ["one", "two", "three"];
export const secondFactorStep = 100;
export const secondFactorExpiry = at(10 * minuteMs);
export const sealedSecret = (text: string) => new Uint8Array(Buffer.from(text));

export function pendingSecondFactor(userId: string, secret = "secret"): NewSecondFactor {
  return { id: newId(), userId, sealed: sealedSecret(secret), expiresAt: secondFactorExpiry };
}

/** Returns the id of the second factor. */
export async function enableSecondFactor(store: IdentityStore, userId: string): Promise<string> {
  const { id, ...factor } = pendingSecondFactor(userId);
  await store.secondFactors.add({ id, ...factor });
  const recoveryCodeHashes = recoveryCodes.map(hashSecret);
  const notice = { noticeMail: mail("enabled"), events: [] };
  await store.secondFactors.enable({ id, userId, step: secondFactorStep, recoveryCodeHashes, ...notice }, at(0));
  return id;
}
