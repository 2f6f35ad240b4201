import { setTimeout as delay } from "node:timers/promises";
import { startMailServer, storeMailsIn } from "@sandgate/test-support/mail-server";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { expect, inject } from "vitest";
import { type DistributedPlatform, single, startDistributed } from "../platform/distributed/platform.ts";
import { startPlatform } from "../platform/local.ts";
import { readMails, tokenIn } from "../platform/mails.ts";
import { type Answer, type Client, createClient, expectStatus, uniqueName } from "./client.ts";
import { openSandboxHost } from "./sandbox-host.ts";
import { suiteSettings } from "./suite-settings.ts";

/** A signed-in user with a workspace of its own. */
export interface Tenant {
  username: string;
  password: string;
  token: string;
  refreshToken: string;
  workspace: string;
}

/** The service under test: one that is running already, or one that the suite starts. */
export interface Target extends Client {
  /** The operator account. */
  operator: Tenant;
  /** A global default image that serves a page on port 8080 and logs each request on standard error. */
  defaultImageId: string;
  /**
   * Its reference, which the engine has without any registry, so that the operator can register more default images of
   * it.
   */
  defaultReference: string;
  /** Registers, verifies and signs in a new user. */
  newTenant(): Promise<Tenant>;
  /** The token in the last mail to this address. */
  mailedToken(username: string): Promise<string>;
  /** Matches the address that it sees this process come from, however that is written. */
  clientAddress: unknown;
  /** Its clock. */
  now(): number;
  /** Starts it again with its clock that far ahead. Only one of `openRestartable` in one process can. */
  setAhead?(ms: number): Promise<void>;
  close(): Promise<void>;
}

const given = process.env.SANDGATE_CONFORMANCE_URL?.replace(/\/$/, "");

let shared: DistributedPlatform | undefined;

/** What it takes to register and sign in some hundred users within minutes. */
const leastRate = 10_000;

let running: (() => RunningService) | undefined;

/** Whether a target takes the settings that it is opened with. Says so unless it does. */
export function requireSettings(): Promise<boolean> {
  return requireServer("settings", async () => {
    if (given !== undefined || running) throw new Error("the platform is running already, with settings of its own");
  });
}

/** Whether every target has `suiteSettings` besides. Says so unless it has. */
export function requireSuiteSettings(): Promise<boolean> {
  return requireServer("settings", async () => {
    if (given !== undefined && process.env.SANDGATE_CONFORMANCE_SETTINGS !== "suite") {
      throw new Error("SANDGATE_CONFORMANCE_SETTINGS doesn't say that the platform has those of the suite");
    }
  });
}

/** From now on the suite tests this platform, or one of its own where a test asks for other settings. */
export function testDistributed(platform: DistributedPlatform): void {
  shared = platform;
}

/** Whether what each replica counts for itself may be more than its limit in all. */
export function isReplicated(): boolean {
  return shared !== undefined;
}

/** A service that is running, with its operator account and the folder of its mails. */
export interface RunningService {
  urls: [string, ...string[]];
  admin: { username: string; password: string };
  mailFolder: string;
  /** Where it sees this process come from; loopback addresses unless given. */
  clientAddress?: string;
}

/**
 * The suite's files that are imported from now on test this service, which is asked for in their hooks. It has
 * `suiteSettings`.
 */
export function testRunning(service: () => RunningService): void {
  running = service;
}

/**
 * Opens the service at SANDGATE_CONFORMANCE_URL (test/README.md), or a platform with the suite's settings: the one that
 * files share, or one of the caller's own where it asks for other settings.
 */
export async function openTarget(settings?: Record<string, string>): Promise<Target> {
  if (given !== undefined) return openGiven(given);
  const service = running?.() ?? (settings ? undefined : (shared ?? inject("platform")));
  if (service) return describeTarget({ ...service, stop: async () => {} });
  if (!shared) return openLocal(settings);
  return describeTarget(await startDistributed({ settings: { ...suiteSettings, ...settings }, replicas: single }));
}

/** The same with the suite's settings, but of a platform in one process one of the caller's own, which has `setAhead`. */
export function openRestartable(): Promise<Target> {
  return given !== undefined || running || shared ? openTarget() : openLocal();
}

async function openLocal(settings?: Record<string, string>): Promise<Target> {
  const platform = await startPlatform({ settings: { ...suiteSettings, ...settings } });
  let aheadMs = 0;
  const target = await describeTarget({ ...platform, urls: [platform.url] });
  return Object.assign(target, {
    now: () => Date.now() + aheadMs,
    async setAhead(ms: number) {
      await platform.terminate();
      await platform.start({ clockAheadMs: ms });
      aheadMs = ms;
    },
  });
}

