import { randomUUID } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openApi } from "@sandgate/kubernetes-api/api";
import type { RawPod } from "@sandgate/kubernetes-api/raw-pod";
import { readPod } from "@sandgate/sandbox/kubernetes-pod";
import {
  type Observation,
  type RuntimeFailure,
  type RuntimeLifecycle,
  type RuntimeSpec,
  SandboxRefused,
} from "@sandgate/sandbox/runtime-lifecycle";
import { type ApiProxyRequest, openApiProxy } from "@sandgate/test-support/api-proxy";
import { openTestCluster, probeCluster, type TestCluster, untilGone } from "@sandgate/test-support/cluster";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterAll, test as baseTest, beforeAll, describe, expect } from "vitest";
import { applyRights, deployed, writeSandboxKubeconfig } from "../deploy/cluster-rights.ts";
import { pushHelperImage } from "../platform/helper-image.ts";
import { openKubernetesRuntime, type RuntimeChanges } from "../platform/kubernetes-runtime.ts";
import { describeRuntime } from "./runtime.ts";
import type { RuntimeHarness } from "./runtime-harness.ts";

const isAvailable = await requireServer("kubernetes", async () => {
  await probeCluster();
  await probeRegistry();
});

const noPull = "the nodes of the cluster at KUBECONFIG pull from no registry of this machine";
const credential = { username: "alice", password: "correct horse" };

const closing = new AsyncDisposableStack();
let cluster: TestCluster;
/** `host:port` of a registry without users. */
let host: string;
let privateRegistry: TestRegistry;
const installationId = `test-${randomUUID()}`;
let runtime: RuntimeLifecycle;

beforeAll(async () => {
  cluster = closing.adopt(await openTestCluster({ kubelet: { volumeStatsAggPeriod: "2s" } }), (each) => each.stop());
  const registry = closing.adopt(await startRegistry(), (each) => each.stop());
  host = cluster.registry ?? registry.host;
  privateRegistry = closing.adopt(await startRegistry({ users: [credential] }), (each) => each.stop());
  runtime = open();
  await runtime.check();
});
afterAll(() => closing.disposeAsync());

async function openHarness(): Promise<RuntimeHarness> {
  const installationId = `test-${randomUUID()}`;
  // With the rights that the sandbox process has, and no others.
  await applyRights(cluster);
  const kubeconfig = await writeSandboxKubeconfig(cluster);
  const namespace = deployed.sandboxes;
  const helperImage = await pushHelperImage(host);
  const open = () =>
    closing.adopt(openKubernetesRuntime(kubeconfig, installationId, { namespace, pod: { helperImage } }), (each) =>
      each.close(),
    );
  const runtime = open();
  await runtime.check();
  const podOf = (sandboxId: string) => [`--namespace=${namespace}`, `sandgate-${sandboxId}`];
  const publish = async (command: readonly string[], programs?: readonly string[]) => {
    const image = await makeImage({ command, ...(programs && { programs }), files: { "www/index.html": "hello\n" } });
    return pushImage(image, { host, repository: "team/app" });
  };
  const publishPrivately = async () => {
    const image = await makeImage({ command: ["sleep", "3600"] });
    return pushImage(image, { host: privateRegistry.host, repository: "team/private", credential });
  };
  return {
    runtime,
    operations: runtime.operations,
    images: undefined,
    missingImage: `${host}/team/app@sha256:${"0".repeat(64)}`,
    openSecond: open,
    makeImage: publish,
    shortestGraceSeconds: 2,
    network: undefined,
    limitsProcesses: false,
    pullsFromLoopback: cluster.pullsFromLoopback,
    async exec(sandboxId, command) {
      // kubectl passes the exit code on, and says so on its own behalf besides.
      const [namespace = "", pod = ""] = podOf(sandboxId);
      return cluster.kubectl("exec", namespace, pod, "--", ...command).then(
        (output) => ({ exitCode: 0, output }),
        (error: { code?: number; stdout?: string; stderr?: string }) => ({
          exitCode: error.code ?? -1,
          output: `${error.stdout}${error.stderr}`,
        }),
      );
    },
    readLogs: (sandboxId) => cluster.kubectl("logs", ...podOf(sandboxId)).catch(() => ""),
    addressOf: (sandboxId) => cluster.kubectl("get", "pod", ...podOf(sandboxId), "--output=jsonpath={.status.podIP}"),
    registry: { host: privateRegistry.host, credential, publish: publishPrivately },
    // It goes with the cluster.
    close: () => Promise.resolve(),
  };
}

