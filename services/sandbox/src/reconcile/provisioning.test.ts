import { setTimeout as delay } from "node:timers/promises";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { expect, vi } from "vitest";
import { type FailureReason, recordPulled } from "../domain/sandbox.ts";
import { StartFailed } from "../runtime/lifecycle.ts";
import {
  engine,
  holdClock,
  passMinute,
  provision,
  provisionBefore,
  reaches,
  read,
  reconciler,
  start,
  stopByUser,
  store,
  useReconciler,
} from "./reconciler.fixture.ts";

useReconciler();

const phasesToReady = ["accepted", "image_pulled", "created", "started", "ready"];

test("pulls by digest, starts, becomes ready, and records each phase on the timeline", async () => {
  await start();
  const id = await provision({ ttlSeconds: 60 });
  const sandbox = await reaches(id, "ready");
  expect(engine.pulls).toEqual(["registry.example/app:1@sha256:aa"]);
  expect(engine.specs[0]).toMatchObject({ reference: "sha256:bb", memoryMb: 256, pids: 64 });
  expect(sandbox.imageDigest).toBe("sha256:aa");
  expect(sandbox.timeline.map(({ phase }) => phase)).toEqual(phasesToReady);
  expect(sandbox.expiresAt?.getTime()).toBe((sandbox.startedAt?.getTime() ?? 0) + 60_000);
});

test("runs a default image that only the engine has, but authorizes every other image at its registry", async () => {
  await start({
    pullImage: async () => {
      throw new DomainError("IMAGE_PULL_UNAUTHORIZED", "The registry refused.");
    },
  });
  engine.local.set("registry.example/app:1", "sha256:bb");
  await reaches(await provision({ isDefault: true }), "ready");
  await reaches(await provision({ isDefault: false }), "failed", "image_pull_unauthorized");
  expect(engine.specs).toHaveLength(1);
});

test("asks no registry for a default image that only the engine may have, which fails without it", async () => {
  await start();
  const image = { isDefault: true, reference: "localhost/app:1" };
  const failed = await reaches(await provision(image), "failed", "image_not_found_in_registry");
  expect(failed.message).toBe("The image localhost/app:1 isn't on the engine, and is in no registry.");
  engine.local.set(image.reference, "sha256:bb");
  await reaches(await provision(image), "ready");
  expect(engine.pulls).toEqual([]);
  // A registry that the operator allowed has this name for a workspace.
  await reaches(await provision({ reference: "localhost/other:1" }), "ready");
  expect(engine.pulls).toEqual(["localhost/other:1@sha256:aa"]);
});

test("a stop ends a pull that hangs", async () => {
  await start();
  engine.holdPull = new Promise(() => {});
  const id = await provision();
  await until(() => expect(engine.pulls).toHaveLength(1));
  await stopByUser(id);
  await reaches(id, "stopped", "stopped_by_user");
  expect(engine.specs).toEqual([]);
});

test("a stop ends the wait for another pull", async () => {
  await start();
  engine.holdPull = new Promise(() => {});
  for (let i = 0; i < 4; i++) await provision();
  await until(() => expect(engine.pulls).toHaveLength(4));
  const id = await provision();
  await delay(50);
  await stopByUser(id);
  await reaches(id, "stopped", "stopped_by_user");
  expect(engine.pulls).toHaveLength(4);
});

test("a pull that takes too long fails with its own reason", async () => {
  await start({
    limits: { cpus: 1, pids: 64, pullTimeoutMs: 300, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 },
  });
  engine.holdPull = new Promise(() => {});
  await reaches(await provision(), "failed", "pull_timeout");
});

/** A pull of 20 ms that ends with this error, if any; it can be cut. */
async function pullFor20Ms(signal: AbortSignal, error?: DomainError) {
  await delay(20, undefined, { signal });
  if (error) throw error;
  return { digest: "sha256:aa", pinnedReference: "sha256:bb" };
}

const anHourAgo = () => new Date(Date.now() - 3_600_000);

test("a sandbox for which the platform was away for longer than a pull may take is pulled nevertheless", async () => {
  let tries = 0;
  await start({
    async pullImage(_sandbox, signal) {
      tries += 1;
      return pullFor20Ms(signal, tries === 1 ? new DomainError("RUNTIME_UNAVAILABLE", "No room.") : undefined);
    },
  });
  await reaches(await provision({ acceptedAt: anHourAgo() }), "ready");
});

