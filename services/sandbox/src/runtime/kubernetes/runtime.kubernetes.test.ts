import { setTimeout as delay } from "node:timers/promises";
import { type OpenLifecycle, openKubernetesRuntime } from "@sandgate/test/platform/kubernetes-runtime";
import { test as baseTest } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { expect } from "vitest";
import type { RuntimeLifecycle, RuntimeSpec } from "../lifecycle.ts";
import { openTestApiServer, type SeenRequest } from "./api-server.fixture.ts";

// What the adapter asks of an API server, and in which order; the contract suite shows that a real cluster does as
// asked.

const pods = "/api/v1/namespaces/s/pods";
const secrets = "/api/v1/namespaces/s/secrets";
const path = `${pods}/sandgate-s1`;
const secret = `${secrets}/sandgate-s1`;
const spec: RuntimeSpec = {
  sandboxId: "s1",
  workspaceId: "w1",
  reference: "r/a@sha256:0",
  memoryMb: 32,
  cpus: 1,
  pids: 9,
};
const access = { registryHost: "r", username: "alice", password: "hunter2", volumes: [] };
const secretSpec: RuntimeSpec = { ...spec, ttlSeconds: 60, findAccess: async () => access };

const test = baseTest
  .extend("server", async ({ folder }, { onCleanup }) => {
    const server = await openTestApiServer(folder);
    onCleanup(() => server.close());
    return server;
  })
  .extend("open", async ({ server }, { onCleanup }) => {
    const opened: OpenLifecycle[] = [];
    onCleanup(async () => {
      await Promise.all(opened.map((runtime) => runtime.close()));
    });
    return () => {
      const runtime = openKubernetesRuntime(server.kubeconfig, "i1", {
        namespace: "s",
        writesPerSecond: 1_000,
        network: { nameservers: [], closed: [] },
      });
      opened.push(runtime);
      return runtime;
    };
  });

type Server = Awaited<ReturnType<typeof openTestApiServer>>;

/** Has the pod run, as its kubelet tells it. */
function run(server: Server, acceptedAt = new Date(Date.now() + 60)): void {
  const at = (ms: number) => new Date(acceptedAt.getTime() + ms).toISOString();
  server.update(path, (pod) => {
    pod.spec.nodeName = "node1";
    pod.status = {
      phase: "Running",
      startTime: at(0),
      conditions: [{ type: "PodScheduled", status: "True", lastTransitionTime: at(0) }],
      containerStatuses: [{ name: "sandbox", started: true, state: { running: { startedAt: at(5_000) } } }],
    };
  });
}

const isGated = (server: Server) => JSON.stringify(server.objects.get(path)?.spec).includes("sandgate.io/pull-secret");

/** As the service does, until the sandbox runs. */
async function provision(server: Server, runtime: RuntimeLifecycle, given: RuntimeSpec): Promise<void> {
  for (;;) {
    const seen = await runtime.ensure(given);
    if (seen.phase === "running") return;
    if (server.objects.get(path)?.status?.phase !== "Running" && !isGated(server)) run(server);
    await delay(5);
  }
}

const steps: [what: string, isMeant: (request: SeenRequest) => boolean][] = [
  ["creation of the pod", ({ method, path: at }) => method === "POST" && at === pods],
  ["creation of its Secret", ({ method, path: at }) => method === "POST" && at === secrets],
  ["removal of its gate", ({ method, body }) => method === "PATCH" && JSON.stringify(body).includes("schedulingGates")],
  ["removal of its Secret", ({ method, path: at }) => method === "DELETE" && at === secret],
  ["lowering of its deadline", ({ method, body }) => method === "PATCH" && JSON.stringify(body).includes("settled")],
];