describeRuntime("kubernetes", isAvailable, openHarness, { concurrent: true });

interface PodObject {
  metadata: { name: string; finalizers?: string[] };
  spec: Record<string, unknown> & { activeDeadlineSeconds?: number };
}

/** With the rights of an admin. */
function open(changes: RuntimeChanges = {}): RuntimeLifecycle {
  return closing.adopt(openKubernetesRuntime(cluster.kubeconfig, installationId, changes), (each) => each.close());
}

const pods = (namespace = "sandboxes") => `/api/v1/namespaces/${namespace}/pods`;
const read = async (sandboxId: string) => (await cluster.call("GET", `${pods()}/sandgate-${sandboxId}`)) as PodObject;

/** As the service does, until the sandbox runs or has ended. */
async function ensure(spec: RuntimeSpec, on = runtime): Promise<Observation> {
  for (;;) {
    const seen = await on.ensure(spec);
    if (seen.phase !== "created") return seen;
    await delay(50);
  }
}

async function refusalOf(spec: RuntimeSpec, on = runtime): Promise<RuntimeFailure> {
  const error = await ensure(spec, on).then(
    () => undefined,
    (refused: unknown) => refused,
  );
  if (!(error instanceof SandboxRefused)) throw new Error("the sandbox was not refused", { cause: error });
  return error.failure;
}

/** What keeps a sandbox from running. */
const problemOf = (spec: RuntimeSpec, on = runtime) =>
  until(async () => {
    const { problem } = await on.ensure(spec);
    if (!problem || problem.message.includes("has not considered")) throw new Error("nothing keeps it from running");
    return problem;
  });

const end = (sandboxId: string, on = runtime) =>
  until(async () => {
    const seen = await on.inspect(sandboxId);
    if (seen?.phase !== "exited") throw new Error(`it is ${seen?.phase}`);
    return seen;
  });

/** `specOf` makes sandboxes of one test, which are removed after it. */
// biome-ignore lint/correctness/noEmptyPattern: Vitest reads from the pattern which fixtures this one needs
const test = baseTest.extend("specOf", async ({}, { onCleanup }) => {
  const made: [RuntimeLifecycle, string][] = [];
  onCleanup(async () => {
    await Promise.all(made.map(([on, sandboxId]) => on.remove(sandboxId)));
  });
  return async (
    o: Parameters<typeof makeImage>[0],
    changes: Partial<RuntimeSpec> = {},
    on = runtime,
  ): Promise<RuntimeSpec> => {
    const reference = await pushImage(await makeImage(o), { host, repository: "team/app" });
    const sandboxId = randomUUID();
    made.push([on, sandboxId]);
    return { sandboxId, workspaceId: randomUUID(), reference, memoryMb: 32, cpus: 0.5, pids: 64, ...changes };
  };
});

