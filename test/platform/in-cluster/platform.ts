import { execFile } from "node:child_process";
import { mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
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
import { findFreePort, startProcess } from "@sandgate/test-support/process";
import { type Credential, probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { type Document, MongoClient } from "mongodb";
import { applyManifests, deployed } from "../../deploy/cluster-rights.ts";
import { archivePlatform, archiveProgram } from "./images.ts";
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
   * Ends one replica of a process by SIGKILL, and for good: there is one less from now on. Not for those that a HorizontalPodAutoscaler
   * brings back.
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
 * Starts a cluster, gives its node the images, and applies deploy/kubernetes/overlays/pods under an overlay that sets what an
 * operator would: images, addresses, requests of CPU for a small node, and how many replicas each process has.
 */
export async function startInCluster(o: {
  settings?: Readonly<Record<string, string>>;
  replicas: number;
  /** One unless given. Two need kube-router. */
  nodes?: 1 | 2;
}): Promise<ClusterPlatform> {
  await using starting = new AsyncDisposableStack();
  const { path: folder } = starting.use(await createTempFolder());
  const archives = makeArchives(folder);
  // Both have ended before anything is taken down.
  const enforcePolicies = await probePolicies().then(
    () => true,
    () => false,
  );
  const { nodes = 1 } = o;
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
  const url = `http://${own.nodeAddress}:${facadePort}`;
  await mkdir(join(folder, "overlay"));
  const overlay: Overlay = {
    tag: image.tag,
    own,
    registries,
    facadePort,
    replicas: o.replicas,
    apiServer: { address: outside, port: Number(new URL(cluster.server).port) },
    settings: { SANDGATE_PUBLIC_URL: url, SANDGATE_EVENTS: `nats://nats.${serversNamespace}:4222`, ...o.settings },
    defaultImage: `default=${defaultImage},8080`,
  };
  await writeOverlay(folder, overlay);
  await run(withOverlay(others.join("\n")));
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
      await writeOverlay(folder, { ...overlay, tag: image.nextTag });
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

/** The processes in the containers of a pod. */
async function findProcesses(podUid: string): Promise<number[]> {
  const found: number[] = [];
  for (const name of await readdir("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    const groups = await readFile(`/proc/${name}/cgroup`, "utf8").catch(() => "");
    const program = await readFile(`/proc/${name}/cmdline`, "utf8").catch(() => "");
    // The pod's own process only keeps its network.
    if (groups.includes(`pod${podUid}/`) && program.includes("main.ts")) found.push(Number(name));
  }
  if (found.length === 0) throw new Error(`there is no process of the pod ${podUid}`);
  return found;
}

/** As deploy/compose/mongodb-users.js does it: the replica set of one, and a user for each service with a database of its own. */
async function initiateDatabases(cluster: TestCluster, own: OwnCluster, folder: string): Promise<void> {
  const pod = { namespace: serversNamespace, name: "mongodb-0" };
  await awaitPods(cluster, "kube-system");
  await awaitPods(cluster, serversNamespace);
  // The first user may be made from the server's own loopback address alone.
  const port = await findFreePort();
  const forward = startProcess(
    own.kubectlProgram,
    [`--kubeconfig=${cluster.kubeconfig}`, `--namespace=${pod.namespace}`, "port-forward", pod.name, `${port}:27017`],
    // Where kubectl keeps what it has found out.
    { env: { HOME: folder } },
  );
  const operate = async (auth: string, work: (run: (command: Document) => Promise<Document>) => Promise<unknown>) => {
    const client = new MongoClient(`mongodb://${auth}127.0.0.1:${port}`, { directConnection: true });
    try {
      return await work((command) => client.db("admin").command(command));
    } finally {
      await client.close();
    }
  };
  try {
    await until(() => {
      if (!forward.output().includes("Forwarding from")) throw new Error(`kubectl port-forward: ${forward.output()}`);
    });
    const password = await readFile(join(folder, "secrets/mongodb/root-password"), "utf8");
    await operate("", async (run) => {
      await run({ replSetInitiate: { _id: "rs0", members: [{ _id: 0, host: databases.host }] } });
      await until(async () => {
        if (!(await run({ hello: 1 })).isWritablePrimary) throw new Error("the replica set has no primary");
      });
      await run({ createUser: "root", pwd: password, roles: ["root"] });
    });
    await operate(`root:${password}@`, async (run) => {
      for (const service of ["identity", "workspace", "image-registry", "sandbox", "telemetry"]) {
        const address = new URL(await readFile(join(folder, `secrets/${service}/database`), "utf8"));
        const roles = [{ role: "readWrite", db: `sandgate_${service.replace("-", "_")}` }];
        await run({ createUser: address.username, pwd: address.password, roles });
      }
    });
  } finally {
    await forward.stop();
  }
}

/** Waits for each pod of a namespace. */
async function awaitPods(cluster: TestCluster, namespace: string): Promise<void> {
  const pods = ["--namespace", namespace, "pods", "--all"];
  await until(async () => {
    const names = await cluster.kubectl("get", "pods", "--namespace", namespace, "--output=name");
    if (names === "") throw new Error(`there is no pod in ${namespace}`);
  });
  await cluster.kubectl("wait", "--for=condition=Ready", "--timeout=180s", ...pods).catch(async (cause: Error) => {
    const states = await cluster.kubectl("describe", "pods", "--namespace", namespace);
    throw new Error(`pods of ${namespace} are not ready:\n${states.slice(-6_000)}`, { cause });
  });
}

async function awaitReady(cluster: TestCluster, url: string): Promise<void> {
  for (const namespace of [deployed.sandbox.namespace, deployed.collector.namespace])
    await awaitPods(cluster, namespace);
  await until(
    async () => {
      const answer = await fetch(`${url}/readyz`);
      if (!answer.ok) throw new Error(`${url}/readyz: ${answer.status} ${await answer.text()}`);
      await answer.body?.cancel();
    },
    { intervalMs: 100 },
  );
}

function describeVariable([name, value]: [string, string | { fieldRef: object }]): object {
  return typeof value === "string" ? { name, value } : { name, valueFrom: value };
}

interface Overlay {
  own: OwnCluster;
  /** Of the platform's image. */
  tag: string;
  registries: readonly string[];
  facadePort: number;
  apiServer: { address: string; port: number };
  replicas: number;
  settings: Readonly<Record<string, string>>;
  defaultImage: string;
}

async function writeOverlay(folder: string, o: Overlay): Promise<void> {
  const { kustomization, policies } = describeOverlay(o);
  // JSON is YAML.
  await writeFile(join(folder, "overlay/kustomization.yaml"), JSON.stringify(kustomization));
  await writeFile(join(folder, "overlay/policies.yaml"), JSON.stringify(policies));
}

/** What an operator writes over overlays/pods. */
function describeOverlay(o: Overlay) {
  const { own } = o;
  const variables = (kind: string, name: string, values: Readonly<Record<string, string | { fieldRef: object }>>) => ({
    patch: JSON.stringify({
      apiVersion: "apps/v1",
      kind,
      metadata: { name, namespace: "any" },
      spec: {
        template: {
          spec: {
            containers: [{ name: "process", env: Object.entries(values).map(describeVariable) }],
          },
        },
      },
    }),
    target: { kind, name },
  });
  const change = (kind: string, name: string | undefined, ...operations: object[]) => ({
    patch: JSON.stringify(operations),
    target: { kind, ...(name && { name }) },
  });
  const replace = (path: string, value: unknown) => ({ op: "replace", path, value });
  const kubeletPort = Number(new URL(own.kubeletUrl).port);
  return {
    kustomization: {
      apiVersion: "kustomize.config.k8s.io/v1beta1",
      kind: "Kustomization",
      resources: ["../deploy/kubernetes/overlays/pods", "policies.yaml"],
      images: [{ name: "sandgate", newName: image.name, newTag: o.tag }],
      configMapGenerator: [
        {
          name: "settings",
          namespace: deployed.sandbox.namespace,
          behavior: "merge",
          literals: Object.entries(o.settings).map(([name, value]) => `${name}=${value}`),
        },
      ],
      replicas: ["workspace", "image-registry", "sandbox", "telemetry"].map((name) => ({ name, count: o.replicas })),
      patches: [
        change("HorizontalPodAutoscaler", undefined, replace("/spec/minReplicas", o.replicas)),
        change("Deployment", undefined, replace("/spec/template/spec/containers/0/resources/requests/cpu", "30m")),
        change(
          "Service",
          "facade",
          { op: "add", path: "/spec/type", value: "NodePort" },
          { op: "add", path: "/spec/ports/0/nodePort", value: o.facadePort },
        ),
        variables("Deployment", "identity", { SANDGATE_SMTP_URL_FILE: "/run/sandgate/smtp-url" }),
        variables("Deployment", "image-registry", {
          SANDGATE_REGISTRY_ALLOW: o.registries.join(),
          SANDGATE_DEFAULT_IMAGE: o.defaultImage,
        }),
        variables("Deployment", "sandbox", { SANDGATE_REGISTRY_ALLOW: o.registries.join() }),
        ...["facade", "identity"].map((name) =>
          variables("Deployment", name, { SANDGATE_REDIRECT_URIS: o.settings.SANDGATE_REDIRECT_URIS ?? "" }),
        ),
        variables("DaemonSet", "collector", {
          NODE_ADDRESS: { fieldRef: { fieldPath: "status.hostIP" } },
          SANDGATE_KUBELET_URL: `https://$(NODE_ADDRESS):${kubeletPort}`,
        }),
        // Several kubelets share this machine.
        change("DaemonSet", "collector", replace("/spec/template/spec/volumes/1/hostPath/path", own.podLogsFolder)),
        change("NetworkPolicy", "collector", replace("/spec/egress/2/ports/0/port", kubeletPort)),
        change(
          "NetworkPolicy",
          "to-api-server",
          replace("/spec/egress/0/to/0/ipBlock/cidr", `${o.apiServer.address}/32`),
          replace("/spec/egress/0/ports/1/port", o.apiServer.port),
        ),
      ],
    },
    policies: {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata: { name: "to-private-registry", namespace: deployed.sandbox.namespace },
      spec: {
        podSelector: {
          matchExpressions: [{ key: "app.kubernetes.io/name", operator: "In", values: ["image-registry", "sandbox"] }],
        },
        policyTypes: ["Egress"],
        egress: o.registries.map((host) => {
          const [address, port] = host.split(":");
          return { to: [{ ipBlock: { cidr: `${address}/32` } }], ports: [{ port: Number(port) }] };
        }),
      },
    },
  };
}