test.for(steps)("goes on after a crash before or after the %s", async ([, isMeant], { server, open }) => {
  for (const isDone of [false, true]) {
    server.objects.clear();
    server.writes.length = 0;
    if (isDone) server.loseAnswer(isMeant);
    else server.refuse(isMeant, 400, "BadRequest");
    const first = open();
    while (server.refusalsLeft() > 0) {
      await first.ensure(secretSpec).catch(() => {});
      if (server.refusalsLeft() > 0 && server.objects.has(path) && !isGated(server)) run(server);
      await delay(5);
    }
    await first.close();
    const second = open();
    await provision(server, second, secretSpec);
    expect([...server.objects.keys()].filter((at) => at.startsWith("/api/v1"))).toEqual([path]);
    const pod = server.objects.get(path);
    expect(pod?.spec).toMatchObject({ schedulingGates: [], activeDeadlineSeconds: 67 });
    await second.remove(spec.sandboxId);
    expect(server.objects.has(path)).toBe(false);
    await second.close();
  }
});

test("makes the Secret between the pod, which owns it, and the end of the gate, and removes it once the container runs", async ({
  server,
  open,
}) => {
  await provision(server, open(), secretSpec);
  const order = server.writes.filter(({ path: at }) => at.startsWith("/api/v1"));
  expect(order.map(({ method, path: at }) => `${method} ${at}`)).toEqual([
    `POST ${pods}`,
    `POST ${secrets}`,
    `PATCH ${path}`,
    `DELETE ${secret}`,
    `PATCH ${path}`,
  ]);
  const { uid } = server.objects.get(path)?.metadata ?? {};
  const [, made, ungated, , lowered] = order;
  expect(made?.body).toMatchObject({ metadata: { ownerReferences: [{ kind: "Pod", uid }] } });
  for (const patch of [ungated, lowered]) expect(patch?.body).toMatchObject({ metadata: { uid } });
});

test("tells of a pod that runs, but not of the steps there, and says whether what it probes has answered", async ({
  server,
  open,
}) => {
  const runtime = open();
  const observing = new AbortController();
  const told: (string | undefined)[] = [];
  const observed = (async () => {
    for await (const { sandboxId } of runtime.observe(observing.signal)) told.push(sandboxId);
  })();
  await runtime.ensure(spec);
  server.update(path, (pod) => {
    pod.spec.nodeName = "node1";
  });
  await until(async () => expect(await runtime.ensure(spec)).not.toHaveProperty("problem"));
  expect(told).toEqual([]);
  run(server);
  await until(() => expect(told).toEqual(["s1"]));
  expect(await runtime.ensure(spec)).toMatchObject({ phase: "running", isReady: true });
  expect(await runtime.ensure({ ...spec, readinessPort: 80 })).toMatchObject({ phase: "running", isReady: false });
  observing.abort();
  await observed;
});

test("replaces a Secret that an earlier attempt has left, as its credential may be another", async ({
  server,
  open,
}) => {
  const old = { ...rawMetadata, name: "sandgate-s1" };
  server.objects.set(secret, { metadata: old, spec: { containers: [] } });
  await open().ensure(secretSpec);
  expect(server.objects.get(secret)).toMatchObject({ type: "kubernetes.io/dockerconfigjson" });
});

test("a container without the program of its probe is ready once it has run for two seconds", async ({
  server,
  open,
}) => {
  const runtime = open();
  await runtime.ensure(spec);
  const said = 'Startup probe errored: exec failed: "true": executable file not found in $PATH';
  const event = { metadata: { ...rawMetadata, name: "e1" }, spec: { containers: [] }, message: said };
  const isReady = () => runtime.probe("s1", undefined, new AbortController().signal);
  const runSince = async (at: Date) => {
    run(server, new Date(at.getTime() - 5_000));
    server.update(path, (pod) => {
      pod.metadata.creationTimestamp = new Date(at.getTime() - 60_000).toISOString();
      const [container] = pod.status?.containerStatuses ?? [];
      if (container) container.started = false;
    });
    await until(async () =>
      expect((await runtime.inspect("s1"))?.startedAt?.getTime()).toBeLessThanOrEqual(at.getTime()),
    );
  };
  server.objects.set("/api/v1/namespaces/s/events/e1", event);
  // It starts when it is asked.
  await runSince(new Date(Date.now() + 60_000));
  expect(await isReady()).toBe(false);
  await runSince(new Date(Date.now() - 10_000));
  expect(await isReady()).toBe(true);
  await runtime.remove("s1");
  server.objects.delete("/api/v1/namespaces/s/events/e1");
  await runtime.ensure(spec);
  await runSince(new Date(Date.now() - 10_000));
  expect(await isReady()).toBe(false);
});

