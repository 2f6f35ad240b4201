import { join } from "node:path";
import { stateOf } from "@sandgate/kit/base/dependencies";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { defineService, type ServiceContext, type ServiceParts } from "@sandgate/kit/process/service";
import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { createAccounts } from "./domain/accounts.ts";
import { createUseLog } from "./domain/api-tokens.ts";
import { createPasswordHasher } from "./domain/passwords.ts";
import { cutoffsAt } from "./domain/retention.ts";
import { createSessions } from "./domain/sign-in.ts";
import { openSigningKeys } from "./domain/signing-keys.ts";
import { createHandlers } from "./handlers.ts";
import { createFileTransport, createMailQueue, createSmtpTransport } from "./mail/mail.ts";
import { type IdentitySettings, identitySettings, parseIdentitySettings } from "./settings.ts";
import type { IdentityStore } from "./store/store.ts";

export { identitySettings };

/** The audience of session tokens: every facade of the installation. */
const AUDIENCE = "sandgate";

const MAINTENANCE_EVERY_MS = 60_000;
const SWEEP_EVERY_MS = 10 * 60_000;
const USES_STORED_EVERY_MS = 10_000;
/** Rows of a kind that one sweep's transaction deletes, so that none holds the writer for long. */
const SWEEP_SLICE = 200;

interface IdentityParts extends ServiceParts {
  /** The operator account that this start created with a password of its own making, to be shown once. */
  firstStart?: { username: string; password: string };
}

/** Defines the service that owns accounts; `now` is the clock of every time-dependent rule. */
export function defineIdentityService(now: () => number) {
  return defineService({
    name: "identity",
    settings: identitySettings,
    parseSettings: parseIdentitySettings,
    stores: { sqlite: () => import("./store/store.sqlite.ts"), mongodb: () => import("./store/store.mongo.ts") },
    open: (context) => openIdentityService(context, now),
  });
}

export const identityService = defineIdentityService(Date.now);

async function openIdentityService(
  context: ServiceContext<IdentitySettings, IdentityStore>,
  now: () => number,
): Promise<IdentityParts> {
  const { bus, keyring, logger, settings, store } = context;
  const { publicUrl } = settings;
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

  const operator = await accounts.createFirstOperator(settings.adminUsername, settings.adminPassword);

  return {
    ...(operator &&
      settings.adminPassword === undefined && {
        firstStart: { username: settings.adminUsername, password: operator.password },
      }),
    routes: (router) => {
      router.service(
        IdentityService,
        createHandlers({
          ...{ accounts, sessions, keys, store },
          ...{ uses, storeUses, runInBackground, bus, keyring, now },
        }),
      );
    },
    async start() {
      mails.start();
      return [
        startPeriodicTask({
          what: "maintain the signing keys",
          everyMs: MAINTENANCE_EVERY_MS,
          logger,
          work: keys.maintain,
        }),
        startPeriodicTask({ what: "sweep what has expired", everyMs: SWEEP_EVERY_MS, logger, work: sweep }),
        startPeriodicTask({
          what: "store when API tokens were used",
          everyMs: USES_STORED_EVERY_MS,
          logger,
          work: storeUses,
        }),
        { stop: () => mails.stop() },
      ];
    },
    async dependencies() {
      return { database: await stateOf(store.hasOperator()), mail: mails.state() };
    },
    async flush() {
      await Promise.all(inBackground);
      await storeUses();
    },
  };
}
