import { execFile } from "node:child_process";
import { mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import {
  type OwnCluster,
  openTestCluster,
  probeCluster,
  probePolicies,
  type TestCluster,
} from "@sandgate/test-support/cluster";
import { describeDns, dnsOfKubelet, probeServices, startServices } from "@sandgate/test-support/cluster-services";
import { startMailServer, storeMailsIn } from "@sandgate/test-support/mail-server";
import { findMongod } from "@sandgate/test-support/mongo";
import { findNatsServer } from "@sandgate/test-support/nats";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { type Credential, probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { applyManifests, deployed } from "../../deploy/cluster-rights.ts";
import { initiateDatabases } from "./databases.ts";
import { archivePlatform, archiveProgram } from "./images.ts";
import { type Overlay, writeOverlay } from "./overlay.ts";
import { awaitPods, awaitReady, findProcesses } from "./pods.ts";
import { databases, describeServers, serversNamespace } from "./servers.ts";

const execute = promisify(execFile);

const root = join(import.meta.dirname, "../../..");
const image = { name: "registry.test/sandgate", tag: "1", nextTag: "2" };
const imageName = `${image.name}:${image.tag}`;
const nextImageName = `${image.name}:${image.nextTag}`;
const smtpPort = 587;

/** The platform as pods of a real cluster, by the manifests and the steps that deploy/README.md gives. */
export interface ClusterPlatform {
  cluster: TestCluster;
  own: OwnCluster;
  /** Whether kube-router is there, which enforces the NetworkPolicies. */
  enforcesPolicies: boolean;
  /** Where the facade's Service is. */
  url: string;
  /** Where the Service of the gateway of previews is; undefined without one. */
  gatewayUrl: string | undefined;
  /** The address that its Service sees this process come from. */
  clientAddress: string;
  /** The operator account. */
  admin: { username: string; password: string };
  /** Each mail is a file here. */
  mailFolder: string;
  /** `host:port` of a registry without users that the platform and the node pull from. */
  registry: string;
  /** Another one, and its user. */
  privateRegistry: { host: string; credential: Credential };
  /** Ends all replicas of a process (a Deployment) as a crash would, and for good. */
  kill(process: string): Promise<void>;
  /**
   * Ends one replica of a process by SIGKILL, and for good: there is one less from now on. Not for those that a
   * HorizontalPodAutoscaler brings back.
   */
  killOne(process: string): Promise<void>;
  /** Starts them again. */
  start(process: string): Promise<void>;
  /** Upgrades all to an image of another tag, by the commands of deploy/README.md, and waits until that is done. */
  upgrade(): Promise<void>;
  /** What they run then. */
  nextImage: string;
  /** Brings the namespace of sandboxes back once it was deleted, by the commands of deploy/README.md. */
  restoreNamespace(): Promise<void>;
  /** The metrics of one replica of a process. */
  readMetrics(process: string): Promise<string>;
  stop(): Promise<void>;
}

/** Says what is missing unless `startInCluster` has all it needs. */
export async function requireInCluster(): Promise<boolean> {
  const servers = [
    await requireServer("kubernetes", async () => {
      if (process.env.KUBECONFIG) throw new Error("the nodes of the cluster at KUBECONFIG can't be given images");
      await probeCluster();
      await probeServices();
    }),
    await requireServer("registry", probeRegistry),
    await requireServer("mongo", findMongod),
    await requireServer("nats", findNatsServer),
  ];
  return servers.every(Boolean);
}

/**
 * Starts a cluster, gives its node the images, and applies deploy/kubernetes/overlays/pods under an overlay that sets
 * what an operator would: images, addresses, requests of CPU for a small node, and how many replicas each process has.
 */
export async function startInCluster(o: {
  settings?: Readonly<Record<string, string>>;
  replicas: number;
  /** One unless given. Two need kube-router. */
  nodes?: 1 | 2;
  /** Whether previews have a gateway of their own, at names below `previews.test`. */
  gateway?: boolean;
}): Promise<ClusterPlatform> {
  await using starting = new AsyncDisposableStack();
  const { path: folder } = starting.use(await createTempFolder());
  const archives = makeArchives(folder);
  // Both have ended before anything is taken down.
  const enforcePolicies = await probePolicies().then(
    () => true,
    () => false,
  );
  const { nodes = 1, gateway = false } = o;
  const opening = openTestCluster({ kubelet: dnsOfKubelet, enforcePolicies, nodes });
  const [opened] = await Promise.allSettled([opening, archives]);
  if (opened.status === "rejected") throw opened.reason;
  const cluster = starting.adopt(opened.value, (each) => each.stop());
  await archives;
  const { own } = cluster;
  if (!own) throw new Error("unreachable: the cluster was started here");
  starting.use(await startServices(cluster, own));
  for (const name of ["platform", "mongodb", "nats"]) await own.importImages(join(folder, name, "image.tar"));
  const outside = own.network?.hostAddress ?? own.nodeAddress;
  const registry = starting.adopt(await startRegistry({ address: outside }), (each) => each.stop());
  const credential = { username: "alice", password: "correct horse" };
  const users = [credential];
  const privateRegistry = starting.adopt(await startRegistry({ address: outside, users }), (each) => each.stop());
  const registries = [registry.host, privateRegistry.host];
  for (const host of registries) await own.trustRegistry(host);
  const mailFolder = join(folder, "mail");
  await mkdir(mailFolder);
  starting.use(await startMailServer({ address: outside, port: smtpPort, receive: storeMailsIn(mailFolder) }));
  const defaultImage = await pushImage(
    await makeImage({
      command: ["/bin/sh", "/start"],
      files: Object.fromEntries(
        await Promise.all(
          ["start", "www/index.html"].map(async (path) => {
            const file = join(root, "deploy/local/default-image", path.replace("www/", ""));
            return [path, await readFile(file, "utf8")];
          }),
        ),
      ),
    }),
    { host: registry.host, repository: "sandgate/default" },
  );

  // The steps of the operator, in a folder that looks like the repository's.
  for (const name of ["deploy", "services", "node_modules"]) await symlink(join(root, name), join(folder, name));
  const env = {
    HOME: folder,
    KUBECONFIG: cluster.kubeconfig,
    PATH: [dirname(own.kubectlProgram), dirname(process.execPath), process.env.PATH].join(":"),
  };
  const run = (script: string) => execute("sh", ["-euc", script], { cwd: folder, env });
  const [makeSecrets = "", ...others] = (await readSteps("On a cluster: Kubernetes")).split("\n");
  await run(makeSecrets.replace(/MONGODB_HOSTS=\S+/, `MONGODB_HOSTS=${databases.host}`));
  await writeFile(join(folder, "secrets/identity/smtp-url"), `smtp://${outside}:${smtpPort}`);
  await applyManifests(cluster, [{ apiVersion: "v1", kind: "Namespace", metadata: { name: serversNamespace } }]);
  await run(`
    kubectl -n ${serversNamespace} create secret generic mongodb --from-file=secrets/mongodb
    kubectl -n ${serversNamespace} create secret generic nats --from-env-file=secrets/nats/passwords.env
    kubectl -n ${serversNamespace} create configmap nats --from-file=deploy/nats`);
  // These lose what they have with their pods, so the first node, which stays, has them.
  if (own.second) await cluster.kubectl("cordon", own.second.nodeName);
  await applyManifests(cluster, [...(await describeDns(imageName)), ...describeServers()]);
  await initiateDatabases(cluster, own, folder);
  if (own.second) await cluster.kubectl("uncordon", own.second.nodeName);

  const facadePort = 30_080;
  const gatewayPort = gateway ? 30_081 : undefined;
  const url = `http://${own.nodeAddress}:${facadePort}`;
  await mkdir(join(folder, "overlay"));
  const overlay: Overlay = {
    image: { name: image.name, tag: image.tag },
    own,
    registries,
    facadePort,
    gatewayPort,
    replicas: o.replicas,
    apiServer: { address: outside, port: Number(new URL(cluster.server).port) },
    settings: {
      SANDGATE_PUBLIC_URL: url,
      SANDGATE_EVENTS: `nats://nats.${serversNamespace}:4222`,
      SANDGATE_REGISTRATION: "open",
      ...(gateway && { SANDGATE_PREVIEW_DOMAIN: "previews.test" }),
      ...o.settings,
    },
    defaultImage: `default=${defaultImage},8080`,
  };
  await writeOverlay(folder, overlay);
  // Its Secret, once there is the namespace.
  const ofGateway = gateway ? await readSteps("Previews") : "";
  await run(withOverlay(others.join("\n").replace(/^kubectl apply -k /m, `${ofGateway}$&`)));
  const password = await readFile(join(folder, "secrets/identity/admin-password"), "utf8");
  await awaitReady(cluster, url);

  const at = ["--namespace", deployed.sandbox.namespace];
  const podsOf = (name: string) => [...at, "pods", `--selector=app.kubernetes.io/name=${name}`];
  const started = starting.move();
  return {
    cluster,
    own,
    enforcesPolicies: enforcePolicies,
    url,
    gatewayUrl: gatewayPort && `http://${own.nodeAddress}:${gatewayPort}`,
    clientAddress: outside,
    admin: { username: "admin@localhost", password },
    mailFolder,
    registry: registry.host,
    privateRegistry: { host: privateRegistry.host, credential },
    async kill(name) {
      await cluster.kubectl("scale", ...at, `deployment/${name}`, "--replicas=0");
      await cluster.kubectl("delete", ...podsOf(name), "--force", "--grace-period=0", "--wait=true");
    },
    async killOne(name) {
      const column = "--output=jsonpath={.items[0].metadata.name} {.items[0].metadata.uid} {.items[*].metadata.name}";
      const [pod = "", uid = "", ...all] = (await cluster.kubectl("get", ...podsOf(name), column)).split(" ");
      // So that it is this one which is not started again, nor replaced.
      await cluster.kubectl("annotate", ...at, "pod", pod, "controller.kubernetes.io/pod-deletion-cost=-1");
      await cluster.kubectl("scale", ...at, `deployment/${name}`, `--replicas=${all.length - 1}`);
      await until(async () => {
        const deleted = ["--output=jsonpath={.metadata.deletionTimestamp}"];
        if ((await cluster.kubectl("get", ...at, "pod", pod, ...deleted)) === "") throw new Error(`${pod} stays`);
      });
      for (const pid of await findProcesses(uid)) process.kill(pid, "SIGKILL");
    },
    async start(name) {
      await cluster.kubectl("scale", ...at, `deployment/${name}`, `--replicas=${o.replicas}`);
      await awaitPods(cluster, deployed.sandbox.namespace);
    },
    nextImage: nextImageName,
    async upgrade() {
      await own.tagImage(imageName, nextImageName);
      await writeOverlay(folder, { ...overlay, image: { name: image.name, tag: image.nextTag } });
      await run(withOverlay(await readSteps("Upgrade")).replace(/image=\S+/, `image=${nextImageName}`));
    },
    async restoreNamespace() {
      await run(withOverlay(await readSteps("Drills")));
    },
    readMetrics: (name) => {
      const program = "fetch('http://127.0.0.1:9464/metrics').then(async (answer) => console.log(await answer.text()))";
      return cluster.kubectl("exec", ...at, `deployment/${name}`, "--", "node", "--eval", program);
    },
    stop: () => started.disposeAsync(),
  };
}

async function makeArchives(folder: string): Promise<void> {
  const below = async (name: string) => {
    await mkdir(join(folder, name));
    return join(folder, name);
  };
  await Promise.all([
    archivePlatform({ folder: await below("platform"), name: imageName }),
    archiveProgram({
      folder: await below("mongodb"),
      name: databases.image,
      program: await findMongod(),
      place: "/usr/local/bin/mongod",
    }),
    archiveProgram({
      folder: await below("nats"),
      name: "registry.test/nats-server:1",
      program: await findNatsServer(),
      place: "/usr/local/bin/nats-server",
    }),
  ]);
}

/** The first commands that deploy/README.md has under a heading. */
async function readSteps(heading: string): Promise<string> {
  const text = await readFile(join(root, "deploy/README.md"), "utf8");
  const [, steps] = new RegExp(`^#+ ${heading}$[\\s\\S]*?^ *\`\`\`sh\\n([\\s\\S]*?)^ *\`\`\`$`, "m").exec(text) ?? [];
  if (!steps) throw new Error(`deploy/README.md has no commands under "${heading}"`);
  return steps;
}

function withOverlay(commands: string): string {
  return commands.replaceAll("deploy/kubernetes/overlays/pods", "overlay");
}