test("lowers a deadline to what is left from when the node took the pod up, once, and never raises it", async ({
  server,
  open,
}) => {
  const runtime = open();
  await runtime.ensure({ ...spec, ttlSeconds: 60 });
  expect(server.objects.get(path)?.spec.activeDeadlineSeconds).toBe(660);
  run(server);
  const lower = async () => {
    await until(async () => expect(await runtime.inspect("s1")).toMatchObject({ phase: "running" }));
    await runtime.ensure({ ...spec, ttlSeconds: 60 });
  };
  await lower();
  expect(server.objects.get(path)?.spec.activeDeadlineSeconds).toBe(67);
  const { length } = server.writes;
  await lower();
  expect(server.writes).toHaveLength(length);
  await runtime.remove("s1");
  await runtime.ensure({ ...spec, ttlSeconds: 60 });
  server.update(path, (pod) => {
    pod.spec.activeDeadlineSeconds = 20;
  });
  run(server);
  await lower();
  expect(server.objects.get(path)?.spec.activeDeadlineSeconds).toBe(20);
});

test("deletes a pod by its uid and with the stop's grace, keeps it until it is removed, and lets it go then", async ({
  server,
  open,
}) => {
  const runtime = open();
  await provision(server, runtime, spec);
  const { uid } = server.objects.get(path)?.metadata ?? {};
  server.writes.length = 0;
  const stopping = runtime.stop("s1", 10);
  await until(() => expect(server.writes).toHaveLength(1));
  expect(server.writes[0]?.body).toMatchObject({ gracePeriodSeconds: 10, preconditions: { uid } });
  server.update(path, (pod) => {
    const terminated = { exitCode: 143, reason: "Error", startedAt: new Date().toISOString() };
    pod.status = { ...pod.status, phase: "Failed", containerStatuses: [{ name: "sandbox", state: { terminated } }] };
  });
  await stopping;
  expect(await runtime.inspect("s1")).toMatchObject({ phase: "exited", exitCode: 143 });
  await runtime.remove("s1");
  expect(server.writes.at(-1)).toMatchObject({ method: "PATCH", body: { metadata: { uid } } });
  expect(server.objects.has(path)).toBe(false);
  expect(await runtime.inspect("s1")).toBeUndefined();
});

test("a pull that is refused is final, unless its node had not got the Secret yet, and pulls again with it", async ({
  server,
  open,
}) => {
  const runtime = open();
  const beRefused = () =>
    server.update(path, (pod) => {
      const message = "failed to resolve reference: pulling failed with status code 401 Unauthorized";
      pod.spec.nodeName = "node1";
      pod.status = {
        phase: "Pending",
        conditions: [{ type: "PodScheduled", status: "True", lastTransitionTime: new Date().toISOString() }],
        containerStatuses: [{ name: "sandbox", state: { waiting: { reason: "ErrImagePull", message } } }],
      };
    });
  const event = { metadata: { ...rawMetadata, name: "e1" }, spec: { containers: [] }, message: "Unable to retrieve" };
  server.objects.set("/api/v1/namespaces/s/events/e1", event);
  const reason = "image_pull_unauthorized";
  await runtime.ensure(secretSpec);
  beRefused();
  await until(async () =>
    expect(await runtime.ensure(secretSpec)).toMatchObject({ problem: { reason, isFinal: false } }),
  );
  await provision(server, runtime, secretSpec);
  await runtime.remove("s1");
  server.objects.delete("/api/v1/namespaces/s/events/e1");
  await runtime.ensure(secretSpec);
  beRefused();
  await expect.poll(() => runtime.ensure(secretSpec).catch((error) => error.failure)).toMatchObject({ reason });
});

