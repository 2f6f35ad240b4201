import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import type { Cursor } from "@sandgate/kit/base/page";
import { addMs } from "@sandgate/kit/base/time";
import type { EventBus } from "@sandgate/kit/events/bus";
import { type Call, type UserCaller, userOf } from "@sandgate/kit/rpc/context";
import { type OperatorSecondFactor, operatorRights } from "../domain/operator-rights.ts";
import {
  accessTokenSeconds,
  type ClientInfo,
  endedSessionMs,
  type NewSession,
  refreshTokenExpiry,
  refreshTokenSeconds,
  type Session,
  sessionSeconds,
  successorOf,
} from "../domain/sessions.ts";
import { hashSecret, newSecret } from "../domain/tokens.ts";
import { type User, usernameKey } from "../domain/users.ts";
import { sessionEnded, signalSessionsEnded, userSessionsEnded, userSignedIn } from "../events.ts";
import type { PasswordHasher } from "../passwords/hasher.ts";
import type { IdentityStore } from "../store/store.ts";
import type { SecondFactors } from "./second-factors.ts";
import type { SignInAttempts } from "./sign-in-attempts.ts";
import type { SigningKeys } from "./signing-keys.ts";

export interface SessionTokens {
  accessToken: string;
  refreshToken: string;
  expiresInSeconds: number;
  refreshExpiresInSeconds: number;
}

/** How sessions begin, continue and end. */
export interface Sessions {
  /**
   * Throws INVALID_CREDENTIALS and RATE_LIMITED. Only for the right password it throws EMAIL_NOT_VERIFIED, FORBIDDEN
   * (disabled), or what `SecondFactors.check` throws.
   */
  signIn(
    request: { username: string; password: string; otp: string | undefined },
    client: ClientInfo,
    call: Call,
  ): Promise<SessionTokens>;
  /**
   * Starts a session of a user whom a provider of single sign-on has identified, which never counts as a second factor.
   * Throws FORBIDDEN (disabled), or INVALID_TOKEN when the link to that account was removed meanwhile.
   */
  signInByProvider(
    user: User,
    identity: NewSession["identity"],
    client: ClientInfo,
    call: Call,
  ): Promise<SessionTokens>;
  /** Throws INVALID_TOKEN. */
  refresh(refreshToken: string, client: ClientInfo, call: Call): Promise<SessionTokens>;
  signOut(refreshToken: string, call: Call): Promise<void>;
  /** How long the caller's session still lives, in milliseconds. Throws INVALID_TOKEN once it has ended or expired. */
  expiresInMs(caller: UserCaller): Promise<number>;
  /** Ends a session of the caller. Throws NOT_FOUND when the caller has no such live session. */
  end(call: Call, sessionId: string): Promise<void>;
  /** Up to `limit` live sessions of the user after `before`, newest first. */
  list(userId: string, limit: number, before: Cursor | undefined): Promise<Session[]>;
  /** Ends all sessions of the caller but the one of the call. */
  endOthers(call: Call): Promise<void>;
  /** The ended sessions whose access tokens may not have expired yet. */
  listEnded(): Promise<string[]>;
}

