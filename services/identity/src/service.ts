import { join } from "node:path";
import { stateOf } from "@sandgate/kit/base/dependencies";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { SettingsError } from "@sandgate/kit/base/settings";
import type { Commands } from "@sandgate/kit/process/admin.commands";
import { defineService, type ServiceContext, type ServiceParts } from "@sandgate/kit/process/service";
import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { consumeEvents } from "./consumers.ts";
import { usernameKey } from "./domain/users.ts";
import { createAccountHandlers } from "./handlers/accounts.ts";
import { createApiTokenHandlers } from "./handlers/api-tokens.ts";
import { createLimitHandlers } from "./handlers/limits.ts";
import { createSecondFactorHandlers } from "./handlers/second-factors.ts";
import { createSessionHandlers } from "./handlers/sessions.ts";
import { createUserHandlers } from "./handlers/users.ts";
import { createFileTransport, sweepMailFiles } from "./mail/transports.ts";
import { createPasswordHasher } from "./passwords/hasher.ts";
import { createPasswordStrength } from "./passwords/strength.ts";
import {
  type IdentitySettings,
  identitySettings,
  mailLimits,
  parseIdentitySettings,
  recaptchaSettings,
} from "./settings.ts";
import type { SsoProvider } from "./sso/provider.ts";
import { parseSsoSettings } from "./sso/settings.ts";
import type { IdentityStore } from "./store/store.ts";
import { createAccounts } from "./usecases/accounts.ts";
import { createApiTokens } from "./usecases/api-tokens.ts";
import { createMailBudgets } from "./usecases/mail-budgets.ts";
import { createMailQueue } from "./usecases/mail-queue.ts";
import { createMembershipNotices } from "./usecases/membership-notices.ts";
import { createNameLookups } from "./usecases/name-lookups.ts";
import { createPasswordChanges } from "./usecases/password-changes.ts";
import { createRecaptcha } from "./usecases/recaptcha.ts";
import { createSecondFactors } from "./usecases/second-factors.ts";
import { createSessions } from "./usecases/sessions.ts";
import { createSignInAttempts } from "./usecases/sign-in-attempts.ts";
import { openSigningKeys } from "./usecases/signing-keys.ts";
import { createSingleSignOn } from "./usecases/single-sign-on.ts";
import { createUserAdministration } from "./usecases/user-administration.ts";

export { identitySettings };

/** The audience of session tokens: every facade of the installation. */
const audience = "sandgate";

const keyMaintenanceMs = 60_000;
const sweepMs = 10 * 60_000;
const storeUsesMs = 10_000;
/** Rows of a kind that one sweep's transaction deletes, so that none holds the writer for long. */
const sweepBatchSize = 200;

type IdentityContext = ServiceContext<IdentitySettings, IdentityStore>;

interface IdentityParts extends ServiceParts {
  /** The operator account that this start created with a random password, to be shown once. */
  firstStart?: { username: string; password: string };
}

/**
 * Defines the service that owns accounts; `now` is the clock of every time-dependent rule. With `made` the first
 * operator gets a random password when the settings have none; with `settings` the start fails then.
 */
export function defineIdentityService(now: () => Date, o: { operatorPassword?: "made" | "settings" } = {}) {
  return defineService({
    name: "identity",
    settings: identitySettings,
    parseSettings: parseIdentitySettings,
    stores: { sqlite: () => import("./store/store.sqlite.ts"), mongodb: () => import("./store/store.mongo.ts") },
    open: (context) => openIdentityService(context, now, o.operatorPassword ?? "made"),
  });
}

export const identityService = defineIdentityService(() => new Date());

/**
 * The service as a process of its own. Others than the operator read its output, so that it can't show a password that
 * it made.
 */
export const identityProcess = defineIdentityService(() => new Date(), { operatorPassword: "settings" });

async function openIdentityService(
  context: IdentityContext,
  now: () => Date,
  operatorPassword: "made" | "settings",
): Promise<IdentityParts> {
  const { logger, settings, store } = context;
  const { adminPassword, adminUsername } = settings;
  if (operatorPassword === "settings" && adminPassword === undefined && !(await store.users.hasOperator())) {
    const { name } = identitySettings.adminPassword;
    throw new SettingsError([`${name} is missing (the first start makes the operator's account with it)`]);
  }
  const usecases = await createUseCases(context, now);
  const { accounts, administration, apiTokens, keys, mails, strength } = usecases;
  const background = createBackground(logger);
  const operator = await accounts.createFirstOperator(adminUsername, adminPassword);

  async function sweep(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (await store.expiry.sweep(now(), sweepBatchSize)) >= sweepBatchSize);
    await administration.deleteUnverified(signal);
    await sweepMailFiles(mailFolderOf(settings), now());
  }

  return {
    ...(operator &&
      adminPassword === undefined && { firstStart: { username: adminUsername, password: operator.password } }),
    routes(router) {
      const parts = { ...context, ...settings, ...usecases, runInBackground: background.run, now };
      router.service(IdentityService, {
        ...createAccountHandlers(parts),
        ...createSessionHandlers(parts),
        ...createSecondFactorHandlers(parts),
        ...createUserHandlers(parts),
        ...createApiTokenHandlers(parts),
        ...createLimitHandlers(parts),
      });
    },
    async start() {
      mails.start();
      return [
        await consumeEvents({ ...context, ...usecases }),
        startPeriodicTask({
          what: "maintain the signing keys",
          everyMs: keyMaintenanceMs,
          logger,
          work: keys.maintain,
        }),
        startPeriodicTask({ what: "sweep what has expired", everyMs: sweepMs, logger, work: sweep }),
        startPeriodicTask({
          what: "store when API tokens were used",
          everyMs: storeUsesMs,
          logger,
          work: apiTokens.storeUses,
        }),
        mails,
      ];
    },
    commands: createCommands(usecases, context, now),
    async dependencies() {
      return { database: await stateOf(store.users.hasOperator()), mail: mails.state() };
    },
    async flush() {
      await background.ended();
      await apiTokens.storeUses();
      await strength.close();
    },
  };
}