test("a Secret that a node doesn't find for a sandbox's variables is made again, and the sandbox waits for it", async ({
  server,
  open,
}) => {
  const runtime = open();
  const withEnv = { ...spec, env: { names: ["A"], find: async () => ({ A: "1" }) } };
  await runtime.ensure(withEnv);
  server.objects.delete(secret);
  server.update(path, (pod) => {
    const waiting = { reason: "CreateContainerConfigError", message: 'secret "sandgate-s1" not found' };
    pod.spec.nodeName = "node1";
    pod.status = { phase: "Pending", containerStatuses: [{ name: "sandbox", state: { waiting } }] };
  });
  await until(async () => {
    expect(await runtime.ensure(withEnv)).toMatchObject({ problem: { reason: "node_error", isFinal: false } });
    expect(server.objects.get(secret)).toMatchObject({ stringData: { A: "1" } });
  });
  await provision(server, runtime, withEnv);
  expect(server.objects.has(secret)).toBe(false);
});

test("touches no other pod that has the name meanwhile", async ({ server, open }) => {
  const runtime = open();
  await provision(server, runtime, spec);
  server.silenceWatches();
  server.update(path, (pod) => {
    pod.metadata.uid = "another";
  });
  await runtime.remove("s1");
  expect(server.objects.get(path)?.metadata).toMatchObject({ uid: "another", finalizers: ["sandgate.io/sandbox"] });
  expect(server.objects.get(path)?.metadata).not.toHaveProperty("deletionTimestamp");
});

test("has a pod that its watch has not told of, and none that nobody has", async ({ server, open }) => {
  const [runtime, other] = [open(), open()];
  expect(await runtime.list()).toEqual([]);
  server.silenceWatches();
  await other.ensure(spec);
  expect(await runtime.inspect("s1")).toMatchObject({ sandboxId: "s1", phase: "created" });
  expect(await runtime.inspect("s2")).toBeUndefined();
  server.refuse(({ method }) => method === "GET", 403, "Forbidden");
  await expect(runtime.inspect("s2")).rejects.toMatchObject({
    reason: "RUNTIME_UNAVAILABLE",
    message: expect.stringMatching(/namespace .* is missing/),
  });
});

test("asks for a pod that no scheduler seems to have looked at, as its watch may be behind", async ({
  server,
  open,
}) => {
  const runtime = open();
  await runtime.ensure(spec);
  server.update(path, ({ metadata }) => {
    metadata.creationTimestamp = new Date(Date.now() - 60_000).toISOString();
  });
  await until(async () => expect((await runtime.inspect("s1"))?.createdAt.getTime()).toBeLessThan(Date.now() - 30_000));
  server.silenceWatches();
  run(server);
  expect(await runtime.inspect("s1")).toMatchObject({ phase: "created" });
  expect(await runtime.ensure(spec)).toMatchObject({ phase: "running" });
});

test("tells a quota that changed at the same time from a pod that is there", async ({ server, open }) => {
  const runtime = open();
  await runtime.list();
  server.refuse(({ method }) => method === "POST", 409, "Conflict", "the object has been modified");
  server.refuse(
    ({ method, path: at }) => method === "POST" && at === pods,
    409,
    "Conflict",
    "the object has been modified",
  );
  await expect(runtime.ensure(spec)).rejects.toMatchObject({ message: expect.stringContaining("409 Conflict") });
  expect(await runtime.ensure(spec)).toMatchObject({ phase: "created" });
});

test("a Secret that the cluster refuses, as a quota does, fails its sandbox; the cluster's words are for the log", async ({
  server,
  open,
}) => {
  const said = "exceeded quota: secrets, requested: count/secrets=1, used: count/secrets=10, limited: count/secrets=10";
  server.refuse(({ method, path: at }) => method === "POST" && at === secrets, 403, "Forbidden", said);
  await expect(open().ensure(secretSpec)).rejects.toMatchObject({
    failure: { reason: "provisioning_failed", message: "The cluster's quota is used up.", detail: said },
  });
  expect(isGated(server)).toBe(true);
});