async function openGiven(url: string): Promise<Target> {
  const {
    SANDGATE_CONFORMANCE_USERNAME: username = "admin@localhost",
    SANDGATE_CONFORMANCE_PASSWORD: password = "",
    SANDGATE_CONFORMANCE_MAIL: mail = "data/mail",
  } = process.env;
  await checkLimits(createClient(url), { username, password });
  await using opening = new AsyncDisposableStack();
  const mailFolder = mail.startsWith("smtp://") ? await receiveMails(new URL(mail), opening) : mail;
  const target = await describeTarget({ urls: [url], admin: { username, password }, mailFolder, stop: async () => {} });
  const opened = opening.move();
  return {
    ...target,
    get url() {
      return target.url;
    },
    ...(process.env.SANDGATE_CONFORMANCE_REGISTRY && (await registerDefaultImage(target))),
    // There may be any proxies on the way.
    clientAddress: expect.stringMatching(/^[0-9a-f.:]+$/),
    close: () => opened.disposeAsync(),
  };
}

/** Throws unless the platform lets the suite ask as often as it does. */
async function checkLimits(client: Client, admin: { username: string; password: string }): Promise<void> {
  const check = (setting: string, { headers }: Answer) => {
    const limit = Number(headers.get("ratelimit-limit") ?? leastRate);
    if (limit < leastRate) throw new Error(`the platform's ${setting} is ${limit}, and the suite needs ${leastRate}`);
  };
  const signedIn = await client.post("/auth/login", admin);
  check("SANDGATE_SIGNIN_RATE_LIMIT", signedIn);
  const token = expectStatus(signedIn, 200).tokens.access_token;
  check("SANDGATE_RATE_LIMIT", await client.get("/workspaces", { token }));
}

/** Takes the platform's mails where it sends them; returns the folder in which they are. */
async function receiveMails({ hostname, port }: URL, opening: AsyncDisposableStack): Promise<string> {
  const { path: folder } = opening.use(await createTempFolder());
  opening.use(await startMailServer({ address: hostname, port: Number(port), receive: storeMailsIn(folder) }));
  return folder;
}

async function registerDefaultImage(target: Target): Promise<Pick<Target, "defaultImageId" | "defaultReference">> {
  const { reference } = await openSandboxHost().makeImage({
    command: ["/bin/sh", "-c", "httpd -f -vv -p 8080 -h /www"],
    files: { "www/index.html": "hello\n" },
  });
  const body = { name: "conformance", image: reference, is_default: true, memory_mb: 256, readiness_port: 8080 };
  const { id } = expectStatus(await target.post("/sandbox-images", body, target.operator), 201);
  return { defaultImageId: id, defaultReference: reference };
}

/**
 * Sends a request of a suite's set-up again while a service takes too long, since the disk of a machine that runs many
 * suites can stall for seconds. What tests are about is sent once.
 */
async function retried(send: () => Promise<Answer>): Promise<Answer> {
  for (let attempt = 1; ; attempt++) {
    const answer = await send();
    if (attempt === 5 || answer.body?.error?.code !== "upstream_error") return answer;
    await delay(1_000);
  }
}

async function describeTarget(o: RunningService & { stop(): Promise<void> }): Promise<Target> {
  const client = createClient(...o.urls);

  async function signIn(username: string, password: string): Promise<Tenant> {
    const login = { username, password, recaptchaToken: "" };
    const { tokens } = expectStatus(await retried(() => client.post("/auth/login", login)), 200);
    const token: string = tokens.access_token;
    const { workspaces } = expectStatus(await retried(() => client.get("/workspaces", { token })), 200);
    return { username, password, token, refreshToken: tokens.refresh_token, workspace: workspaces[0].id };
  }

  async function mailedToken(username: string): Promise<string> {
    for (let tries = 0; tries < 100; tries++) {
      const token = tokenIn((await readMails(o.mailFolder, username)).at(-1));
      if (token) return token;
      await delay(50);
    }
    throw new Error(`no mail to ${username} in ${o.mailFolder}`);
  }

  async function newTenant(): Promise<Tenant> {
    const username = `${uniqueName("user")}@example.com`;
    const password = "correct horse battery";
    const account = { username, password, recaptchaToken: "" };
    expectStatus(await retried(() => client.post("/auth/register", account)), 201);
    const link = { token: await mailedToken(username), password };
    expectStatus(await client.post("/auth/verify-email", link), 200);
    return signIn(username, password);
  }

  const operator = await signIn(o.admin.username, o.admin.password);
  const { images } = expectStatus(
    await client.get("/sandbox-images?enabled_only=true", { token: operator.token, workspace: operator.workspace }),
    200,
  );
  const defaultImage = images.find(
    (image: { is_default: boolean; name: string }) => image.is_default && image.name === "default",
  );
  if (!defaultImage && !process.env.SANDGATE_CONFORMANCE_REGISTRY) {
    throw new Error('the platform has no default image "default", and SANDGATE_CONFORMANCE_REGISTRY names no registry');
  }
  return {
    ...client,
    get url() {
      return client.url;
    },
    operator,
    defaultImageId: defaultImage?.id,
    defaultReference: defaultImage?.image,
    newTenant,
    mailedToken,
    clientAddress: expect.toBeOneOf(o.clientAddress ? [o.clientAddress] : ["127.0.0.1", "::ffff:127.0.0.1", "::1"]),
    now: Date.now,
    close: () => o.stop(),
  };
}