test.each([
  ["RUNTIME_UNAVAILABLE", "runtime_unavailable"],
  ["REGISTRY_UNREACHABLE", "registry_unreachable"],
] as const)("once the time for the pull is over, %s that lasts fails a sandbox with %s", async (error, reason) => {
  holdClock();
  await start({
    async pullImage(_sandbox, signal, onProgress) {
      onProgress({ downloadedBytes: 1, totalBytes: 100 });
      return pullFor20Ms(signal, new DomainError(error, "No answer.")).finally(passMinute);
    },
  });
  await reaches(await provision({ acceptedAt: anHourAgo() }), "failed", reason);
});

test.each([
  [new DomainError("RUNTIME_UNAVAILABLE", "No room.", { cause: new Error("/data is full") }), "No room."],
  [new Error("EACCES: mkdir '/data/pulls'"), "The sandbox can't be started."],
])("a runtime that is out for too long fails a sandbox in words of ours alone (%s)", async (error, message) => {
  await start({
    pullImage: () => Promise.reject(error),
    limits: { cpus: 1, pids: 64, pullTimeoutMs: 0, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 },
  });
  const sandbox = await reaches(await provision(), "failed", "runtime_unavailable");
  expect(sandbox.message).toBe(message);
});

test("an image that was pulled before a restart isn't pulled again", async () => {
  const pinnedReference = "sha256:bb";
  engine.local.set(pinnedReference, "sha256:aa");
  await start({
    async pullImage(sandbox) {
      await store.sandboxes.update(recordPulled(sandbox, { pinnedReference, digest: "sha256:aa" }, new Date()), []);
      throw new DomainError("RUNTIME_UNAVAILABLE", "A crash.");
    },
  });
  await reaches(await provision(), "ready");
  expect(engine.pulls).toEqual([]);
  expect(engine.specs[0]).toMatchObject({ reference: "sha256:bb" });
});

test("an unreachable registry is tried again until the retry time is over", async () => {
  holdClock();
  let tries = 0;
  await start({
    pullImage: async () => {
      tries += 1;
      throw new DomainError("REGISTRY_UNREACHABLE", "No answer.");
    },
    limits: {
      cpus: 1,
      pids: 64,
      pullTimeoutMs: 120_000,
      readinessTimeoutMs: 60_000,
      drainTimeoutMs: 30_000,
      registryRetryMs: 60_000,
    },
  });
  const id = await provision();
  await until(() => expect(tries).toBeGreaterThan(1));
  expect((await read(id)).state).toBe("provisioning");
  passMinute();
  await reaches(id, "failed", "registry_unreachable");
});

test.each([
  [0, "failed"],
  [1, "ready"],
] as const)("a registry that is out again after it delivered %i bytes leaves the sandbox %s", async (bytes, state) => {
  holdClock();
  const limits = { cpus: 1, pids: 64, pullTimeoutMs: 300_000, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 };
  let tries = 0;
  await start({
    limits,
    async pullImage(_sandbox, _signal, onProgress) {
      tries += 1;
      if (tries === 3) return { digest: "sha256:aa", pinnedReference: "sha256:bb" };
      if (tries === 2) {
        onProgress({ downloadedBytes: bytes, totalBytes: 100 });
        passMinute();
      }
      throw new DomainError("REGISTRY_UNREACHABLE", "No answer.");
    },
  });
  await reaches(await provision(), state, state === "failed" ? "registry_unreachable" : undefined);
});

test.each([
  [1, "ready", 2],
  [40, "failed", 1],
] as const)("a registry that takes no requests for %i s leaves the sandbox %s", async (seconds, state, tries) => {
  let tried = 0;
  await start({
    pullImage: async () => {
      tried += 1;
      if (tried === 1) throw new DomainError("REGISTRY_UNREACHABLE", "Later.", { retryAfterSeconds: seconds });
      return { digest: "sha256:aa", pinnedReference: "sha256:bb" };
    },
  });
  await reaches(await provision(), state, state === "failed" ? "registry_unreachable" : undefined);
  expect(tried).toBe(tries);
});

test("a sandbox that the engine refuses fails with the engine's message", async () => {
  await start();
  engine.refusal = new DomainError("PROVISIONING_FAILED", "no such command");
  expect((await reaches(await provision(), "failed", "start_failed")).message).toBe("no such command");
  engine.refusal = new DomainError("PROVISIONING_FAILED", "It lacks its command.");
  const command = ["/no/such\nprogram", "with", "arguments"];
  const failed = await reaches(await provision({ command }), "failed", "start_failed");
  expect(failed.message).toBe('It lacks its command ("/no/such\\nprogram").');
});