async function createUseCases(context: IdentityContext, now: () => Date) {
  const { settings, store, keyring, bus, logger } = context;
  const { publicUrl, mailFrom: from, smtpUrl, operatorSecondFactor, redirectUris, registration } = settings;
  // Each hasher has a queue of its own: registrations can't keep sign-ins waiting, and sign-ins from elsewhere can't
  // keep those from an account's own networks waiting.
  const hasher = createPasswordHasher();
  const signInHashers = { hasher: createPasswordHasher(), ownNetworksHasher: createPasswordHasher() };
  const keys = await openSigningKeys({ store, keyring, issuer: publicUrl, audience, now });
  const transport =
    smtpUrl === undefined
      ? createFileTransport({ folder: mailFolderOf(settings), from, logger })
      : (await import("./mail/smtp.ts")).createSmtpTransport({ url: smtpUrl, from });
  const mails = createMailQueue({ store, keyring, transport, logger, now });
  const strength = createPasswordStrength();
  const recaptcha = createRecaptcha({ settings: recaptchaSettings(settings), store, now });
  const mailBudgets = createMailBudgets({ store, limits: mailLimits(settings), logger, now });
  const all = { store, hasher, strength, recaptcha, keyring, keys, bus, mails, mailBudgets, publicUrl, registration };
  const attempts = createSignInAttempts({ store, perMinute: settings.signInRateLimit, now });
  const secondFactors = createSecondFactors({ ...all, attempts, now });
  const sessions = createSessions({ ...all, ...signInHashers, attempts, secondFactors, operatorSecondFactor, now });
  const administration = createUserAdministration({ ...all, now });
  const providers = await openProviders(settings, now);
  return {
    keys,
    mails,
    strength,
    recaptcha,
    mailBudgets,
    secondFactors,
    sessions,
    accounts: createAccounts({ ...all, now }),
    passwords: createPasswordChanges({ ...all, attempts, now }),
    administration,
    lookUpNames: createNameLookups({ store, find: (usernames) => administration.find([], usernames), now }),
    noticeMember: createMembershipNotices({ ...all, now }),
    singleSignOn: createSingleSignOn({ ...all, providers, sessions, redirectUris, logger, now }),
    apiTokens: createApiTokens({
      ...all,
      maxTokens: settings.maxApiTokens,
      maxDays: settings.apiTokenMaxDays,
      now,
    }),
  };
}

/** The providers of single sign-on. Most installations have none and don't load their libraries. */
async function openProviders(settings: IdentitySettings, now: () => Date): Promise<ReadonlyMap<string, SsoProvider>> {
  const all = parseSsoSettings(settings);
  if (all.length === 0) return new Map();
  const { createProviders } = await import("./sso/providers.ts");
  return createProviders(all, { now });
}

function createCommands(
  { keys, administration, secondFactors }: Awaited<ReturnType<typeof createUseCases>>,
  { logger }: IdentityContext,
  now: () => Date,
): Commands {
  const usernameIn = ([username = ""]: Iterable<string>) => username;
  return {
    async "make-operator"(options) {
      const { id, username } = await administration.makeOperator(usernameIn(options));
      logger.warn({ user: id }, "a user was made an operator at an operator's command");
      return { username, operator: true };
    },
    async "remove-second-factor"(options) {
      const name = usernameKey(usernameIn(options));
      const { user, removed } = await secondFactors.removeOf(undefined, { usernameKey: name });
      if (removed) logger.warn({ user: user.id }, "a second factor was removed at an operator's command");
      return { username: user.username, second_factor: removed ? "removed" : "none" };
    },
    async "rotate-keys"(options) {
      if (options.has("emergency")) {
        await keys.replaceAll();
        logger.warn(
          "all keys of session and refresh tokens were replaced at an operator's command, and all sessions ended",
        );
        return { signs_from: now().toISOString(), sessions: "ended" };
      }
      const { signsFrom } = await keys.rotate();
      logger.warn(
        { signs_from: signsFrom },
        "new keys for session and refresh tokens were made at an operator's command",
      );
      return { signs_from: signsFrom.toISOString(), sessions: "go on" };
    },
  };
}

/** Work that no answer waits for. What fails is logged. */
function createBackground(logger: IdentityContext["logger"]) {
  const running = new Set<Promise<void>>();
  return {
    run(what: string, task: () => Promise<void>): void {
      const run = task()
        .catch((error: unknown) => logger.error({ err: error }, `failed to ${what}`))
        .finally(() => running.delete(run));
      running.add(run);
    },
    async ended(): Promise<void> {
      await Promise.all(running);
    },
  };
}

function mailFolderOf({ data }: IdentitySettings): string {
  return join(data, "mail");
}
