import { createHmac } from "node:crypto";
import { DomainError, invalid, messageOf } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import type { Logger } from "@sandgate/kit/base/logging";
import { type PublicReason, toPublicReason } from "@sandgate/kit/base/reasons";
import { addMs } from "@sandgate/kit/base/time";
import type { EventBus } from "@sandgate/kit/events/bus";
import { type Call, userOf } from "@sandgate/kit/rpc/context";
import { isDatabaseUnreachable } from "@sandgate/kit/storage/database-unreachable";
import type { ClientInfo } from "../domain/sessions.ts";
import type { ExternalIdentity, LinkedIdentity, ResolvedUser } from "../domain/single-sign-on.ts";
import { hashSecret, newSecret } from "../domain/tokens.ts";
import { type User, usernameKey } from "../domain/users.ts";
import { signalSessionsEnded, userCreated, userLinked, userUnlinked, userVerified } from "../events.ts";
import { composeProviderLinked, composeProviderUnlinked } from "../mail/texts.ts";
import type { ProviderAccount, SignInSecrets, SsoProvider } from "../sso/provider.ts";
import type { IdentityStore } from "../store/store.ts";
import { registrationClosed } from "./accounts.ts";
import { signInNeeded } from "./confirmation.ts";
import type { MailQueue } from "./mail-queue.ts";
import type { Sessions, SessionTokens } from "./sessions.ts";

/** How long a user may take to sign in at a provider. */
const attemptSeconds = 600;

/** What a browser brings back from a provider. */
interface ProviderResponse {
  provider: string;
  state: string;
  /** The secret in the browser's cookie. */
  browserSecret: string;
  code?: string | undefined;
  iss?: string | undefined;
  error?: string | undefined;
}

/** A sign-in that is under way. */
export interface SsoAttempt {
  authorizationUrl: string;
  state: string;
  browserSecret: string;
  expiresInSeconds: number;
}

/**
 * Where the browser goes in the end, and with what: a result, or a failure that is reported to the application there.
 */
export type SsoOutcome<T> =
  | { redirectUri: string; result: T }
  | { redirectUri: string; failure: PublicReason; hint: string | undefined };

/**
 * How users sign in by a provider, and which accounts there are theirs. `start` and `finish` throw NOT_FOUND for a
 * provider that isn't set up.
 */
export interface SingleSignOn {
  /** The names of the providers that are set up. */
  readonly providers: readonly string[];
  /**
   * The first of the configured addresses is the default. Throws VALIDATION_ERROR for an address that isn't one of
   * them.
   */
  start(provider: string, redirectUri: string | undefined, call: Call): Promise<SsoOutcome<SsoAttempt>>;
  /** Throws INVALID_TOKEN for a state that is unknown, used or expired, or that another browser has. */
  finish(response: ProviderResponse, client: ClientInfo, call: Call): Promise<SsoOutcome<SessionTokens>>;
  /** The accounts at providers that sign in to the user's, the newest link first. */
  list(userId: string): Promise<LinkedIdentity[]>;
  /**
   * Removes a link of the caller, and ends the caller's other sessions. Throws NOT_FOUND for no such link, CONFLICT for
   * the last way to sign in.
   */
  unlink(call: Call, id: string): Promise<void>;
}