test("rules that can't be set are tried again, and fail a sandbox only when that goes on", async () => {
  holdClock();
  const limits = { cpus: 1, pids: 64, pullTimeoutMs: 300_000, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 };
  await start({ limits: { ...limits, isolationRetryMs: 60_000 } });
  const locked = new DomainError("ISOLATION_UNAVAILABLE", "Another app is currently holding the xtables lock.");
  engine.refusal = locked;
  const passing = await provision();
  await delay(200);
  expect((await read(passing)).state).toBe("provisioning");
  engine.refusal = undefined;
  await reaches(passing, "ready");
  engine.refusal = locked;
  const id = await provision();
  await delay(200);
  passMinute();
  const failed = await reaches(id, "failed", "isolation_unavailable");
  expect(failed.message).toBe("Sandboxes can't be isolated on this host.");
});

test("a start that fails for a cause that may pass is repeated, and fails the sandbox when that goes on", async () => {
  holdClock();
  const limits = { cpus: 1, pids: 64, pullTimeoutMs: 300_000, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 };
  await start({ limits: { ...limits, startRetryMs: 60_000 } });
  const failed = new StartFailed({
    reason: "start_failed",
    message: "It could not be started.",
    detail: "cgroup busy",
  });
  engine.refusal = failed;
  const passing = await provision();
  await delay(200);
  expect((await read(passing)).state).toBe("provisioning");
  engine.refusal = undefined;
  await reaches(passing, "ready");
  engine.refusal = failed;
  const id = await provision();
  await delay(200);
  passMinute();
  expect((await reaches(id, "failed", "start_failed")).message).toBe("It could not be started.");
});

test("an engine that is down is waited for", async () => {
  await start();
  engine.down = true;
  const id = await provision();
  expect((await read(id)).state).toBe("provisioning");
  engine.down = false;
  await reaches(id, "ready");
});

test("a container that is not ready in time fails, and is removed", async () => {
  await start({
    limits: { cpus: 1, pids: 64, pullTimeoutMs: 60_000, readinessTimeoutMs: 200, drainTimeoutMs: 30_000 },
  });
  engine.ready = false;
  await reaches(await provision(), "failed", "readiness_timeout");
  await until(() => expect(engine.objects.size).toBe(0));
});

test("a container that ends before it is ready is noticed, though its event is lost", async () => {
  await start();
  engine.ready = false;
  const id = await provision();
  const running = await until(() => engine.objects.get(id) ?? expect.fail("there is no container yet"));
  engine.objects.set(id, { ...running, phase: "exited", exitCode: 3 });
  await reaches(id, "failed", "exited");
});

test("a clock that is set forward takes no time from a container that is not ready yet", async () => {
  holdClock();
  await start({
    limits: { cpus: 1, pids: 64, pullTimeoutMs: 60_000, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 },
  });
  let probes = 0;
  engine.probe = async () => {
    probes += 1;
    if (probes === 2) vi.setSystemTime(Date.now() + 600_000);
    return probes > 4;
  };
  await reaches(await provision(), "ready");
});

test("a probe that the machine slept through is not the last", async () => {
  await start({
    limits: { cpus: 1, pids: 64, pullTimeoutMs: 60_000, readinessTimeoutMs: 200, drainTimeoutMs: 30_000 },
  });
  let probes = 0;
  engine.probe = async () => {
    probes += 1;
    if (probes === 1) await delay(400);
    return probes > 1;
  };
  await reaches(await provision(), "ready");
});

test("waits for a container that is on its way, and goes on when it is woken", async () => {
  await start();
  engine.starting = {};
  const id = await provision();
  await until(() => expect(engine.specs).not.toHaveLength(0));
  expect((await read(id)).state).toBe("provisioning");
  engine.starting = undefined;
  reconciler.wake(id);
  await reaches(id, "ready");
});

test("a container is made with the access that its pull was given, and a later one asks anew", async () => {
  const access = { registryHost: "registry.example", username: "", password: "", volumes: ["/data"] };
  let asked = 0;
  await start({
    pullImage: async () => ({ digest: "sha256:aa", pinnedReference: "r/a@sha256:aa", access }),
    async findAccess() {
      asked += 1;
      return { ...access, volumes: [] };
    },
  });
  engine.starting = {};
  const id = await provision();
  // It is tried again every few seconds.
  await until(() => expect(engine.specs.length).toBeGreaterThan(0));
  expect([await engine.specs[0]?.findAccess?.(), asked]).toEqual([access, 0]);
  engine.objects.set(id, { sandboxId: id, phase: "created", createdAt: new Date() });
  reconciler.wake(id);
  await until(async () => {
    await engine.specs.at(-1)?.findAccess?.();
    expect(asked).toBeGreaterThan(0);
  });
});

