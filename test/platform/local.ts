import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { openTestEngine, probeFirewall } from "@sandgate/test-support/images";
import { findFreePort, type RunningProcess, startProcess } from "@sandgate/test-support/process";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import type { ContainerInfo } from "dockerode";
import { removeHostObjects } from "./host-objects.ts";
import { unlimited } from "./limits.ts";

const execute = promisify(execFile);
const root = join(import.meta.dirname, "../..");
const startTimeoutMs = 180_000;
/** As in deploy/local/start.sh. */
const nodeOptions = ["--max-semi-space-size=4"];

/** The one-machine platform as `npm start` runs it, in a process of its own with a folder and ports of its own. */
export interface TestPlatform {
  /** "http://127.0.0.1:40123" */
  readonly url: string;
  /** Where operators find metrics and health. */
  readonly adminUrl: string;
  /** The operator account. */
  readonly admin: { username: string; password: string };
  readonly dataFolder: string;
  /** Each mail is a file here. */
  readonly mailFolder: string;
  /** The process of the last start. */
  readonly process: RunningProcess;
  /** SIGKILL, as a crash would; sandboxes and data stay. */
  kill(): Promise<void>;
  /** SIGTERM, and the exit code; sandboxes and data stay. */
  terminate(): Promise<number | null>;
  /**
   * Starts it again on the same folder and ports once it has ended. Its clock is that far ahead, not at all unless
   * given.
   */
  start(o?: { clockAheadMs?: number }): Promise<void>;
  /** Ends it, and removes its sandboxes and its folder. */
  stop(): Promise<void>;
}

/**
 * Starts the platform and waits until it is ready. `settings` are environment variables; there are no rate limits
 * unless set.
 */
export async function startPlatform(o: { settings?: Record<string, string> } = {}): Promise<TestPlatform> {
  const { path: dataFolder, remove: removeData } = await createTempFolder();
  const port = Number(o.settings?.SANDGATE_PORT ?? (await findFreePort()));
  const adminPort = await findFreePort();
  const url = `http://127.0.0.1:${port}`;
  const admin = { username: "admin@localhost", password: randomBytes(12).toString("base64url") };
  const env = {
    // As deploy/local/prepare.sh sets it.
    NODE_COMPILE_CACHE: join(root, "node_modules/.cache/node"),
    // As deploy/local/start.sh sets them.
    MALLOC_ARENA_MAX: "2",
    MALLOC_MMAP_THRESHOLD_: "4194304",
    MALLOC_TRIM_THRESHOLD_: "4194304",
    ...withoutSettings(process.env),
    SANDGATE_DATA: dataFolder,
    SANDGATE_PORT: String(port),
    SANDGATE_ADMIN_PORT: String(adminPort),
    SANDGATE_PULL_PORT: "0",
    SANDGATE_ADMIN_USERNAME: admin.username,
    SANDGATE_ADMIN_PASSWORD: admin.password,
    SANDGATE_DEFAULT_IMAGE: await defaultImageSetting(),
    // Suites that need no sandboxes to run make some all the same, which the platform would refuse.
    SANDGATE_ISOLATION: await probeFirewall().then(
      () => "on",
      () => "off",
    ),
    ...unlimited,
    SANDGATE_LOG_LEVEL: "info",
    ...o.settings,
  };
  const start = async ({ clockAheadMs = 0 } = {}): Promise<RunningProcess> => {
    const clock = clockAheadMs > 0 ? ["--import", clockAhead(clockAheadMs)] : [];
    const started = startProcess(process.execPath, [...nodeOptions, ...clock, join(root, "deploy/local/src/main.ts")], {
      cwd: root,
      env,
    });
    await awaitReady(started, url);
    return started;
  };
  let running = await start().catch(async (error: unknown) => {
    await removeData();
    throw error;
  });
  // Pods go with their cluster. The folder may be gone when the platform is stopped.
  const onEngine = !o.settings?.SANDGATE_RUNTIME?.startsWith("kubernetes:");
  const installationId = onEngine ? installationOf(dataFolder) : undefined;

  return {
    url,
    adminUrl: `http://127.0.0.1:${adminPort}`,
    admin,
    dataFolder,
    mailFolder: join(dataFolder, "mail"),
    get process() {
      return running;
    },
    kill: () => running.kill(),
    terminate: () => running.stop(),
    async start(o) {
      running = await start(o);
    },
    async stop() {
      await running.stop();
      if (installationId !== undefined) await removeHostObjects(installationId);
      await removeData();
    },
  };
}

/** Without the settings of whoever runs the tests, except for the engine's address. */
export function withoutSettings(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const kept = Object.entries(env).filter(([name]) => !name.startsWith("SANDGATE_") || name === "SANDGATE_RUNTIME");
  return Object.fromEntries(kept);
}

/** The image that start.sh builds, by its reference. */
export async function findDefaultImage(): Promise<string> {
  const script = '. deploy/local/prepare.sh && printf %s "$default_image"';
  return (await execute("sh", ["-c", script], { cwd: root })).stdout;
}

/** SANDGATE_DEFAULT_IMAGE, as start.sh sets it. */
export async function defaultImageSetting(): Promise<string> {
  return `default=${await findDefaultImage()},8080`;
}

/** A module, as an address to import, that sets the clock of a process and its threads ahead. */
function clockAhead(ms: number): string {
  const source = `
    const RealDate = Date;
    const { now } = RealDate;
    globalThis.Date = class extends RealDate {
      static now = () => now() + ${ms};
      // One that comes from another thread is of the class that was there before.
      static [Symbol.hasInstance] = (value) => RealDate[Symbol.hasInstance](value);
      constructor(...given) {
        super(...(given.length > 0 ? given : [now() + ${ms}]));
      }
    };`;
  return `data:text/javascript,${encodeURIComponent(source)}`;
}

async function awaitReady(started: RunningProcess, url: string): Promise<void> {
  let exited = false;
  const noteExit = () => {
    exited = true;
  };
  started.exited.then(noteExit, noteExit);
  const deadline = Date.now() + startTimeoutMs;
  while (!exited && Date.now() < deadline) {
    const answer = await fetch(`${url}/readyz`).catch(() => undefined);
    await answer?.body?.cancel();
    if (answer?.ok) return;
    await delay(25);
  }
  await started.kill();
  throw new Error(
    `the platform ${exited ? "ended instead of starting" : "did not become ready"}:\n${started.output()}`,
  );
}

/** The id of the installation whose data is here, which its objects on the engine have as a label. */
export function installationOf(dataFolder: string): string {
  const database = new DatabaseSync(join(dataFolder, "sandbox.sqlite"), { readOnly: true });
  try {
    return String(database.prepare("SELECT id FROM installation").get()?.id);
  } finally {
    database.close();
  }
}

/** The containers of an installation's sandboxes, in whatever state; of one sandbox when it is named. */
export async function listInstallation(installationId: string, sandboxId?: string): Promise<ContainerInfo[]> {
  const label = [`sandgate.io/installation=${installationId}`];
  if (sandboxId !== undefined) label.push(`sandgate.io/sandbox-id=${sandboxId}`);
  return openTestEngine().listContainers({ all: true, filters: { label } });
}
