import { randomBytes, randomInt } from "node:crypto";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import type { NetConnectOpts } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type ServiceName, serviceNames } from "@sandgate/kit/base/service-names";
import { makeKeys } from "@sandgate/kit/rpc/internal-keys";
import type { ContainerInfo } from "dockerode";
import { type Db, MongoClient } from "mongodb";
import { type Edge, openEdge } from "./edge.ts";
import { engineSocket } from "./images.ts";
import { probeMongo, startReplicaSet, type TestReplicaSet } from "./mongo.ts";
import { findNatsServer, startNats, type TestNats } from "./nats.ts";
import { defaultImageSetting, listInstallation, removeContainers, withoutSettings } from "./platform.ts";
import { findFreePort, type RunningProcess, startProcess } from "./process.ts";
import { requireServer } from "./require.ts";

const root = join(import.meta.dirname, "../..");
const startTimeoutMs = 240_000;

export type Part = "facade" | ServiceName;
export const parts: readonly Part[] = ["facade", ...serviceNames];
/** One replica of each part. */
export const single: Record<Part, number> = {
  facade: 1,
  identity: 1,
  workspace: 1,
  "image-registry": 1,
  sandbox: 1,
  telemetry: 1,
};

/** What a process depends on over a network. */
export type Dependency = ServiceName | "mongo" | "nats" | "engine";

/** One process of the distributed form. */
export interface Replica {
  readonly part: Part;
  /** "http://127.1.2.3:20123": the public API of a facade, the RPCs of a service. */
  readonly url: string;
  /** Where operators find metrics and health. */
  readonly adminUrl: string;
  /** The process of the last start. */
  readonly process: RunningProcess;
  /** SIGKILL, as a crash would. */
  kill(): Promise<void>;
  /** SIGTERM, and the exit code. */
  terminate(): Promise<number | null>;
  /** Starts it again on the same ports once it has ended, these settings or its code changed. Resolves when it is ready. */
  start(settings?: Record<string, string>, codeRoot?: string): Promise<void>;
}

/** The platform as processes of its own on a real MongoDB replica set and a real nats-server, both its own. */
export interface DistributedPlatform {
  /** Where the first facade is. */
  readonly url: string;
  /** Where each facade is. */
  readonly urls: [string, ...string[]];
  /** The operator account. */
  readonly admin: { username: string; password: string };
  /** Each mail is a file here. */
  readonly mailFolder: string;
  /** The private key of each caller, and the public ones, as the kit's command makes them. */
  readonly keysFolder: string;
  readonly mongo: TestReplicaSet;
  readonly nats: TestNats;
  /** The address of NATS with a user of deploy/nats and its password. */
  natsUrl(user: Part | "operator"): string;
  readonly replicas: readonly Replica[];
  /** A replica by its place. */
  replica(part: Part, index: number): Replica;
  /** The network from all replicas of a part to all of what they depend on; only of a platform that was started with `edges`. */
  edge(from: Part, to: Dependency): Edge;
  /** Reads a service's database. */
  database(service: ServiceName): Db;
  /** The containers of its sandboxes, in whatever state; of one sandbox when it is named. */
  containers(sandboxId?: string): Promise<ContainerInfo[]>;
  /** Ends everything, and removes its sandboxes and its folders. */
  stop(): Promise<void>;
}

/** Whether the servers of the distributed form can be had; says so when they can't. */
export async function requireDistributed(): Promise<boolean> {
  const found = [await requireServer("mongo", probeMongo), await requireServer("nats", findNatsServer)];
  return found.every(Boolean);
}

/**
 * Starts the platform and waits until each process is ready. `settings` are environment variables for all of them; there are
 * no rate limits unless set.
 */