test("a Secret that can't be made because its quota is just being counted is made the next time", async ({
  server,
  open,
}) => {
  const runtime = open();
  const isMeant = ({ method, path: at }: SeenRequest) => method === "POST" && at === secrets;
  server.refuse(isMeant, 409, "Conflict", "Operation cannot be fulfilled on resourcequotas");
  await expect(runtime.ensure(secretSpec)).rejects.toMatchObject({ reason: "RUNTIME_UNAVAILABLE" });
  expect(isGated(server)).toBe(true);
  await runtime.ensure(secretSpec);
  expect([isGated(server), server.objects.has(secret)]).toEqual([false, true]);
});

test("what the cluster refuses for good, or has of another installation, is not tried again", async ({
  server,
  open,
}) => {
  const runtime = open();
  await runtime.list();
  for (const status of [400, 403, 422]) {
    server.refuse(({ method, path: at }) => method === "POST" && at === pods, status, "Invalid", "no");
    await expect(runtime.ensure(spec)).rejects.toMatchObject({ reason: "PROVISIONING_FAILED" });
  }
  const labels = { "sandgate.io/sandbox-id": "s1", "sandgate.io/workspace-id": "w1", "sandgate.io/installation": "i2" };
  server.objects.set(path, { metadata: { ...rawMetadata, name: "sandgate-s1", labels }, spec: { containers: [] } });
  const reason = "PROVISIONING_FAILED";
  await expect(runtime.ensure(spec)).rejects.toMatchObject({ reason, message: expect.stringContaining("not this") });
});

test("goes by the API server's clock, and tells times by ours", async ({ server, open }) => {
  server.setClockAhead(-3_600_000);
  const runtime = open();
  await runtime.ensure(spec);
  run(server, new Date(Date.now() - 3_600_000));
  const seen = await until(async () => {
    const now = await runtime.inspect("s1");
    expect(now?.phase).toBe("running");
    return now;
  });
  expect(Math.abs((seen?.createdAt.getTime() ?? 0) - Date.now())).toBeLessThan(60_000);
  expect(Math.abs((seen?.startedAt?.getTime() ?? 0) - Date.now())).toBeLessThan(60_000);
  // By our clock its end is an hour overdue.
  server.update(path, (pod) => {
    pod.metadata.deletionTimestamp = new Date(Date.now() - 3_600_000 + 30_000).toISOString();
  });
  server.update(path, (pod) => {
    pod.metadata.annotations = { seen: "true" };
  });
  expect(await runtime.inspect("s1")).toMatchObject({ phase: "running" });
});

test("says what a kubelet tells in events alone, once a pod's set-up takes long", async ({ server, open }) => {
  const runtime = open();
  await runtime.ensure(spec);
  const { uid } = server.objects.get(path)?.metadata ?? { uid: "" };
  const event = {
    metadata: { ...rawMetadata, name: "e1" },
    spec: { containers: [] },
    message: "no room in the subnet",
  };
  server.objects.set("/api/v1/namespaces/s/events/e1", event);
  const scheduled = (at: Date, isSetUp: boolean) =>
    server.update(path, (pod) => {
      pod.metadata.uid = uid;
      pod.spec.nodeName = "node1";
      pod.status = {
        phase: "Pending",
        conditions: [
          { type: "PodScheduled", status: "True", lastTransitionTime: at.toISOString() },
          { type: "PodReadyToStartContainers", status: isSetUp ? "True" : "False" },
        ],
      };
    });
  scheduled(new Date(), false);
  await until(async () => expect(await runtime.ensure(spec)).not.toHaveProperty("problem"));
  scheduled(new Date(Date.now() - 20_000), false);
  await until(async () =>
    expect(await runtime.ensure(spec)).toMatchObject({
      problem: {
        reason: "node_error",
        message: "The node can't set the sandbox up.",
        detail: "no room in the subnet",
        isFinal: false,
      },
    }),
  );
  // It pulls now.
  scheduled(new Date(Date.now() - 20_000), true);
  await until(async () => expect(await runtime.ensure(spec)).not.toHaveProperty("problem"));
});

const rawMetadata = { namespace: "s", uid: "e", resourceVersion: "1", creationTimestamp: "2026-01-02T03:04:00Z" };
