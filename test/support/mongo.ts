import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { MongoClient, type MongoClientOptions } from "mongodb";
import { findFreePort, type RunningProcess, startProcess } from "./process.ts";
import { createTempFolder } from "./temp-folder.ts";

const execute = promisify(execFile);

const givenUrl = process.env.SANDGATE_TEST_MONGODB_URL;
/** What is downloaded when there is no server: the newest line that is officially supported. */
const downloadVersion = "8.0.15";
const downloadHost = "https://fastdl.mongodb.org";
const cacheFolder = join(import.meta.dirname, "../../.cache/mongod");
/** After a crash it works through its journal first. */
const startTimeoutMs = 180_000;

/** One server of a replica set. */
export interface TestMongod extends Pick<RunningProcess, "kill" | "pause" | "resume"> {
  /** `127.0.0.1:port` */
  host: string;
  /** Starts it again on the same port and data once it has ended. */
  start(): Promise<void>;
}

/** A real replica set on the loopback address, with folders of its own. */
export interface TestReplicaSet {
  /** `mongodb://127.0.0.1:port,…/?replicaSet=…` */
  url: string;
  members: readonly TestMongod[];
  /** The member that is primary now. Waits for one. */
  primary(): Promise<TestMongod>;
  /** Ends all and removes what they stored. */
  stop(): Promise<void>;
}

/** A database of its own on a server that other suites may use too. */
export interface TestDatabase {
  url: string;
  name: string;
  /** How many keys of indexes and documents the server goes through for what is done on it meanwhile. */
  countExamined(work: () => Promise<unknown>): Promise<number>;
  /** Deletes it. Throws when an operation on it has scanned a whole collection, or sorted without an index. */
  drop(): Promise<void>;
}

/** A replica set to use, not to kill. */
export interface SharedMongo {
  url: string;
  createDatabase(): Promise<TestDatabase>;
  stop(): Promise<void>;
}

let found: Promise<string> | undefined;

/** Throws, saying what was tried, unless `useMongo` has a server. For `requireServer("mongo", probeMongo)`. */
export async function probeMongo(): Promise<void> {
  if (givenUrl === undefined) await findMongod();
  else
    await operateOn(givenUrl, { serverSelectionTimeoutMS: 5_000 }, (client) => client.db("admin").command({ ping: 1 }));
}

/** The program `mongod`, or throws what was tried. */
export function findMongod(): Promise<string> {
  found ??= findOnPath().catch((onPath: Error) =>
    download().catch((cause: Error) => {
      throw new Error(`SANDGATE_TEST_MONGODB_URL is not set; ${onPath.message}; a download: ${cause.message}`, {
        cause,
      });
    }),
  );
  return found;
}

/** The replica set at `SANDGATE_TEST_MONGODB_URL`, or one of its own with one member. */
export async function useMongo(): Promise<SharedMongo> {
  const own = givenUrl === undefined ? await startReplicaSet() : undefined;
  const url = own?.url ?? givenUrl ?? "";
  return {
    url,
    createDatabase: () => createDatabase(url),
    stop: async () => own?.stop(),
  };
}

/** Starts a replica set of one member unless more are asked for, each with a small cache. */
export async function startReplicaSet(o: { members?: number } = {}): Promise<TestReplicaSet> {
  const program = await findMongod();
  const { path: folder, remove: removeFolder } = await createTempFolder();
  const name = "test";
  const members: TestMongod[] = [];
  for (let index = 0; index < (o.members ?? 1); index++) {
    members.push(await startMember(program, join(folder, `${index}`), name));
  }
  const [first] = members;
  if (!first) throw new Error("a replica set needs a member");
  await operateOn(`mongodb://${first.host}`, { directConnection: true }, (client) =>
    client.db("admin").command({
      replSetInitiate: {
        _id: name,
        members: members.map(({ host }, index) => ({ _id: index, host })),
        // An election starts after a second without heartbeats, so that tests of it are short.
        settings: { electionTimeoutMillis: 1_000, heartbeatIntervalMillis: 250 },
      },
    }),
  );
  const url = `mongodb://${members.map(({ host }) => host).join(",")}/?replicaSet=${name}`;
  const findPrimary = () =>
    operateOn(url, { serverSelectionTimeoutMS: startTimeoutMs }, async (client) => {
      const hello = await client.db("admin").command({ hello: 1 });
      return String(hello.primary);
    });
  await findPrimary();
  return {
    url,
    members,
    async primary() {
      const host = await findPrimary();
      const member = members.find((each) => each.host === host);
      if (!member) throw new Error(`${host} is not a member of this replica set`);
      return member;
    },
    async stop() {
      await Promise.all(members.map((member) => member.kill()));
      await removeFolder();
    },
  };
}

