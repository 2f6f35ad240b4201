// A cluster that is there already, of which a kubeconfig is all that is known. Suites use it one after the other, and
// take away what they made.

import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { TestCluster } from "./cluster.ts";
import { startProcess } from "./process.ts";
import { retry } from "./retry.ts";
import { createTempFolder } from "./temp-folder.ts";

const execute = promisify(execFile);
type Call = TestCluster["call"];

/** There while a suite uses the cluster. */
const lock = "sandgate-tests";
/** Shorter than a hook may take. */
const timeoutMs = 270_000;
/** Where deploy/kubernetes puts an installation, which suites would overwrite. */
const installation = "sandgate";
/** What is in no namespace and suites make some of. */
const kinds = [
  "/api/v1/namespaces",
  "/apis/rbac.authorization.k8s.io/v1/clusterroles",
  "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
  "/apis/scheduling.k8s.io/v1/priorityclasses",
  "/apis/node.k8s.io/v1/runtimeclasses",
];

interface Listed {
  items: { metadata: { name: string; namespace?: string; finalizers?: string[] } }[];
}

/** Throws, saying why, unless suites can use it. */
export async function probeOutsideCluster(kubeconfig: string): Promise<void> {
  const args = ["--kubeconfig", kubeconfig, "--request-timeout=5s", "get", "namespaces", "--output=name"];
  const { stdout } = await execute("kubectl", args);
  const names = stdout.split("\n");
  // Beside the lock it is another suite's, which takes it away in the end.
  if (names.includes(`namespace/${installation}`) && !names.includes(`namespace/${lock}`)) {
    throw new Error(`the cluster at KUBECONFIG has a namespace ${installation}, which suites would overwrite`);
  }
}

/** Waits until no other suite uses it. */
export async function openOutsideCluster(kubeconfig: string, registry: string): Promise<TestCluster> {
  await using opening = new AsyncDisposableStack();
  const { path: folder } = opening.use(await createTempFolder());
  const kubectl = async (...args: string[]): Promise<string> => {
    const { stdout } = await execute("kubectl", ["--kubeconfig", kubeconfig, ...args], { maxBuffer: 64 * 1024 * 1024 });
    return stdout;
  };
  const config = JSON.parse(await kubectl("config", "view", "--raw", "--minify", "--flatten", "--output=json"));
  // It signs in by whatever the kubeconfig says.
  const proxy = startProcess("kubectl", ["--kubeconfig", kubeconfig, "proxy", "--port=0"], { env: process.env });
  opening.defer(() => proxy.kill());
  const call = callBy(await findAddress(proxy.output));
  await takeTurn(call);
  opening.defer(() => call("DELETE", `/api/v1/namespaces/${lock}`).then(() => undefined));
  const pullsFromLoopback = /^(127\.|localhost\b|\[::1\])/.test(registry);
  const reasons = ["its nodes are neither changed nor looked into"];
  if (!pullsFromLoopback) reasons.push("they pull from no registry of this machine");
  process.stderr.write(`SKIPPED in part, on the cluster at KUBECONFIG: ${reasons.join(", and ")}\n`);
  const before = new Set(await listNames(call));
  opening.defer(() => removeSince(call, before));
  const opened = opening.move();
  return {
    kubeconfig,
    server: config.clusters[0].cluster.server,
    own: undefined,
    registry,
    pullsFromLoopback,
    kubectl,
    call,
    async writeKubeconfig(name, token) {
      const path = join(folder, name);
      const users = config.users.map((each: { name: string }) => ({ name: each.name, user: { token } }));
      await writeFile(path, JSON.stringify({ ...config, users }), { mode: 0o600 });
      return path;
    },
    stop: () => opened.disposeAsync(),
  };
}

function findAddress(output: () => string): Promise<string> {
  return retry(
    () => {
      const [, address] = /Starting to serve on (\S+)/.exec(output()) ?? [];
      if (!address) throw new Error(`kubectl proxy did not start: ${output()}`);
      return `http://${address}`;
    },
    { timeoutMs, intervalMs: 20 },
  );
}

function callBy(server: string): Call {
  return async (method, path, body) => {
    const type = method === "PATCH" ? "application/strategic-merge-patch+json" : "application/json";
    const response = await fetch(server + path, {
      method,
      ...(body !== undefined && { body: JSON.stringify(body), headers: { "content-type": type } }),
    });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text.slice(0, 500)}`);
    return text.startsWith("{") ? JSON.parse(text) : text;
  };
}

async function takeTurn(call: Call): Promise<void> {
  const make = () => call("POST", "/api/v1/namespaces", { metadata: { name: lock } });
  await retry(make, { timeoutMs, intervalMs: 500 }).catch((cause: unknown) => {
    const reason = `the cluster at KUBECONFIG has a namespace ${lock}: another run uses it, or was killed meanwhile`;
    throw new Error(reason, { cause });
  });
}

/** The paths of all objects of `kinds`. */
async function listNames(call: Call): Promise<string[]> {
  const lists = await Promise.all(
    kinds.map(async (kind) => {
      const { items } = (await call("GET", kind)) as Listed;
      return items.map(({ metadata }) => `${kind}/${metadata.name}`);
    }),
  );
  return lists.flat();
}

async function removeSince(call: Call, before: ReadonlySet<string>): Promise<void> {
  const made = (await listNames(call)).filter((path) => !before.has(path));
  for (const path of made) await call("DELETE", path);
  const namespaces = made.filter((path) => path.startsWith("/api/v1/namespaces/"));
  await retry(
    async () => {
      const left = (await listNames(call)).filter((path) => namespaces.includes(path));
      for (const namespace of left) await releasePods(call, namespace);
      if (left.length > 0) throw new Error(`${left.join(", ")} are not gone`);
    },
    { timeoutMs, intervalMs: 200 },
  );
}

/** Takes away what keeps a pod until a platform, which has ended, has read its end. */
async function releasePods(call: Call, namespace: string): Promise<void> {
  const { items } = (await call("GET", `${namespace}/pods`)) as Listed;
  for (const { metadata } of items.filter((each) => each.metadata.finalizers?.length)) {
    const change = { metadata: { finalizers: null } };
    // It may have gone meanwhile.
    await call("PATCH", `${namespace}/pods/${metadata.name}`, change).catch(() => {});
  }
}
