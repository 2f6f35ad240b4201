import { readFileSync } from "node:fs";
import { request } from "node:https";
import { newId } from "@sandgate/kit/base/ids";
import { openTestCluster, probeCluster, type TestCluster } from "@sandgate/test-support/cluster";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { startProcess } from "@sandgate/test-support/process";
import { probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openKubernetesRuntime } from "../platform/kubernetes-runtime.ts";
import {
  applyManifests,
  applyRights,
  buildManifests,
  createToken,
  deployed,
  writeSandboxKubeconfig,
} from "./cluster-rights.ts";

const isAvailable = await requireServer("kubernetes", async () => {
  await probeCluster();
  await probeRegistry();
});
const overlays = ["base", "overlays/docker-engine", "overlays/pods", "overlays/try"];

interface Workload {
  kind: string;
  metadata: { name: string; namespace: string };
  spec: { template: { metadata: { labels: Record<string, string> }; spec: { priorityClassName?: string } } };
}

function isWorkload(object: { kind: string }): object is Workload {
  return ["Deployment", "DaemonSet", "StatefulSet"].includes(object.kind);
}

describe.runIf(isAvailable)("manifests on a cluster", () => {
  let cluster: TestCluster;

  beforeAll(async () => {
    cluster = await openTestCluster({ controllerManagerArgs: ["--horizontal-pod-autoscaler-sync-period=1s"] });
    await applyRights(cluster);
  });
  afterAll(() => cluster?.stop());

  /** What a service account may do in a namespace, as "resource: verbs", besides what everybody may. */
  async function rightsOf(account: string, namespace: string): Promise<string[]> {
    const as = `--as=system:serviceaccount:${account}`;
    const table = await cluster.kubectl("auth", "can-i", "--list", "--no-headers", as, `--namespace=${namespace}`);
    return table.split("\n").flatMap((line) => {
      const [, resource, verbs] = /^([a-z]\S*)\s+\[.*?\]\s+\[.*?\]\s+\[(.*)\]\s*$/.exec(line) ?? [];
      return resource === undefined || resource.startsWith("selfsubject") ? [] : [`${resource}: ${verbs}`];
    });
  }

  const listNodes = async () =>
    (await cluster.kubectl("get", "nodes", "--output=jsonpath={.items[*].metadata.name}")).split(" ");

  /** The adapter with the rights of the sandbox process. */
  async function openRuntime(pod: { userNamespaces?: boolean; runtimeClass?: string } = {}) {
    const kubeconfig = await writeSandboxKubeconfig(cluster);
    return openKubernetesRuntime(kubeconfig, `test-${newId()}`, { namespace: deployed.sandboxes, pod });
  }

  describe.concurrent("that nothing changes meanwhile", () => {
    test("the API server takes each overlay, and Pod Security the pods of its processes", async () => {
      // One after the other: they have different demands on the same namespace.
      for (const overlay of overlays) {
        const objects = await buildManifests(cluster, overlay);
        // What others depend on has to be there before the rest can be tried.
        const first = objects.filter(({ kind }) => ["Namespace", "ServiceAccount", "PriorityClass"].includes(kind));
        await applyManifests(cluster, first);
        await applyManifests(cluster, objects, { dryRun: true });
        const pods = objects.filter(isWorkload).map(({ metadata, spec: { template } }) => ({
          apiVersion: "v1",
          kind: "Pod",
          metadata: { ...template.metadata, name: metadata.name, namespace: metadata.namespace },
          spec: template.spec,
        }));
        expect(pods.length).toBeGreaterThanOrEqual(6);
        await applyManifests(cluster, pods, { dryRun: true });
        for (const { spec } of pods) expect(spec.priorityClassName).toBe("sandgate-platform");
      }
    });

    test("the sandbox process may handle pods and their credentials in its namespace, and nobody else anything", async () => {
      expect((await rightsOf("sandgate:sandbox", deployed.sandboxes)).toSorted()).toEqual([
        "events: list",
        "namespaces: get",
        "networkpolicies.networking.k8s.io: create get update",
        "pods/exec: create get",
        "pods: create delete get list patch watch",
        "secrets: create delete",
      ]);
      const figures = ["nodes/metrics: get"];
      for (const namespace of [deployed.sandboxes, "sandgate", "sandgate-collector", "kube-system"]) {
        if (namespace !== deployed.sandboxes) expect(await rightsOf("sandgate:sandbox", namespace)).toEqual([]);
        for (const name of ["facade", "identity", "workspace", "image-registry", "telemetry", "default"]) {
          expect(await rightsOf(`sandgate:${name}`, namespace), name).toEqual([]);
        }
        expect(await rightsOf(`${deployed.sandboxes}:default`, namespace)).toEqual([]);
        expect(await rightsOf("sandgate-collector:collector", namespace)).toEqual(figures);
      }
    });

    test("the adapter needs no more than the sandbox process may do: a private image, a probe, a stop, a removal", async ({
      skip,
    }) => {
      skip(!cluster.pullsFromLoopback, "the nodes of the cluster at KUBECONFIG pull from no registry of this machine");
      const credential = { username: "alice", password: "correct horse" };
      const registry = await startRegistry({ users: [credential] });
      const runtime = await openRuntime();
      try {
        // Namespace, Pod Security and the network policy, which it makes and finds again.
        await runtime.check();
        await runtime.check();
        const { host } = registry;
        const image = await makeImage({ command: ["sleep", "3600"] });
        const reference = await pushImage(image, { host, repository: "team/app", credential });
        const sandboxId = newId();
        const access = { registryHost: host, ...credential, volumes: [] };
        const spec = { sandboxId, workspaceId: newId(), reference, memoryMb: 64, cpus: 0.1, pids: 64, ttlSeconds: 600 };
        const ensure = () => runtime.ensure({ ...spec, findAccess: async () => access });
        await until(async () => expect((await ensure()).phase).toBe("running"));
        await until(async () =>
          expect(await runtime.probe(sandboxId, undefined, new AbortController().signal)).toBe(true),
        );
        const secrets = () => cluster.kubectl("get", "secrets", `--namespace=${deployed.sandboxes}`, "--output=name");
        await until(async () => expect(await secrets()).toBe(""));
        expect((await runtime.list()).map((each) => each.sandboxId)).toEqual([sandboxId]);
        await runtime.stop(sandboxId, 0);
        await runtime.remove(sandboxId);
        await until(async () => expect(await runtime.list()).toEqual([]));
      } finally {
        await runtime.close();
        await registry.stop();
      }
    });

    test("root in a sandbox is nobody on its node, or nothing runs where a node can't do that", async () => {
      const registry = await startRegistry();
      const runtime = await openRuntime({ userNamespaces: true });
      try {
        const image = await makeImage({ command: ["sh", "-c", "cat /proc/self/uid_map; sleep 3600"] });
        const reference = await pushImage(image, { host: cluster.registry ?? registry.host, repository: "team/app" });
        const spec = { sandboxId: newId(), workspaceId: newId(), reference, memoryMb: 64, cpus: 0.1, pids: 64 };
        const [namespace, pod] = [`--namespace=${deployed.sandboxes}`, `sandgate-${spec.sandboxId}`];
        const events = () => cluster.kubectl("get", "events", namespace, "--field-selector=type=Warning");
        const isRefused = async () => /user namespaces/i.test(await events());
        await until(async () =>
          expect((await runtime.ensure(spec)).phase === "running" || (await isRefused())).toBe(true),
        );
        if (await isRefused()) {
          expect((await runtime.ensure(spec)).phase).toBe("created");
          process.stderr.write("SKIPPED for want of user namespaces: the cluster's container runtime has none\n");
        } else {
          // Root inside is somebody else outside.
          expect(await cluster.kubectl("logs", namespace, pod)).not.toMatch(/^\s*0\s+0\s/m);
        }
        await runtime.remove(spec.sandboxId);
      } finally {
        await runtime.close();
        await registry.stop();
      }
    });

    test("a kubelet gives the collector its figures, and neither pods nor logs nor a program to run", async ({
      skip,
    }) => {
      const { own } = cluster;
      if (!own) return skip("the certificates of the kubelets at KUBECONFIG are not known");
      const token = await createToken(cluster, deployed.collector);
      const ask = (path: string) =>
        new Promise<number | undefined>((resolve, reject) => {
          const headers = { authorization: `Bearer ${token}` };
          const ca = readFileSync(own.certificateAuthority);
          request(new URL(path, own.kubeletUrl), { ca, headers, agent: false }, (response) => {
            response.resume();
            resolve(response.statusCode);
          })
            .on("error", reject)
            .end();
        });
      expect(await ask("/metrics/resource")).toBe(200);
      for (const path of [
        "/pods",
        "/logs/",
        "/containerLogs/default/a/b",
        "/exec/default/a/b?command=sh",
        "/stats/summary",
      ]) {
        expect(await ask(path), path).toBe(403);
      }
    });
  });

  test("a RuntimeClass keeps sandboxes on nodes of their own", async ({ skip }) => {
    skip(!cluster.own, "the nodes of the cluster at KUBECONFIG are not tainted");
    const name = "sandboxes";
    const key = "sandgate.io/sandboxes";
    // As in deploy/README.md.
    await applyManifests(cluster, [
      {
        apiVersion: "node.k8s.io/v1",
        kind: "RuntimeClass",
        metadata: { name },
        handler: "runc",
        scheduling: {
          nodeSelector: { [key]: "true" },
          tolerations: [{ key, operator: "Exists", effect: "NoSchedule" }],
        },
      },
    ]);
    const nodes = await listNodes();
    const registry = await startRegistry();
    const [elsewhere, there] = [await openRuntime(), await openRuntime({ runtimeClass: name })];
    try {
      for (const node of nodes) {
        await cluster.kubectl("taint", "nodes", node, `${key}=true:NoSchedule`);
        await cluster.kubectl("label", "nodes", node, `${key}=true`);
      }
      const image = await makeImage({ command: ["sleep", "3600"] });
      const reference = await pushImage(image, { host: cluster.registry ?? registry.host, repository: "team/app" });
      const specOf = () => ({ sandboxId: newId(), workspaceId: newId(), reference, memoryMb: 64, cpus: 0.1, pids: 64 });
      const [refused, taken] = [specOf(), specOf()];
      await until(async () => expect((await there.ensure(taken)).phase).toBe("running"));
      await until(async () =>
        expect(await elsewhere.ensure(refused)).toMatchObject({
          phase: "created",
          problem: { reason: "unschedulable" },
        }),
      );
      for (const { sandboxId } of [refused, taken]) await there.remove(sandboxId);
    } finally {
      for (const node of nodes) await cluster.kubectl("taint", "nodes", node, `${key}-`);
      await elsewhere.close();
      await there.close();
      await registry.stop();
    }
  });

  test("facade and identity are two without anybody saying so, and a drain leaves one until the other is replaced", async ({
    skip,
  }) => {
    const names = ["facade", "identity"];
    const objects = await buildManifests(cluster, "overlays/pods");
    const kinds = ["ServiceAccount", "Deployment", "PodDisruptionBudget", "HorizontalPodAutoscaler"];
    const wanted = objects.filter(({ kind, metadata }) => {
      const shared = ["Namespace", "PriorityClass", "ConfigMap"].includes(kind);
      return shared || (names.includes(metadata.name) && kinds.includes(kind));
    });
    const secrets = names.map((name) => ({
      apiVersion: "v1",
      kind: "Secret",
      metadata: { name, namespace: "sandgate" },
      stringData: { "admin-password": "unused" },
    }));
    const registry = await startRegistry();
    try {
      // It answers probes as the processes do.
      const config = { Entrypoint: ["sh", "-c", "httpd -f -p 9464 -h /www"] };
      const files = { "www/healthz": "ok\n", "www/readyz": "ok\n" };
      const image = await pushImage(await makeImage({ command: [], files, config }), {
        host: cluster.registry ?? registry.host,
        repository: "test/process",
      });
      const text = JSON.stringify([...secrets, ...wanted]).replaceAll(
        /"image":"sandgate:[^"]+"/g,
        `"image":"${image}"`,
      );
      await applyManifests(cluster, JSON.parse(text));
      const ready = async (name: string): Promise<number> => {
        const path = `/apis/apps/v1/namespaces/sandgate/deployments/${name}`;
        const { status } = (await cluster.call("GET", path)) as { status: { readyReplicas?: number } };
        return status.readyReplicas ?? 0;
      };
      for (const name of names) await until(async () => expect(await ready(name)).toBe(2), { intervalMs: 200 });

      const { own } = cluster;
      if (!own) return skip("no node of the cluster at KUBECONFIG is drained");
      // The only node: what is evicted finds no other.
      const node = await listNodes();
      const selector = "--pod-selector=app.kubernetes.io/name in (facade,identity)";
      const drain = startProcess(
        own.kubectlProgram,
        [
          `--kubeconfig=${cluster.kubeconfig}`,
          "drain",
          ...node,
          selector,
          "--delete-emptydir-data",
          "--grace-period=1",
        ],
        { env: process.env },
      );
      try {
        // Of each the first has gone, and the second has to wait.
        for (const name of names) {
          const refusal = new RegExp(`pods/"${name}-.*would violate the pod's disruption budget`);
          await until(() => expect(drain.output()).toMatch(refusal), { intervalMs: 200 });
          await until(async () => expect(await ready(name)).toBe(1), { intervalMs: 200 });
        }
      } finally {
        await drain.kill();
      }
      await cluster.kubectl("uncordon", ...node);
      for (const name of names) await until(async () => expect(await ready(name)).toBe(2), { intervalMs: 200 });
    } finally {
      await cluster.kubectl("delete", "hpa,deployment", "--namespace=sandgate", "--all", "--wait=false");
      await registry.stop();
    }
  });
});