async function startMember(program: string, folder: string, replicaSet: string): Promise<TestMongod> {
  await mkdir(folder);
  const port = await findFreePort();
  const host = `127.0.0.1:${port}`;
  const log = join(folder, "mongod.log");
  let server: RunningProcess;
  const start = async () => {
    const place = [
      "--bind_ip",
      "127.0.0.1",
      "--port",
      `${port}`,
      "--nounixsocket",
      "--dbpath",
      folder,
      "--logpath",
      log,
    ];
    const size = ["--wiredTigerCacheSizeGB", "0.5", "--oplogSize", "64"];
    const quiet = ["--setParameter", "diagnosticDataCollectionEnabled=false"];
    // Deletes expired documents every second instead of every minute.
    const prompt = ["--setParameter", "ttlMonitorSleepSecs=1"];
    server = startProcess(program, ["--replSet", replicaSet, ...place, ...size, ...quiet, ...prompt], { env: {} });
    await awaitAnswer(host, server, log);
  };
  await start();
  return {
    host,
    start,
    kill: () => server.kill(),
    pause: () => server.pause(),
    resume: () => server.resume(),
  };
}

async function awaitAnswer(host: string, server: RunningProcess, log: string): Promise<void> {
  const deadline = Date.now() + startTimeoutMs;
  const answers = () =>
    operateOn(`mongodb://${host}`, { directConnection: true, serverSelectionTimeoutMS: 500 }, (client) =>
      client.db("admin").command({ ping: 1 }),
    ).then(
      () => true,
      () => false,
    );
  while (!(await answers())) {
    if (server.child.exitCode !== null || Date.now() > deadline) {
      await server.kill();
      const logged = await readFile(log, "utf8").catch(() => "");
      throw new Error(`mongod did not start: ${server.output()}${logged.slice(-2_000)}`);
    }
    await delay(50);
  }
}

/** What sorts a bounded number says so. */
const unboundedSort = { hasSortStage: true, "command.comment": { $not: /^sorts fewer than / } };

/** The profiler notes how every operation was done. */
async function createDatabase(url: string): Promise<TestDatabase> {
  const name = `sandgate_test_${randomBytes(6).toString("hex")}`;
  await operateOn(url, {}, async (client) => {
    await client.db(name).createCollection("system.profile", { capped: true, size: 16 * 1024 * 1024 });
    await client.db(name).command({ profile: 2 });
  });
  return {
    url,
    name,
    countExamined: (work) =>
      operateOn(url, {}, async (client) => {
        const profile = client.db(name).collection("system.profile");
        const before = await profile.countDocuments();
        await work();
        const operations = await profile.find().skip(before).toArray();
        return operations
          .filter(({ appName }) => appName === "sandgate")
          .reduce((sum, { keysExamined = 0, docsExamined = 0 }) => sum + keysExamined + docsExamined, 0);
      }),
    drop: () =>
      operateOn(url, {}, async (client) => {
        const db = client.db(name);
        await db.command({ profile: 0 });
        const offenders = await db
          .collection("system.profile")
          .find({ appName: "sandgate", $or: [{ planSummary: /COLLSCAN/ }, unboundedSort] })
          .toArray();
        await db.dropDatabase();
        if (offenders.length === 0) return;
        const shown = offenders.map(
          ({ ns, command, planSummary }) => `${ns} ${planSummary} ${JSON.stringify(command)}`,
        );
        throw new Error(`operations that no index serves:\n${[...new Set(shown)].join("\n")}`);
      }),
  };
}

async function operateOn<T>(
  url: string,
  options: MongoClientOptions,
  work: (client: MongoClient) => Promise<T>,
): Promise<T> {
  const client = new MongoClient(url, options);
  try {
    return await work(client);
  } finally {
    await client.close();
  }
}

async function findOnPath(): Promise<string> {
  const { stdout } = await execute("sh", ["-c", "command -v mongod"]).catch((cause: unknown) => {
    throw new Error("mongod is not on PATH", { cause });
  });
  return stdout.trim();
}

/** Finds out first whether the host answers at all: the library would wait for long. */
async function download(): Promise<string> {
  await fetch(downloadHost, { method: "HEAD", signal: AbortSignal.timeout(5_000) }).catch((cause: unknown) => {
    throw new Error(`${downloadHost} can't be reached`, { cause });
  });
  const { MongoBinary } = await import("mongodb-memory-server-core");
  return MongoBinary.getPath({ version: downloadVersion, downloadDir: cacheFolder });
}