test("a container that its runtime finds ready when it is first seen to run is ready by one change", async () => {
  await start();
  engine.ready = false;
  engine.startsReady = true;
  const sandbox = await reaches(await provision({ ttlSeconds: 60 }), "ready");
  expect(sandbox.timeline.map(({ phase }) => phase)).toEqual(phasesToReady);
  expect(sandbox.expiresAt?.getTime()).toBe((sandbox.startedAt?.getTime() ?? 0) + 60_000);
  // Accepted, pulled, ready.
  expect(sandbox.version).toBe(3);
});

test("gives up a container that does not run in time, with what keeps it from running", async () => {
  const limits = { cpus: 1, pids: 64, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 };
  await start({ limits: { ...limits, pullTimeoutMs: 100, schedulingTimeoutMs: 100 } });
  engine.starting = {};
  const id = await provision();
  await delay(250);
  reconciler.wake(id);
  expect((await reaches(id, "failed", "pull_timeout")).message).toBe("The container did not run within 0.2 s.");
  engine.starting = { problem: { reason: "image_pull_failed", message: "disk", isFinal: false } };
  const other = await provision();
  await delay(250);
  reconciler.wake(other);
  expect((await reaches(other, "failed", "image_pull_failed")).message).toBe("disk");
});

test("waits for a place to run, and for a registry, for as long as the settings say", async () => {
  const limits = { cpus: 1, pids: 64, pullTimeoutMs: 60_000, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 };
  await start({ limits: { ...limits, schedulingTimeoutMs: 100, registryRetryMs: 100 } });
  for (const reason of ["unschedulable", "registry_unreachable"] as const) {
    engine.starting = { problem: { reason, message: "0/1 nodes", isFinal: false } };
    const id = await provision();
    await until(async () => {
      reconciler.wake(id);
      expect((await read(id)).stateReason).toBe(reason);
    });
  }
});

test.each([
  ["image_pull_failed", "failed"],
  ["node_error", "provisioning"],
] as const)("a registry that is out before and after %s leaves the sandbox %s", async (between, state) => {
  holdClock();
  const limits = { cpus: 1, pids: 64, pullTimeoutMs: 300_000, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 };
  await start({ limits });
  const id = await provisionBefore();
  const see = async (reason: FailureReason) => {
    engine.starting = { problem: { reason, message: "no", isFinal: false } };
    const { length } = engine.specs;
    await until(async () => {
      reconciler.wake(id);
      // By then a pass that has seen it has come to its end.
      if ((await read(id)).state === "provisioning") expect(engine.specs.length).toBeGreaterThan(length + 1);
    });
  };
  await see("registry_unreachable");
  await see(between);
  passMinute();
  await see("registry_unreachable");
  expect((await read(id)).state).toBe(state);
});

test.each<NonNullable<typeof engine.starting>>([
  { problem: { reason: "unschedulable", message: "0/1 nodes", isFinal: false } },
  {},
])("the time before the container was asked for is none that it took to run (%j)", async (starting) => {
  const limits = { cpus: 1, pids: 64, pullTimeoutMs: 60_000, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 };
  await start({ limits: { ...limits, schedulingTimeoutMs: 60_000 } });
  engine.starting = starting;
  const id = await provision({ acceptedAt: anHourAgo() });
  await until(() => expect(engine.specs).not.toHaveLength(0));
  engine.starting = undefined;
  reconciler.wake(id);
  await reaches(id, "ready");
});

test("a container that runs and lacks something isn't ready, and fails with that after the time for its start", async () => {
  const limits = { cpus: 1, pids: 64, readinessTimeoutMs: 60_000, drainTimeoutMs: 30_000 };
  await start({ limits: { ...limits, pullTimeoutMs: 200 } });
  engine.starting = { phase: "running", problem: { reason: "node_error", message: "no helper", isFinal: false } };
  const id = await provision();
  await delay(250);
  reconciler.wake(id);
  expect((await reaches(id, "failed", "node_error")).message).toBe("no helper");
});

test("fails a sandbox at once with the runtime's own reason when it never will run", async () => {
  await start();
  engine.starting = { problem: { reason: "container_config_error", message: "runs as root", isFinal: true } };
  expect((await reaches(await provision(), "failed", "container_config_error")).message).toBe("runs as root");
});