export async function startDistributed(
  o: {
    settings?: Record<string, string>;
    /** Of each part; two unless given. */
    replicas?: Partial<Record<Part, number>>;
    /** Of the MongoDB replica set; one unless given. */
    members?: number;
    /** Each part reaches what it depends on by a network of its own, which the test can break: `edge`. With one replica of each. */
    edges?: boolean;
    /** The folder whose code a replica runs; this one unless given. */
    codeRoot?(part: Part, index: number): string;
  } = {},
): Promise<DistributedPlatform> {
  await using starting = new AsyncDisposableStack();
  const folder = starting.adopt(await mkdtemp(join(tmpdir(), "sandgate-distributed-")), (path) =>
    rm(path, { recursive: true }),
  );
  const keysFolder = join(folder, "keys");
  const passwords = new Map(
    [...parts, "operator" as const].map((user) => [user, `p${randomBytes(12).toString("hex")}`]),
  );
  const [mongo, nats] = await Promise.all([
    startReplicaSet({ members: o.members ?? 1 }).then((set) => starting.adopt(set, (each) => each.stop())),
    startNats({
      config: await readFile(join(root, "deploy/nats/accounts.conf"), "utf8"),
      env: Object.fromEntries(
        [...passwords].map(([user, password]) => [`SANDGATE_NATS_${toVariable(user)}_PASSWORD`, password]),
      ),
    }).then((server) => starting.adopt(server, (each) => each.stop())),
    makeKeys(keysFolder),
  ]);
  const natsUrl = (user: Part | "operator") => nats.url.replace("//", `//${user}:${passwords.get(user)}@`);

  // An address of its own, so that no other platform takes one of its ports before it does, or while a process is down.
  const host = `127.${randomInt(1, 255)}.${randomInt(256)}.${randomInt(1, 255)}`;
  const places: { part: Part; port: number; adminPort: number; codeRoot: string }[] = [];
  let port = await findFreePort(host);
  for (const part of parts) {
    for (let index = 0; index < (o.replicas?.[part] ?? 2); index++) {
      places.push({ part, port: port++, adminPort: port++, codeRoot: o.codeRoot?.(part, index) ?? root });
    }
  }
  const urlsOf = (part: Part) =>
    places.filter((place) => place.part === part).map(({ port }) => `http://${host}:${port}`);
  const [url = "", ...otherUrls] = urlsOf("facade");
  const admin = { username: "admin@localhost", password: randomBytes(12).toString("base64url") };
  const common = {
    ...withoutSettings(process.env),
    // The same modules are compiled in a dozen processes.
    NODE_COMPILE_CACHE: join(root, ".cache/compiled"),
    ...Object.fromEntries(
      serviceNames.map((service) => [`SANDGATE_${toVariable(service)}_URL`, urlsOf(service).join(",")]),
    ),
    SANDGATE_HOST: host,
    SANDGATE_ADMIN_HOST: host,
    SANDGATE_PUBLIC_URL: url,
    SANDGATE_DATABASE: mongo.url,
    SANDGATE_DATA: folder,
    SANDGATE_ADMIN_USERNAME: admin.username,
    SANDGATE_ADMIN_PASSWORD: admin.password,
    SANDGATE_DEFAULT_IMAGE: await defaultImageSetting(),
    SANDGATE_KEYS_FILE: join(keysFolder, "keyring.json"),
    SANDGATE_INTERNAL_JWKS_FILE: join(keysFolder, "jwks.json"),
    SANDGATE_RATE_LIMIT: "0",
    SANDGATE_SIGNIN_RATE_LIMIT: "0",
    ...o.settings,
  };
  const edges = new Map<string, Edge>();
  /** The settings by which a part reaches what it depends on over edges. */
  async function openEdges(part: Part): Promise<Record<string, string>> {
    const settings: Record<string, string> = {};
    const add = async (to: Dependency, target: NetConnectOpts, name: string, at: (address: string) => string) => {
      const listen = { host, port: port++ };
      const edge = starting.adopt(await openEdge({ listen, to: target }), (each) => each.close());
      edges.set(`${part} ${to}`, edge);
      settings[name] = at(`${host}:${listen.port}`);
    };
    const socketOf = (address: string) => ({ host: new URL(address).hostname, port: Number(new URL(address).port) });
    for (const service of serviceNames) {
      const name = `SANDGATE_${toVariable(service)}_URL`;
      await add(service, socketOf(urlsOf(service)[0] ?? ""), name, (address) => `http://${address}`);
    }
    // Otherwise the driver would go on to the address that the member has in the replica set.
    await add(
      "mongo",
      socketOf(mongo.url),
      "SANDGATE_DATABASE",
      (address) => `mongodb://${address}/?directConnection=true&serverSelectionTimeoutMS=5000`,
    );
    await add("nats", socketOf(nats.url), "SANDGATE_EVENTS", (address) => natsUrl(part).replace(/[^@]+$/, address));
    await add("engine", { path: engineSocket }, "SANDGATE_RUNTIME", (address) => `docker://${address}`);
    return settings;
  }
  const ownSettings = new Map<Part, Record<string, string>>();
  if (o.edges) for (const part of parts) ownSettings.set(part, await openEdges(part));
  const replicas = places.map(({ part, port, adminPort, codeRoot }) =>
    starting.adopt(
      launchReplica({
        part,
        codeRoot,
        url: `http://${host}:${port}`,
        adminUrl: `http://${host}:${adminPort}`,
        env: {
          ...common,
          SANDGATE_PORT: String(port),
          SANDGATE_ADMIN_PORT: String(adminPort),
          SANDGATE_EVENTS: natsUrl(part),
          SANDGATE_INTERNAL_KEY_FILE: join(keysFolder, `${part}.jwk.json`),
          ...ownSettings.get(part),
        },
      }),
      (each) => each.kill(),
    ),
  );
  await Promise.all(replicas.map((each) => each.ready()));

  const client = starting.adopt(new MongoClient(mongo.url), (each) => each.close());
  const database = (service: ServiceName) => client.db(`sandgate_${service.replaceAll("-", "_")}`);
  const installation = await database("sandbox").collection("installation").findOne({});
  const installationId = String(installation?.installationId);
  const started = starting.move();
  return {
    url,
    urls: [url, ...otherUrls],
    admin,
    mailFolder: join(folder, "mail"),
    keysFolder,
    mongo,
    nats,
    natsUrl,
    replicas,
    replica(part, index) {
      const found = replicas.filter((each) => each.part === part)[index];
      if (!found) throw new Error(`there is no replica ${index} of ${part}`);
      return found;
    },
    edge(from, to) {
      const found = edges.get(`${from} ${to}`);
      if (!found) throw new Error(`there is no edge from ${from} to ${to}`);
      return found;
    },
    database,
    containers: (sandboxId) => listInstallation(installationId, sandboxId),
    async stop() {
      await Promise.all(replicas.map((each) => each.kill()));
      await removeContainers(installationId);
      await started.disposeAsync();
    },
  };
}

