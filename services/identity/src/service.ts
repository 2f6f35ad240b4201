import { join } from "node:path";
import { stateOf } from "@sandgate/kit/base/dependencies";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { SettingsError } from "@sandgate/kit/base/settings";
import { defineService, type ServiceContext, type ServiceParts } from "@sandgate/kit/process/service";
import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { createAccounts } from "./domain/accounts.ts";
import { createUseLog } from "./domain/api-tokens.ts";
import { createMailBudgets } from "./domain/mail-budgets.ts";
import { createPasswordChanges } from "./domain/password-changes.ts";
import { createPasswordStrength } from "./domain/password-strength.ts";
import { createPasswordHasher } from "./domain/passwords.ts";
import { createRecaptcha } from "./domain/recaptcha.ts";
import { createSecondFactors } from "./domain/second-factors.ts";
import { createSessions } from "./domain/sign-in.ts";
import { createSignInAttempts } from "./domain/sign-in-attempts.ts";
import { openSigningKeys } from "./domain/signing-keys.ts";
import { createSingleSignOn } from "./domain/sso.ts";
import type { SsoProvider } from "./domain/sso-provider.ts";
import { createUserAdministration } from "./domain/user-administration.ts";
import { createHandlers } from "./handlers.ts";
import { createMailQueue } from "./mail/queue.ts";
import { createFileTransport, sweepMailFiles } from "./mail/transports.ts";
import {
  type IdentitySettings,
  identitySettings,
  mailLimits,
  parseIdentitySettings,
  recaptchaSettings,
} from "./settings.ts";
import { parseSsoSettings } from "./sso/settings.ts";
import type { IdentityStore } from "./store/store.ts";

export { identitySettings };

/** The audience of session tokens: every facade of the installation. */
const audience = "sandgate";

const keyMaintenanceMs = 60_000;
const sweepMs = 10 * 60_000;
const storeUsesMs = 10_000;
/** Rows of a kind that one sweep's transaction deletes, so that none holds the writer for long. */
const sweepBatchSize = 200;

interface IdentityParts extends ServiceParts {
  /** The operator account that this start created with a random password, to be shown once. */
  firstStart?: { username: string; password: string };
}

/**
 * Defines the service that owns accounts; `now` is the clock of every time-dependent rule. The first operator's password is made
 * when the settings have none, unless it has to be one of the `settings`.
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

/** As a process of its own, whose output others than the operator read: it makes no password that it would have to show. */
export const identityProcess = defineIdentityService(() => new Date(), { operatorPassword: "settings" });

/** The providers of single sign-on. Most installations have none, and don't load what these need. */
async function openProviders(settings: IdentitySettings, now: () => Date): Promise<ReadonlyMap<string, SsoProvider>> {
  const all = parseSsoSettings(settings);
  if (all.length === 0) return new Map();
  const { createProviders } = await import("./sso/providers.ts");
  return createProviders(all, { now });
}

async function openIdentityService(
  context: ServiceContext<IdentitySettings, IdentityStore>,
  now: () => Date,
  operatorPassword: "made" | "settings",
): Promise<IdentityParts> {
  const { bus, keyring, logger, settings, store } = context;
  if (operatorPassword === "settings" && settings.adminPassword === undefined && !(await store.hasOperator())) {
    const { name } = identitySettings.adminPassword;
    throw new SettingsError([`${name} is missing (the first start makes the operator's account with it)`]);
  }
  const { adminPassword, adminUsername, mailFrom, publicUrl, registration, smtpUrl } = settings;
  // Each has a queue of its own: registrations can't keep sign-ins waiting, nor sign-ins from anywhere those from an account's own
  // networks.
  const hasher = createPasswordHasher();
  const signInHashers = { hasher: createPasswordHasher(), ownNetworksHasher: createPasswordHasher() };
  const keys = await openSigningKeys({ store, keyring, issuer: publicUrl, audience, now });
  const mailFolder = join(settings.data, "mail");
  const transport =
    smtpUrl === undefined
      ? createFileTransport({ folder: mailFolder, from: mailFrom, logger })
      : (await import("./mail/smtp.ts")).createSmtpTransport({ url: smtpUrl, from: mailFrom });
  const mails = createMailQueue({ store, keyring, transport, logger, now });
  const strength = createPasswordStrength();
  const recaptcha = createRecaptcha({ settings: recaptchaSettings(settings), store, now });
  const mailBudgets = createMailBudgets({ store, limits: mailLimits(settings), logger, now });
  const accounts = createAccounts({
    store,
    hasher,
    strength,
    recaptcha,
    bus,
    mails,
    mailBudgets,
    publicUrl,
    registration,
    now,
  });
  const passwords = createPasswordChanges({ store, hasher, strength, mails, mailBudgets, bus, publicUrl, now });
  const administration = createUserAdministration({ store, hasher, bus, now });
  const attempts = createSignInAttempts({ store, perMinute: settings.signInRateLimit, now });
  const secondFactors = createSecondFactors({ store, hasher, keyring, mails, bus, publicUrl, now });
  const { operatorSecondFactor } = settings;
  const sessions = createSessions({
    store,
    ...signInHashers,
    attempts,
    secondFactors,
    operatorSecondFactor,
    keys,
    bus,
    now,
  });
  const sso = createSingleSignOn({
    providers: await openProviders(settings, now),
    store,
    sessions,
    bus,
    mails,
    logger,
    publicUrl,
    redirectUris: settings.redirectUris,
    registration,
    now,
  });
  const uses = createUseLog();
  const inBackground = new Set<Promise<void>>();

  async function storeUses(): Promise<void> {
    const noted = uses.take();
    if (noted.length > 0) await store.noteApiTokenUses(noted);
  }

  async function sweep(signal: AbortSignal): Promise<void> {
    while (!signal.aborted && (await store.sweep(now(), sweepBatchSize)) >= sweepBatchSize);
    await administration.deleteUnverified(signal);
    await sweepMailFiles(mailFolder, now());
  }

  function runInBackground(what: string, task: () => Promise<void>): void {
    const run = task()
      .catch((error: unknown) => logger.error({ err: error }, `failed to ${what}`))
      .finally(() => inBackground.delete(run));
    inBackground.add(run);
  }

  const operator = await accounts.createFirstOperator(adminUsername, adminPassword);

  return {
    ...(operator &&
      adminPassword === undefined && { firstStart: { username: adminUsername, password: operator.password } }),
    routes(router) {
      router.service(
        IdentityService,
        createHandlers({
          accounts,
          passwords,
          administration,
          sessions,
          secondFactors,
          operatorSecondFactor,
          recaptcha,
          mailBudgets,
          sso,
          keys,
          store,
          uses,
          storeUses,
          runInBackground,
          bus,
          keyring,
          maxApiTokens: settings.maxApiTokens,
          apiTokenMaxDays: settings.apiTokenMaxDays,
          now,
        }),
      );
    },
    async start() {
      mails.start();
      return [
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
          work: storeUses,
        }),
        mails,
      ];
    },
    commands: {
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
    },
    async dependencies() {
      return { database: await stateOf(store.hasOperator()), mail: mails.state() };
    },
    async flush() {
      await Promise.all(inBackground);
      await storeUses();
      await strength.close();
    },
  };
}