export function createSingleSignOn(o: {
  providers: ReadonlyMap<string, SsoProvider>;
  store: IdentityStore;
  sessions: Sessions;
  bus: EventBus;
  mails: MailQueue;
  logger: Logger;
  publicUrl: string;
  redirectUris: readonly string[];
  registration: "open" | "closed";
  now: () => Date;
}): SingleSignOn {
  const { store, sessions, bus, mails, logger, publicUrl, now } = o;

  function providerOf(name: string): SsoProvider {
    const provider = o.providers.get(name);
    if (provider) return provider;
    throw new DomainError("NOT_FOUND", "This server has no such single sign-on provider.", {
      hint: "Sign in with a password, or ask an operator of this server which providers are set up.",
    });
  }

  const callbackUrlOf = (provider: string) => `${publicUrl}/auth/sso/${provider}/callback`;

  /** Runs the work. The browser goes to the application afterwards, whether it succeeds or fails. */
  async function settle<T>(
    about: { provider: string; redirectUri: string },
    { requestId }: Call,
    work: () => Promise<T>,
  ): Promise<SsoOutcome<T>> {
    const { provider, redirectUri } = about;
    try {
      return { redirectUri, result: await work() };
    } catch (error) {
      const failure = failureOf(error);
      const entry = { request_id: requestId, provider, reason: failure };
      if (failure === "INTERNAL_ERROR") logger.error({ ...entry, err: error }, "single sign-on failed");
      else if (failure === "UPSTREAM_ERROR" || failure === "INVALID_TOKEN") {
        logger.warn({ ...entry, failure: messageOf(error) }, "single sign-on failed");
      }
      return { redirectUri, failure, hint: error instanceof DomainError ? error.hint : undefined };
    }
  }

  /** Links an account at a provider to a user, unless it is linked. */
  async function resolve(
    identity: ExternalIdentity,
    { address }: ClientInfo,
    call: Call,
  ): Promise<Exclude<ResolvedUser, "changed">> {
    const { issuer, name } = identity;
    const eventsOf = (id: string, isVerified: boolean) => [
      ...(isVerified ? [] : [userVerified(call, id)]),
      userLinked(call, id, issuer),
    ];
    const id = newId();
    const created =
      o.registration === "open" ? { id, events: [userCreated(call, id), ...eventsOf(id, false)] } : undefined;
    for (;;) {
      const user = name && (await store.users.findAccount({ usernameKey: name.usernameKey }))?.user;
      const holder = user && {
        id: user.id,
        events: eventsOf(user.id, user.verified),
        noticeMail: mails.seal(composeProviderLinked({ to: user.username, issuer, publicUrl })),
      };
      const resolved = await store.singleSignOn.resolveUser(identity, { created, holder, address }, now());
      if (resolved !== "changed") return resolved;
    }
  }

  /** The user of an account at a provider. */
  async function resolveUser(
    provider: string,
    { issuer, subject, email, emailVerified: verified }: ProviderAccount,
    client: ClientInfo,
    call: Call,
  ): Promise<User> {
    const name = email === undefined ? undefined : { username: email, usernameKey: usernameKey(email) };
    const resolved = await resolve({ issuer, subject, provider, name, verified }, client, call);
    if (resolved === "email_not_verified") {
      throw new DomainError("EMAIL_NOT_VERIFIED", "The provider has not verified the account's e-mail address.", {
        hint: "Confirm the address at the provider, then sign in again.",
      });
    }
    if (resolved === "sign_in_needed") {
      throw signInNeeded("Sign in with your password on this network, then with the provider within 5 minutes.");
    }
    if (resolved === "unknown") throw registrationClosed();
    signalSessionsEnded(bus, resolved.endedSessionIds);
    mails.wake();
    const [user] = await store.users.find([resolved.userId], []);
    if (!user) throw new DomainError("INVALID_TOKEN", "The account has been deleted in the meantime.");
    return user;
  }

  // The dashboard is an application of every installation.
  const redirectUris = [...o.redirectUris, `${publicUrl}/dashboard/sign-in`];

  return {
    providers: [...o.providers.keys()],

    async start(name, given, call) {
      const provider = providerOf(name);
      const redirectUri = given === undefined ? redirectUris[0] : redirectUris.find((uri) => uri === given);
      if (redirectUri === undefined) {
        throw invalid("redirect_uri", "must exactly match one of the addresses that an operator has set");
      }
      return settle({ provider: name, redirectUri }, call, async () => {
        const state = newSecret();
        const browserSecret = newSecret();
        const url = await provider.authorizationUrl(callbackUrlOf(name), secretsOf(state, browserSecret));
        await store.singleSignOn.addAttempt({
          stateHash: hashSecret(state),
          browserHash: hashSecret(browserSecret),
          provider: name,
          redirectUri,
          expiresAt: addMs(now(), attemptSeconds * 1000),
        });
        return { authorizationUrl: url.href, state, browserSecret, expiresInSeconds: attemptSeconds };
      });
    },

    async finish({ provider: name, state, browserSecret, code, iss, error }, client, call) {
      const provider = providerOf(name);
      const hashes = { stateHash: hashSecret(state), browserHash: hashSecret(browserSecret) };
      const attempt = await store.singleSignOn.takeAttempt({ ...hashes, provider: name }, now());
      if (!attempt) {
        throw new DomainError("INVALID_TOKEN", "This sign-in is unknown, already finished or expired.", {
          hint: "Start again in the same browser.",
        });
      }
      return settle({ provider: name, redirectUri: attempt.redirectUri }, call, async () => {
        const response = new URL(callbackUrlOf(name));
        for (const [key, value] of Object.entries({ state, code, iss, error })) {
          if (value !== undefined) response.searchParams.set(key, value);
        }
        const account = await provider.identify(response, secretsOf(state, browserSecret));
        return sessions.signInByProvider(await resolveUser(name, account, client, call), account, client, call);
      });
    },

    list: (userId) => store.singleSignOn.list(userId),

    async unlink(call, id) {
      const { id: userId, credentialId: keptSessionId } = userOf(call);
      const link = (await store.singleSignOn.list(userId)).find((each) => each.id === id);
      const [user] = link ? await store.users.find([userId], []) : [];
      if (!link || !user) throw unknownIdentity();
      const { issuer, provider, username } = link;
      const noticeMail = mails.seal(composeProviderUnlinked({ to: user.username, provider, username, publicUrl }));
      const change = { noticeMail, events: [userUnlinked(call, userId, issuer)] };
      const unlinked = await store.singleSignOn.unlink({ userId, id, keptSessionId }, change, now());
      if (unlinked === "unknown") throw unknownIdentity();
      if (unlinked === "last") {
        throw new DomainError("CONFLICT", "This is the only way to sign in to your account.", {
          hint: "Set a password first: POST /auth/password/forgot mails a link.",
        });
      }
      signalSessionsEnded(bus, unlinked);
      mails.wake();
    },
  };
}

function unknownIdentity(): DomainError {
  return new DomainError("NOT_FOUND", "You have no such link.", { hint: "Check the id against GET /auth/identities." });
}

/** The reason that is reported to the application for an error: the same that a caller of the service would get. */
export function failureOf(error: unknown): PublicReason {
  if (isDatabaseUnreachable(error)) return "UPSTREAM_ERROR";
  return error instanceof DomainError ? toPublicReason(error.reason) : "INTERNAL_ERROR";
}

/**
 * The secrets that recognize the provider's response. They are derived from the one in the browser's cookie (as OpenID
 * Connect Core, 15.5.2, suggests for the nonce), so that the database needs none.
 */
function secretsOf(state: string, browserSecret: string): SignInSecrets {
  const derive = (use: string) => createHmac("sha256", browserSecret).update(use).digest("base64url");
  return { state, nonce: derive("nonce"), codeVerifier: derive("code verifier") };
}