/** `image-registry` in the names of settings: `IMAGE_REGISTRY`. */
function toVariable(name: string): string {
  return name.toUpperCase().replaceAll("-", "_");
}

/** Starts a process; `ready` resolves once it says that it is. */
function launchReplica(o: {
  part: Part;
  codeRoot: string;
  url: string;
  adminUrl: string;
  env: NodeJS.ProcessEnv;
}): Replica & { ready(): Promise<void> } {
  const program = o.part === "facade" ? "facade/src/main.ts" : `services/${o.part}/src/main.ts`;
  const launch = (settings: Record<string, string> = {}, codeRoot = o.codeRoot) =>
    startProcess(process.execPath, [join(codeRoot, program)], { cwd: codeRoot, env: { ...o.env, ...settings } });
  let running = launch();
  const ready = async (): Promise<void> => {
    const deadline = Date.now() + startTimeoutMs;
    while (running.child.exitCode === null && running.child.signalCode === null && Date.now() < deadline) {
      const answer = await fetch(`${o.adminUrl}/readyz`).catch(() => undefined);
      await answer?.body?.cancel();
      if (answer?.ok) return;
      await delay(50);
    }
    await running.kill();
    throw new Error(`${o.part} did not become ready:\n${running.output().slice(-4_000)}`);
  };
  return {
    part: o.part,
    url: o.url,
    adminUrl: o.adminUrl,
    get process() {
      return running;
    },
    kill: () => running.kill(),
    terminate: () => running.stop(60_000),
    async start(settings, codeRoot) {
      running = launch(settings, codeRoot);
      await ready();
    },
    ready,
  };
}