describe.runIf(isAvailable)("runtime: kubernetes alone", { timeout: 120_000, concurrent: true }, () => {
  test("makes a pod that is limited, unprivileged and knows nothing of the cluster", async ({ specOf }) => {
    const spec = await specOf({ command: ["sleep", "3600"] }, { memoryMb: 48 });
    await ensure(spec);
    const { spec: pod } = await read(spec.sandboxId);
    expect(pod).toMatchObject({
      restartPolicy: "Never",
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      dnsPolicy: "None",
      containers: [
        {
          image: spec.reference,
          imagePullPolicy: "Always",
          resources: {
            requests: { cpu: "10m", memory: "48Mi", "ephemeral-storage": "64Mi" },
            limits: { cpu: "500m", memory: "48Mi", "ephemeral-storage": "128Mi" },
          },
        },
      ],
    });
    const name = `sandgate-${spec.sandboxId}`;
    const inside = (script: string) => cluster.kubectl("exec", "--namespace=sandboxes", name, "--", "sh", "-c", script);
    expect(await inside("cat /etc/resolv.conf; hostname; ls /var/run /run 2>/dev/null; true")).toBe(
      `nameserver 1.1.1.1\noptions ndots:1\n${spec.sandboxId}\n`,
    );
  });

  test("reads of pods in the API server's own format what they are in JSON", async ({ specOf }) => {
    const [running, ended, stuck] = await Promise.all([
      specOf({ command: ["sleep", "3600"] }, { ttlSeconds: 3600, readinessPort: 8080 }),
      specOf({ command: ["sh", "-c", "exit 3"] }),
      specOf({ command: ["sleep", "3600"] }),
    ]);
    stuck.reference = stuck.reference.replace(/@.*/, `@sha256:${"0".repeat(64)}`);
    await Promise.all([ensure(running), ensure(ended), refusalOf(stuck)]);
    await end(ended.sandboxId);
    const api = closing.adopt(openApi(`kubernetes:${cluster.kubeconfig}`, { writesPerSecond: 1 }), (each) =>
      each.close(),
    );
    const read = ({ items }: { items: RawPod[] }) => items.map((item) => readPod(item, installationId));
    await until(async () => {
      const inJson = read((await cluster.call("GET", pods())) as { items: RawPod[] });
      expect(inJson.length).toBeGreaterThanOrEqual(3);
      expect(read((await api.call({ method: "GET", path: pods() })) as { items: RawPod[] })).toEqual(inJson);
    });
    await expect(api.call({ method: "GET", path: `${pods()}/none` })).rejects.toMatchObject({
      status: 404,
      reason: "NotFound",
      message: 'pods "none" not found',
    });
  });

  test("asks for nothing but a sandbox's creation and its end, however often it is asked itself", async ({
    specOf,
  }) => {
    const metrics = createMetrics();
    const counted = open({ metrics });
    await counted.check();
    const spec = await specOf({ command: ["sleep", "3600"] }, {}, counted);
    await ensure(spec, counted);
    await until(async () =>
      expect(await counted.probe(spec.sandboxId, undefined, AbortSignal.timeout(5_000))).toBe(true),
    );
    await counted.ensure(spec);
    await counted.list();
    await counted.stop(spec.sandboxId, 1);
    await counted.stop(spec.sandboxId, 0);
    await counted.remove(spec.sandboxId);
    const calls = await metrics.getSingleMetric("sandgate_kubernetes_calls_total")?.get();
    const ofPods = calls?.values.filter(({ labels }) => labels.resource === "pods" && labels.method !== "GET");
    expect(Object.fromEntries(ofPods?.map(({ labels, value }) => [labels.method, value]) ?? [])).toEqual({
      POST: 1,
      DELETE: 1,
      PATCH: 1,
    });
  });

  test("pulls with the sandbox's own credential from the first attempt on, and leaves no Secret", async ({
    specOf,
    skip,
  }) => {
    skip(!cluster.pullsFromLoopback, noPull);
    const image = await makeImage({ command: ["sleep", "3600"] });
    const reference = await pushImage(image, { host: privateRegistry.host, repository: "team/private", credential });
    const access = { registryHost: privateRegistry.host, ...credential, volumes: [] };
    const spec = await specOf({ command: ["true"] }, { reference, findAccess: async () => access });
    await ensure(spec);
    const name = `sandgate-${spec.sandboxId}`;
    const events = await cluster.kubectl(
      "get",
      "events",
      "--namespace=sandboxes",
      `--field-selector=involvedObject.name=${name}`,
    );
    expect(events).toContain("Pulled");
    // Not of a kubelet that looks for the Secret once it is gone.
    expect(events).not.toMatch(/ (Failed|BackOff) /);
    await expect(cluster.call("GET", `/api/v1/namespaces/sandboxes/secrets/${name}`)).rejects.toThrow("404");
    const wrong = await specOf(
      { command: ["true"] },
      { reference, findAccess: async () => ({ ...access, password: "wrong" }) },
    );
    expect(await refusalOf(wrong)).toMatchObject({ reason: "image_pull_unauthorized" });
    const anonymous = await specOf({ command: ["true"] }, { reference });
    expect(await refusalOf(anonymous)).toMatchObject({ reason: "image_pull_unauthorized" });
    // It goes with its pod.
    await runtime.remove(wrong.sandboxId);
    await untilGone(cluster, `/api/v1/namespaces/sandboxes/secrets/sandgate-${wrong.sandboxId}`);
  });

  test("goes on where a crash left a pod without its Secret, or with one of another credential", async ({
    specOf,
    skip,
  }) => {
    skip(!cluster.pullsFromLoopback, noPull);
    const image = await makeImage({ command: ["sleep", "3600"] });
    const reference = await pushImage(image, { host: privateRegistry.host, repository: "team/private", credential });
    const access = { registryHost: privateRegistry.host, ...credential, volumes: [] };
    const namespace = "without-secrets";
    const on = open({ namespace });
    await on.check();
    for (const hasSecret of [false, true]) {
      let calls = 0;
      const spec = await specOf({ command: ["true"] }, { reference }, on);
      const failing = {
        ...spec,
        async findAccess() {
          calls += 1;
          return { ...access, ...(calls === 1 && { password: "old" }) };
        },
      };
      // The Secret can't be made, and then is: by an attempt whose answer nobody got.
      await cluster.call("POST", `/api/v1/namespaces/${namespace}/resourcequotas`, {
        metadata: { name: "no-secrets" },
        spec: { hard: { "count/secrets": "0" } },
      });
      await until(async () => {
        const probe = cluster.kubectl("create", "secret", "generic", "probe", `--namespace=${namespace}`);
        const said = await probe.catch((error: Error) => error.message);
        expect(said).toContain("quota");
      });
      expect(await refusalOf(failing, on)).toMatchObject({
        reason: "provisioning_failed",
        message: "The cluster's quota is used up.",
        detail: expect.stringContaining("exceeded quota: no-secrets"),
      });
      await cluster.call("DELETE", `/api/v1/namespaces/${namespace}/resourcequotas/no-secrets`);
      const name = `sandgate-${spec.sandboxId}`;
      await until(() =>
        cluster.kubectl("create", "secret", "generic", hasSecret ? name : `other-${name}`, `--namespace=${namespace}`),
      );
      expect(await ensure(failing, on)).toMatchObject({ phase: "running" });
    }
  });

  test("names an image that the registry doesn't have, and a registry that can't be reached", async ({ specOf }) => {
    const spec = await specOf({ command: ["true"] });
    const missing = { ...spec, reference: spec.reference.replace(/[0-9a-f]{64}$/, "0".repeat(64)) };
    expect(await refusalOf(missing)).toMatchObject({ reason: "image_not_found_in_registry" });
    const away = await specOf({ command: ["true"] }, { reference: `127.0.0.1:1/team/app@sha256:${"0".repeat(64)}` });
    expect(await problemOf(away)).toMatchObject({ reason: "registry_unreachable", isFinal: false });
  });

  test("says what a pod waits for, and what the cluster refuses; the cluster's words are for the log", async ({
    specOf,
  }) => {
    const huge = await specOf({ command: ["true"] }, { memoryMb: 10_000_000 });
    expect(await problemOf(huge)).toEqual({
      reason: "unschedulable",
      message: "No node has enough free memory for the sandbox.",
      detail: expect.stringContaining("Insufficient memory"),
      isFinal: false,
    });
    await runtime.stop(huge.sandboxId, 10);
    expect(await runtime.inspect(huge.sandboxId)).toMatchObject({ phase: "exited" });
    const restricted = open({ pod: { security: "restricted" }, namespace: "strict" });
    await restricted.check();
    const root = await specOf({ command: ["true"] }, {}, restricted);
    expect(await refusalOf(root, restricted)).toEqual({
      reason: "container_config_error",
      message: expect.stringContaining("a numeric user, not root"),
      detail: expect.stringContaining("runAsNonRoot"),
    });
    const user = await specOf({ command: ["sleep", "3600"], config: { User: "1000" } }, {}, restricted);
    expect(await ensure(user, restricted)).toMatchObject({ phase: "running" });
    await cluster.call("POST", "/api/v1/namespaces/strict/resourcequotas", {
      metadata: { name: "few" },
      spec: { hard: { pods: "2" } },
    });
    await until(async () => {
      const { status } = (await cluster.call("GET", "/api/v1/namespaces/strict/resourcequotas/few")) as {
        status: { used?: object };
      };
      expect(status.used).toEqual({ pods: "2" });
    });
    const third = await specOf({ command: ["true"] }, {}, restricted);
    expect(await refusalOf(third, restricted)).toEqual({
      reason: "provisioning_failed",
      message: "The cluster's quota is used up.",
      detail: expect.stringContaining("exceeded quota: few"),
    });
  });

  test("ends a sandbox that writes more than it may to a volume of its image", async ({ specOf }) => {
    const small = open({ pod: { diskMb: 8 } });
    const script = "dd if=/dev/zero of=/data/big bs=1M count=24 2>/dev/null; sleep 3600";
    const spec = await specOf(
      { command: ["sh", "-c", script] },
      { findAccess: async () => ({ registryHost: "", username: "", password: "", volumes: ["/data"] }) },
      small,
    );
    await ensure(spec, small);
    expect((await end(spec.sandboxId, small)).failure).toMatchObject({ reason: "disk_full" });
  });

  test("tells a pod that somebody deletes from one whose node is drained, and lets go of both", async ({ specOf }) => {
    const [deleted, drained] = [
      await specOf({ command: ["sleep", "3600"] }),
      await specOf({ command: ["sleep", "3600"] }),
    ];
    await Promise.all([ensure(deleted), ensure(drained)]);
    await cluster.call("DELETE", `${pods()}/sandgate-${deleted.sandboxId}`, {});
    const name = `sandgate-${drained.sandboxId}`;
    await cluster.call("POST", `${pods()}/${name}/eviction`, {
      apiVersion: "policy/v1",
      kind: "Eviction",
      metadata: { name, namespace: "sandboxes" },
    });
    expect((await end(deleted.sandboxId)).failure).toMatchObject({ reason: "runtime_lost" });
    expect((await end(drained.sandboxId)).failure).toMatchObject({ reason: "node_drained" });
    // Its object stays until that was read.
    expect((await read(deleted.sandboxId)).metadata.finalizers).toEqual(["sandgate.io/sandbox"]);
    for (const { sandboxId } of [deleted, drained]) {
      await runtime.remove(sandboxId);
      await untilGone(cluster, `${pods()}/sandgate-${sandboxId}`);
    }
  });

  test("a namespace that is deleted ends what runs in it, and goes", async ({ specOf }) => {
    const own = open({ namespace: "doomed" });
    await own.check();
    const spec = await specOf({ command: ["sleep", "3600"] }, {}, own);
    await ensure(spec, own);
    await cluster.call("DELETE", "/api/v1/namespaces/doomed");
    expect((await end(spec.sandboxId, own)).failure).toMatchObject({ reason: "runtime_lost" });
    const next = await specOf({ command: ["true"] }, {}, own);
    await expect(own.ensure(next)).rejects.toMatchObject({ reason: "RUNTIME_UNAVAILABLE" });
    await own.remove(spec.sandboxId);
    await untilGone(cluster, "/api/v1/namespaces/doomed");
    await own.check();
    expect(await ensure(next, own)).toMatchObject({ phase: expect.stringMatching(/running|exited/) });
  });

  test("keeps its network policy as the settings have it, and refuses where it can't", async () => {
    const namespace = "policies";
    const own = open({ namespace });
    await own.check();
    const policies = `/apis/networking.k8s.io/v1/namespaces/${namespace}/networkpolicies`;
    const readPolicy = () => cluster.call("GET", `${policies}/sandgate-${installationId}`);
    expect(await readPolicy()).toMatchObject({ spec: { policyTypes: ["Ingress", "Egress"] } });
    await cluster.call("DELETE", `${policies}/sandgate-${installationId}`);
    await own.check();
    expect(await readPolicy()).toMatchObject({ spec: { policyTypes: ["Ingress", "Egress"] } });
    await open({ namespace, network: { allow: [{ network: "10.1.0.0/16", port: 5432 }] } }).check();
    expect(JSON.stringify(await readPolicy())).toContain("10.1.0.0/16");
    await own.check();
    expect(JSON.stringify(await readPolicy())).not.toContain("10.1.0.0/16");
    await open({ namespace, network: { deny: [{ network: "203.0.113.0/24", port: undefined }] } }).check();
    expect(JSON.stringify(await readPolicy())).toContain("203.0.113.0/24");
    await own.check();
    const asSet = await readPolicy();
    expect(JSON.stringify(asSet)).not.toContain("203.0.113.0/24");
    await open({ namespace }).check();
    expect(await readPolicy()).toEqual(asSet);
    await cluster.call("POST", "/api/v1/namespaces", { metadata: { name: "lax" } });
    const lax = open({ namespace: "lax" });
    const unavailable = { reason: "ISOLATION_UNAVAILABLE", message: expect.stringContaining("pod-security") };
    await expect(lax.check()).rejects.toMatchObject(unavailable);
    await open({ namespace: "lax", isolation: false }).check();
  });

  test("spreads workspaces over namespaces, and finds each pod in its own", async ({ specOf }) => {
    const spread = open({ namespace: "shard", namespaces: 2 });
    await spread.check();
    const specs = await Promise.all(
      Array.from({ length: 6 }, () => specOf({ command: ["sleep", "3600"] }, {}, spread)),
    );
    await Promise.all(specs.map((spec) => ensure(spec, spread)));
    const counts = await Promise.all(
      ["shard-0", "shard-1"].map(
        async (name) => ((await cluster.call("GET", pods(name))) as { items: unknown[] }).items.length,
      ),
    );
    expect(counts.reduce((sum, count) => sum + count, 0)).toBe(6);
    expect((await spread.list()).map(({ sandboxId }) => sandboxId).toSorted()).toEqual(
      specs.map(({ sandboxId }) => sandboxId).toSorted(),
    );
    const others = (await runtime.list()).map(({ sandboxId }) => sandboxId);
    for (const { sandboxId } of specs) expect(others).not.toContain(sandboxId);
  });

  test("neither lists nor inspects the pods of another installation", async ({ specOf }) => {
    const spec = await specOf({ command: ["sleep", "3600"] });
    await ensure(spec);
    const other = closing.adopt(openKubernetesRuntime(cluster.kubeconfig, `test-${randomUUID()}`), (each) =>
      each.close(),
    );
    expect(await other.list()).toEqual([]);
    expect(await other.inspect(spec.sandboxId)).toBeUndefined();
  });

  test("leaves a pod of its name alone that another installation has, and says so", async ({ specOf }) => {
    const other = closing.adopt(openKubernetesRuntime(cluster.kubeconfig, `test-${randomUUID()}`), (each) =>
      each.close(),
    );
    const spec = await specOf({ command: ["sleep", "3600"] }, {}, other);
    await ensure(spec, other);
    expect(await refusalOf(spec)).toEqual({
      reason: "provisioning_failed",
      message: expect.stringContaining("not this installation's"),
    });
    await runtime.remove(spec.sandboxId);
    expect(await other.inspect(spec.sandboxId)).toMatchObject({ phase: "running" });
  });

  test("a sandbox gets the helper from a container that has ended once it is ready", async ({ specOf }) => {
    const helped = open({ pod: { helperImage: await pushHelperImage(host) } });
    const spec = await specOf({ command: ["sleep", "3600"] }, {}, helped);
    await ensure(spec, helped);
    await until(async () =>
      expect(await helped.probe(spec.sandboxId, undefined, AbortSignal.timeout(5_000))).toBe(true),
    );
    const state = await cluster.kubectl(
      "get",
      "pod",
      "--namespace=sandboxes",
      `sandgate-${spec.sandboxId}`,
      '--output=jsonpath={.status.containerStatuses[?(@.name=="helper")].state.terminated.exitCode}',
    );
    expect(state).toBe("0");
    // kubectl takes the sandbox's own container unless another is named.
    const listed = await cluster.kubectl(
      "exec",
      "--namespace=sandboxes",
      `sandgate-${spec.sandboxId}`,
      "--",
      ...["ls", "/.sandgate"],
    );
    expect(listed).toBe("helper\n");
  });

  test("a sandbox isn't ready without the helper, and it is said whether that may come", async ({ specOf }) => {
    const image = await pushHelperImage(host);
    const missing = open({ pod: { helperImage: image.replace(/[0-9a-f]{64}$/, "0".repeat(64)) } });
    const failing = open({ pod: { helperImage: (await specOf({ command: ["true"] })).reference } });
    const node = { reason: "node_error", message: "The node can't get the platform's helper." };
    const waiting = await specOf({ command: ["sleep", "3600"] }, {}, missing);
    await until(async () => {
      const seen = await missing.ensure(waiting);
      expect(seen).toMatchObject({ phase: "running", problem: { ...node, isFinal: false } });
      // Its own probe has succeeded by then.
      const pod = await cluster.call("GET", `${pods()}/sandgate-${waiting.sandboxId}`);
      expect(JSON.stringify(pod)).toContain('"started":true');
      expect(seen).not.toHaveProperty("isReady");
    });
    expect(await missing.probe(waiting.sandboxId, undefined, AbortSignal.timeout(5_000))).toBe(false);
    // An image that lacks the program.
    const refused = await specOf({ command: ["sleep", "3600"] }, {}, failing);
    await until(async () => {
      const error = await failing.ensure(refused).then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      if (!(error instanceof SandboxRefused)) throw new Error("the sandbox was not refused", { cause: error });
      expect(error.failure).toMatchObject(node);
    });
  });

  test("says what keeps a node from setting a pod up", async ({ specOf, skip }) => {
    const mapped = open({ pod: { userNamespaces: true } });
    const spec = await specOf({ command: ["sleep", "3600"] }, {}, mapped);
    const seen = await until(async () => {
      const now = await mapped.ensure(spec);
      if (now.phase === "created" && now.problem?.reason !== "node_error") throw new Error("nothing is known yet");
      return now;
    });
    if (seen.phase === "running") return skip("the nodes here run pods with user namespaces");
    expect(seen.problem).toEqual({
      reason: "node_error",
      message: "The node can't set the sandbox up.",
      detail: expect.stringMatching(/user namespace/i),
      isFinal: false,
    });
  });

  test("a stopped sandbox has the time that the stop gives, though a deadline would give none", async ({ specOf }) => {
    const script = "trap 'sleep 4; exit 7' TERM; echo up; while true; do sleep 0.1; done";
    const spec = await specOf({ command: ["sh", "-c", script] });
    await ensure(spec);
    const name = `sandgate-${spec.sandboxId}`;
    await until(async () => expect(await cluster.kubectl("logs", "--namespace=sandboxes", name)).toBe("up\n"));
    await runtime.stop(spec.sandboxId, 10);
    expect(await runtime.inspect(spec.sandboxId)).toMatchObject({ phase: "exited", exitCode: 7 });
  });

  test("the API server changes and deletes no pod of the name that is another one than was meant", async ({
    specOf,
  }) => {
    const spec = await specOf({ command: ["sleep", "3600"] });
    await ensure(spec);
    const path = `${pods()}/sandgate-${spec.sandboxId}`;
    const uid = randomUUID();
    const patch = { metadata: { uid, "$deleteFromPrimitiveList/finalizers": ["sandgate.io/sandbox"] } };
    await expect(cluster.call("PATCH", path, patch)).rejects.toThrow(/422 .*metadata.uid/);
    await expect(cluster.call("DELETE", path, { preconditions: { uid } })).rejects.toThrow("409");
    expect((await read(spec.sandboxId)).metadata.finalizers).toEqual(["sandgate.io/sandbox"]);
  });

  test("a Secret whose pod is gone before it was made goes too", async () => {
    const metadata = {
      name: "sandgate-gone",
      ownerReferences: [{ apiVersion: "v1", kind: "Pod", name: "sandgate-gone", uid: randomUUID() }],
    };
    await cluster.call("POST", "/api/v1/namespaces/sandboxes/secrets", { metadata });
    await untilGone(cluster, "/api/v1/namespaces/sandboxes/secrets/sandgate-gone");
  });
});