export function createSessions(o: {
  store: IdentityStore;
  hasher: PasswordHasher;
  /** Hashes for sign-ins from an account's own networks, so that sign-ins from elsewhere can't keep them waiting. */
  ownNetworksHasher: PasswordHasher;
  attempts: SignInAttempts;
  secondFactors: Pick<SecondFactors, "check">;
  operatorSecondFactor: OperatorSecondFactor;
  keys: SigningKeys;
  bus: EventBus;
  now: () => Date;
}): Sessions {
  const { store, attempts, secondFactors, keys, bus, now } = o;

  /** Undefined when the user was disabled or deleted meanwhile, or what signs in was replaced or removed. */
  async function start(
    user: User,
    by: Pick<NewSession, "passwordHash" | "identity" | "secondFactor">,
    client: ClientInfo,
    call: Call,
  ): Promise<SessionTokens | undefined> {
    const { signAccessToken } = await keys.current();
    const createdAt = now();
    const id = newId();
    const expiresAt = addMs(createdAt, sessionSeconds * 1000);
    const refreshToken = newSecret();
    const started = await store.sessions.create({
      id,
      userId: user.id,
      ...by,
      client,
      createdAt,
      expiresAt,
      refreshTokenHash: hashSecret(refreshToken),
      refreshTokenExpiresAt: refreshTokenExpiry({ expiresAt }, createdAt),
      events: [userSignedIn(call, user.id, id)],
    });
    if (!started) return undefined;
    await attempts.remember(user.id, client.address);
    return {
      accessToken: await signAccessToken({
        userId: user.id,
        sessionId: id,
        ...operatorRights(user, by.secondFactor ?? false, o.operatorSecondFactor),
      }),
      refreshToken,
      expiresInSeconds: accessTokenSeconds,
      refreshExpiresInSeconds: refreshTokenSeconds,
    };
  }

  return {
    async signIn({ username, password, otp }, client, call) {
      const name = usernameKey(username);
      const found = await store.users.findAccount({ usernameKey: name });
      const attempt = { usernameKey: name, userId: found?.user.id, address: client.address };
      const { fromOwnNetwork } = await attempts.admit(attempt);
      const hasher = fromOwnNetwork ? o.ownNetworksHasher : o.hasher;
      const right = await hasher.verify(password, found?.passwordHash);
      if (!found || found.passwordHash === undefined || !right) throw wrongCredentials();
      const { user, passwordHash } = found;
      if (user.disabled) throw disabledAccount();
      if (!user.verified) {
        throw new DomainError("EMAIL_NOT_VERIFIED", "The e-mail address has not been verified yet.", {
          hint: "Follow the link in the mail, or request another with POST /auth/resend-verification.",
        });
      }
      const secondFactor = await secondFactors.check(user, otp, call);
      const tokens = await start(user, { passwordHash, secondFactor }, client, call);
      if (!tokens) throw wrongCredentials();
      return tokens;
    },

    async signInByProvider(user, identity, client, call) {
      if (user.disabled) throw disabledAccount();
      const tokens = await start(user, { passwordHash: undefined, identity }, client, call);
      if (!tokens) throw new DomainError("INVALID_TOKEN", "The account was closed, or this way to sign in removed.");
      return tokens;
    },

    async refresh(presented, client, call) {
      const presentedHash = hashSecret(presented);
      const found = await store.refreshTokens.findSession(presentedHash);
      if (!found) throw badRefreshToken();
      const { sessionId, userId } = found;
      const { refreshKeys, signAccessToken } = await keys.current();
      const presentedAt = now();
      const eventsOfReuse = [sessionEnded(call, sessionId, userId)];
      // A retry may need a successor that an older key derived. The newest key finds such a token bad.
      for (const key of refreshKeys) {
        const successor = successorOf(presented, sessionId, key);
        const refreshed = await store.refreshTokens.rotate(
          { presentedHash, successorHash: hashSecret(successor), client, eventsOfReuse },
          presentedAt,
        );
        if (refreshed.outcome === "reused") {
          signalSessionsEnded(bus, [refreshed.sessionId]);
          break;
        }
        if (refreshed.outcome === "refreshed") {
          const rights = operatorRights(refreshed, refreshed.secondFactor, o.operatorSecondFactor);
          return {
            accessToken: await signAccessToken({ ...refreshed, ...rights }),
            refreshToken: successor,
            expiresInSeconds: accessTokenSeconds,
            refreshExpiresInSeconds: secondsBetween(presentedAt, refreshed.refreshTokenExpiresAt),
          };
        }
      }
      throw badRefreshToken();
    },

    async signOut(refreshToken, call) {
      const tokenHash = hashSecret(refreshToken);
      const found = await store.refreshTokens.findSession(tokenHash);
      if (!found) return;
      const { sessionId, userId } = found;
      const user = { id: userId, credential: "session" as const, credentialId: sessionId };
      const ended = await store.refreshTokens.endSession(tokenHash, now(), [
        sessionEnded({ ...call, user }, sessionId, userId),
      ]);
      if (ended !== undefined) signalSessionsEnded(bus, [ended]);
    },

    async expiresInMs({ id, credentialId }) {
      const at = now();
      const session = await store.sessions.find(id, credentialId, at);
      if (!session) throw new DomainError("INVALID_TOKEN", "The session has ended.", { hint: "Sign in again." });
      return session.idleAt.getTime() - at.getTime();
    },

    async end(call, sessionId) {
      const { id: userId } = userOf(call);
      if (!(await store.sessions.end(userId, sessionId, now(), [sessionEnded(call, sessionId, userId)]))) {
        throw new DomainError("NOT_FOUND", "You have no such session.", {
          hint: "Check the id against GET /auth/sessions. The session may have ended.",
        });
      }
      signalSessionsEnded(bus, [sessionId]);
    },

    async endOthers(call) {
      const { id, credentialId } = userOf(call);
      const events = [userSessionsEnded(call, id)];
      signalSessionsEnded(bus, await store.sessions.endOthers(id, credentialId, now(), events));
    },

    list: (userId, limit, before) => store.sessions.list(userId, limit, before, now()),

    listEnded: () => store.sessions.listEndedSince(addMs(now(), -endedSessionMs)),
  };
}

function secondsBetween(from: Date, to: Date): number {
  return Math.max(0, Math.floor((to.getTime() - from.getTime()) / 1000));
}

function wrongCredentials(): DomainError {
  return new DomainError("INVALID_CREDENTIALS", "The user name or password is wrong.");
}

function disabledAccount(): DomainError {
  return new DomainError("FORBIDDEN", "This account has been disabled.", {
    hint: "Ask an operator of this server to enable it.",
  });
}

function badRefreshToken(): DomainError {
  return new DomainError("INVALID_TOKEN", "The refresh token is invalid, has already been used or has expired.", {
    hint: "Sign in again.",
  });
}
