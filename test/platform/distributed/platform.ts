import { randomBytes } from "node:crypto";
import { join } from "node:path";
import type { ServiceName } from "@sandgate/kit/base/service-names";
import { makeKeys } from "@sandgate/kit/rpc/internal-keys";
import type { TlsFiles } from "@sandgate/kit/rpc/tls";
import type { FaultProxy } from "@sandgate/test-support/fault-proxy";
import { probeMongo, type TestReplicaSet } from "@sandgate/test-support/mongo";
import { findNatsServer, type TestNats } from "@sandgate/test-support/nats";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import type { ContainerInfo } from "dockerode";
import { type Db, MongoClient } from "mongodb";
import { removeHostObjects } from "../host-objects.ts";
import { listInstallation } from "../local.ts";
import { type Dependency, openFaultProxies } from "./fault-proxies.ts";
import { planPorts } from "./ports.ts";
import { launchReplica, type Part, type Replica } from "./replica.ts";
import { type Servers, startServers } from "./servers.ts";
import { commonSettings, replicaSettings, tlsSettings } from "./settings.ts";

const root = join(import.meta.dirname, "../../..");

/** One replica of each part. */
export const single: Record<Part, number> = {
  facade: 1,
  identity: 1,
  workspace: 1,
  "image-registry": 1,
  sandbox: 1,
  telemetry: 1,
};

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
  readonly natsUrl: Servers["natsUrl"];
  readonly replicas: readonly Replica[];
  /** A replica by its place. */
  replica(part: Part, index: number): Replica;
  /**
   * What all replicas of a part reach a dependency through; only of a platform that was started with `faultProxies`.
   */
  faultProxy(from: Part, to: Dependency): FaultProxy;
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
 * Starts the platform and waits until each process is ready. `settings` are environment variables for all of them;
 * there are no rate limits unless set.
 */
export async function startDistributed(
  o: {
    settings?: Record<string, string>;
    /** Of each part; two unless given. */
    replicas?: Partial<Record<Part, number>>;
    /** Of the MongoDB replica set; one unless given. */
    members?: number;
    /** Each part reaches each dependency through a fault proxy of its own. With one replica of each. */
    faultProxies?: boolean;
    /** Makes certificates for a host, by which the processes call each other with TLS. */
    certify?(host: string): Promise<TlsFiles>;
    /** The folder whose code a replica runs; this one unless given. */
    codeRoot?(part: Part, index: number): string;
  } = {},
): Promise<DistributedPlatform> {
  await using starting = new AsyncDisposableStack();
  const { path: folder } = starting.use(await createTempFolder());
  const keysFolder = join(folder, "keys");
  const servers = starting.use(await startServers(o.members ?? 1));
  await makeKeys(keysFolder);
  const ports = await planPorts((part) => o.replicas?.[part] ?? 2);
  const proxies = o.faultProxies ? starting.use(await openFaultProxies(ports, servers)) : undefined;
  const { host, urlsOf } = ports;
  const [url = "", ...otherUrls] = urlsOf("facade");
  const admin = { username: "admin@localhost", password: randomBytes(12).toString("base64url") };
  const common = await commonSettings({ folder, keysFolder, host, admin, databaseUrl: servers.mongo.url, urlsOf });
  const secure = o.certify && tlsSettings(await o.certify(host), urlsOf);

  const replicas = ports.replicas.map((place) => {
    const { part, index, port, adminPort } = place;
    const adminSocket = join(folder, `${part}-${index}.sock`);
    const replica = launchReplica({
      part,
      codeRoot: o.codeRoot?.(part, index) ?? root,
      url: `http://${host}:${port}`,
      adminUrl: `http://${host}:${adminPort}`,
      adminSocket,
      env: {
        ...common,
        ...secure,
        ...o.settings,
        ...replicaSettings(place, { adminSocket, keysFolder, natsUrl: servers.natsUrl }),
        ...proxies?.settingsOf(part),
      },
    });
    return starting.adopt(replica, (each) => each.kill());
  });
  await Promise.all(replicas.map((each) => each.ready()));

  const client = starting.adopt(new MongoClient(servers.mongo.url), (each) => each.close());
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
    mongo: servers.mongo,
    nats: servers.nats,
    natsUrl: servers.natsUrl,
    replicas,
    replica(part, index) {
      const found = replicas.filter((each) => each.part === part)[index];
      if (!found) throw new Error(`there is no replica ${index} of ${part}`);
      return found;
    },
    faultProxy(from, to) {
      if (!proxies) throw new Error("this platform was started without fault proxies");
      return proxies.between(from, to);
    },
    database,
    containers: (sandboxId) => listInstallation(installationId, sandboxId),
    async stop() {
      await Promise.all(replicas.map((each) => each.kill()));
      // Pods go with their cluster.
      if (!o.settings?.SANDGATE_RUNTIME?.startsWith("kubernetes:")) await removeHostObjects(installationId);
      await started.disposeAsync();
    },
  };
}