describe.runIf(isAvailable)("runtime: kubernetes alone, undisturbed", { timeout: 120_000 }, () => {
  test("ends a sandbox at its time to live without anybody's doing", async ({ specOf }) => {
    const spec = await specOf({ command: ["sleep", "3600"] }, { ttlSeconds: 3 });
    const { startedAt } = await ensure(spec);
    const seen = await end(spec.sandboxId);
    expect(seen).toMatchObject({ isExpired: true });
    expect(seen).not.toHaveProperty("failure");
    const ranMs = Date.now() - (startedAt?.getTime() ?? 0);
    expect(ranMs).toBeGreaterThanOrEqual(3_000);
    // Six seconds, and one as times are cut to seconds.
    expect(ranMs).toBeLessThan(10_000);
  });

  test("a Secret of variables that is gone before its node has it is made again", async ({ specOf, skip }) => {
    const { own } = cluster;
    if (!own) return skip("the kubelet of a cluster from outside is left alone");
    const env = { names: ["GREETING"], find: async () => ({ GREETING: "hello" }) };
    const spec = await specOf({ command: ["sleep", "3600"] }, { env });
    const name = `sandgate-${spec.sandboxId}`;
    await own.kubelet.kill();
    await runtime.ensure(spec);
    await cluster.call("DELETE", `/api/v1/namespaces/sandboxes/secrets/${name}`);
    await own.kubelet.start();
    expect(await ensure(spec)).toMatchObject({ phase: "running" });
    const print = ["exec", "--namespace=sandboxes", name, "--", "sh", "-c", "echo $GREETING"];
    expect(await cluster.kubectl(...print)).toBe("hello\n");
  });

  test("a pull waits until the node may read its Secret", async ({ specOf, skip }) => {
    skip(!cluster.pullsFromLoopback, noPull);
    const { own } = cluster;
    if (!own) return skip("the kubelet of a cluster from outside is left alone");
    const image = await makeImage({ command: ["sleep", "3600"] });
    const reference = await pushImage(image, { host: privateRegistry.host, repository: "team/private", credential });
    const access = { registryHost: privateRegistry.host, ...credential, volumes: [] };
    const spec = await specOf({ command: ["true"] }, { reference, findAccess: async () => access });
    const name = `sandgate-${spec.sandboxId}`;
    const proxy = await openApiProxy({
      server: cluster.server,
      certificate: own.certificates.server,
      certificateAuthority: own.certificateAuthority,
      client: own.certificates.node,
    });
    const config = await readFile(own.kubeletKubeconfig, "utf8");
    const asksForSecret = ({ method, path }: ApiProxyRequest) =>
      method === "GET" && path.includes("/secrets?") && path.includes(name);
    try {
      // As long as the API server doesn't know that the pod is the node's. The kubelet waits longer after each refusal.
      proxy.refuse((request) =>
        asksForSecret(request) && proxy.count(asksForSecret) <= 3 ? { status: 403 } : undefined,
      );
      await own.kubelet.kill();
      await writeFile(own.kubeletKubeconfig, config.replace(/https:\/\/[\d.:]+/, proxy.url));
      await own.kubelet.start();
      expect(await ensure(spec)).toMatchObject({ phase: "running" });
      expect(proxy.count(asksForSecret)).toBeGreaterThan(3);
      const fields = `--field-selector=involvedObject.name=${name}`;
      const events = await cluster.kubectl("get", "events", "--namespace=sandboxes", fields);
      expect(events).toContain("Pulled");
      // That its Secret can't be read is also said of one that has started, once it is gone.
      expect(events).not.toMatch(/ (Failed|BackOff) /);
      // Nothing of it is in the sandbox.
      const find = ["find", "/.sandgate-secret", "-type", "f"];
      expect(await cluster.kubectl("exec", "--namespace=sandboxes", name, "--", ...find)).toBe("");
    } finally {
      await own.kubelet.kill();
      await writeFile(own.kubeletKubeconfig, config);
      await own.kubelet.start();
      await proxy.close();
    }
  });

  test("answers nothing without the API server, and then sees what happened meanwhile", async ({ specOf, skip }) => {
    const { own } = cluster;
    if (!own) return skip("the cluster is not ours");
    const [ending, staying] = [await specOf({ command: ["sleep", "6"] }), await specOf({ command: ["sleep", "3600"] })];
    await Promise.all([ensure(ending), ensure(staying)]);
    await own.apiServer.kill();
    await until(() => expect(runtime.list()).rejects.toMatchObject({ reason: "RUNTIME_UNAVAILABLE" }));
    await expect(runtime.inspect(staying.sandboxId)).rejects.toMatchObject({ reason: "RUNTIME_UNAVAILABLE" });
    await own.apiServer.start();
    expect(await end(ending.sandboxId)).toMatchObject({ exitCode: 0 });
    const listed = await until(() => runtime.list());
    expect(listed).toContainEqual(expect.objectContaining({ sandboxId: staying.sandboxId, phase: "running" }));
    await until(() => runtime.check());
  });
});
