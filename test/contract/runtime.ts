import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, createServer as createTcpServer, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { ImageAccess, ImageStore } from "@sandgate/sandbox/runtime-images";
import {
  type Observation,
  type RuntimeLifecycle,
  type RuntimeSpec,
  SandboxRefused,
} from "@sandgate/sandbox/runtime-lifecycle";
import type { Credential } from "@sandgate/test-support/registry";
import { afterAll, test as baseTest, beforeAll, describe, expect } from "vitest";

/** What the suite needs of an engine besides the port. Images contain busybox, with all its programs. */
export interface RuntimeHarness {
  runtime: RuntimeLifecycle;
  /** Its store of images, where there is one. */
  images: ImageStore | undefined;
  /** A second adapter of the same installation, as another process would have. */
  openSecond(): RuntimeLifecycle;
  /** A reference of an image that exists nowhere. */
  missingImage: string;
  /** Makes an image that `ensure` takes as a reference. `programs`: the only ones it has. */
  makeImage(command: readonly string[], programs?: readonly string[]): Promise<string>;
  /** Runs a program inside a sandbox, with what it printed on both streams. */
  exec(sandboxId: string, command: readonly string[]): Promise<{ exitCode: number; output: string }>;
  /** Both streams of a sandbox so far. */
  readLogs(sandboxId: string): Promise<string>;
  addressOf(sandboxId: string): Promise<string>;
  /** The seconds between SIGTERM and SIGKILL that a stop without any takes all the same. */
  shortestGraceSeconds: number;
  /** The network around sandboxes; undefined where nothing here enforces rules. */
  network: NetworkHarness | undefined;
  /** Whether a sandbox's limit of processes is one of its own, that it can read. */
  limitsProcesses: boolean;
  /** Whether images are pulled from registries on this machine's loopback address, as all of these are. */
  pullsFromLoopback: boolean;
  registry: {
    host: string;
    credential: Credential;
    /** Puts a new image there that the engine does not have; returns its pinned reference. */
    publish(): Promise<string>;
  };
  close(): Promise<void>;
}

export interface NetworkHarness {
  /** Runs a program to its end in a container that nothing isolates, to show that what is forbidden would work. */
  runUnprotected(command: readonly string[]): Promise<{ exitCode: number; output: string }>;
  /** Addresses of the engine's host as containers know them. */
  hostAddresses: readonly string[];
  /** Addresses with `http://<address>:<port>/` answering behind the host: one public, one private, one link-local. */
  peers: { public: string; private: string; linkLocal: string };
}

type SpecOf = (reference: string, changes?: Partial<RuntimeSpec>) => RuntimeSpec;

const serve = ["httpd", "-f", "-p", "8000", "-h", "/www"];
const idle = ["sleep", "3600"];

/** The contract of every adapter of the runtime port, on a real engine. With `concurrent`, some of its tests run at the same time. */
export function describeRuntime(
  name: string,
  isAvailable: boolean,
  openHarness: () => Promise<RuntimeHarness>,
  { concurrent = false } = {},
): void {
  describe.runIf(isAvailable)(`runtime: ${name}`, { timeout: 300_000, concurrent }, () => {
    let harness: RuntimeHarness;
    let runtime: RuntimeLifecycle;

    /** `specOf` and `run` make sandboxes of one test, which are removed after it. */
    const test = baseTest
      // biome-ignore lint/correctness/noEmptyPattern: Vitest reads from the pattern which fixtures this one needs
      .extend("specOf", async ({}, { onCleanup }) => {
        const made: string[] = [];
        onCleanup(async () => {
          await Promise.all(made.map((sandboxId) => runtime.remove(sandboxId)));
        });
        return (reference: string, changes: Partial<RuntimeSpec> = {}): RuntimeSpec => {
          const sandboxId = randomUUID();
          made.push(sandboxId);
          return { sandboxId, workspaceId: randomUUID(), reference, memoryMb: 64, cpus: 0.5, pids: 64, ...changes };
        };
      })
      .extend("run", async ({ specOf }) => async (command: readonly string[], changes: Partial<RuntimeSpec> = {}) => {
        const spec = specOf(await harness.makeImage(command), changes);
        await ensure(spec);
        return spec;
      });

    beforeAll(async () => {
      harness = await openHarness();
      runtime = harness.runtime;
    });
    afterAll(() => harness?.close());

    /** As the service does: asks again while the container is on its way. */
    async function ensure(spec: RuntimeSpec, on = runtime): Promise<Observation> {
      for (;;) {
        const seen = await on.ensure(spec);
        if (seen.phase !== "created") return seen;
        await delay(50);
      }
    }

    /** Looks until the sandbox is as wanted; the test's own time limit ends it otherwise. */
    async function see(sandboxId: string, phase: Observation["phase"]): Promise<Observation> {
      for (;;) {
        const seen = await runtime.inspect(sandboxId);
        if (seen?.phase === phase) return seen;
        await delay(50);
      }
    }

    async function until(condition: () => Promise<boolean>): Promise<void> {
      while (!(await condition())) await delay(50);
    }

    const probe = (sandboxId: string, port?: number) => runtime.probe(sandboxId, port, new AbortController().signal);

    /** True when `GET /` gets an answer from inside the sandbox within two seconds. */
    async function reaches(sandboxId: string, address: string, port: number): Promise<boolean> {
      const { exitCode } = await harness.exec(sandboxId, fetchCommand(address, port));
      return exitCode === 0;
    }

    describe("life", () => {
      test("creates, starts, lists and removes a sandbox, each idempotently", async ({ specOf }) => {
        const spec = specOf(await harness.makeImage(idle));
        const first = await ensure(spec);
        expect(first).toMatchObject({ sandboxId: spec.sandboxId, phase: "running" });
        expect(first.startedAt?.getTime()).toBeGreaterThanOrEqual(first.createdAt.getTime());
        expect(await ensure(spec)).toEqual(first);
        expect(await runtime.inspect(spec.sandboxId)).toEqual(first);
        const { sandboxId, phase, createdAt } = first;
        const listed = (await runtime.list()).find((seen) => seen.sandboxId === sandboxId);
        expect(listed).toMatchObject({ sandboxId, phase });
        expect(Math.abs((listed?.createdAt.getTime() ?? 0) - createdAt.getTime())).toBeLessThan(1_000);
        await runtime.remove(spec.sandboxId);
        await runtime.remove(spec.sandboxId);
        await runtime.stop(spec.sandboxId, 1);
        await runtime.stop(spec.sandboxId, 0);
        expect(await runtime.inspect(spec.sandboxId)).toBeUndefined();
        expect((await runtime.list()).map(({ sandboxId }) => sandboxId)).not.toContain(spec.sandboxId);
      });

      test("creates one sandbox when several callers race", async ({ specOf }) => {
        const spec = specOf(await harness.makeImage(idle));
        const second = harness.openSecond();
        const seen = await Promise.all([runtime, second, runtime, second, runtime].map((each) => ensure(spec, each)));
        expect(seen.every(({ phase }) => phase === "running")).toBe(true);
        expect((await runtime.list()).filter(({ sandboxId }) => sandboxId === spec.sandboxId)).toHaveLength(1);
      });

      test("notices an early exit with its code, and does not start it again", async ({ run }) => {
        const spec = await run(["sh", "-c", "echo done; exit 4"]);
        const exited = await see(spec.sandboxId, "exited");
        expect(exited).toMatchObject({ exitCode: 4, outOfMemory: false });
        expect(await ensure(spec)).toEqual(exited);
        expect(await harness.readLogs(spec.sandboxId)).toBe("done\n");
      });

      test("refuses a command that is not in the image, and names it, each time", async ({ specOf }) => {
        const spec = specOf(await harness.makeImage(["/no/such/program"]));
        for (const _ of [1, 2]) {
          await expect(ensure(spec)).rejects.toMatchObject({
            reason: "PROVISIONING_FAILED",
            message: expect.stringContaining("/no/such/program"),
          });
        }
        expect(await runtime.inspect(spec.sandboxId)).toMatchObject({ phase: "created" });
      });

      test("refuses an image that is not there", async ({ specOf }) => {
        await expect(ensure(specOf(harness.missingImage))).rejects.toMatchObject({ reason: "PROVISIONING_FAILED" });
      });

      test("lets a sandbox end on SIGTERM, and kills one that ignores it", async ({ run }) => {
        const polite = await run(["sh", "-c", "trap 'exit 7' TERM; echo up; while true; do sleep 0.1; done"]);
        const stubborn = await run(["sh", "-c", "trap '' TERM; echo up; while true; do sleep 0.1; done"]);
        const hurried = await run(["sh", "-c", "trap 'exit 7' TERM; echo up; while true; do sleep 0.1; done"]);
        const specs = [polite, stubborn, hurried];
        await until(async () =>
          (await Promise.all(specs.map((spec) => harness.readLogs(spec.sandboxId)))).every((log) => log === "up\n"),
        );
        await Promise.all([
          runtime.stop(polite.sandboxId, 10),
          runtime.stop(stubborn.sandboxId, 1),
          runtime.stop(hurried.sandboxId, 0),
        ]);
        const seen = await Promise.all(specs.map((spec) => runtime.inspect(spec.sandboxId)));
        expect(seen.map((one) => [one?.phase, one?.exitCode])).toEqual([
          ["exited", 7],
          ["exited", 137],
          ["exited", harness.shortestGraceSeconds > 0 ? 7 : 137],
        ]);
      });

      test("wakes its observers, and ends with its signal", async ({ specOf }) => {
        const spec = specOf(await harness.makeImage(["sleep", "1"]));
        const controller = new AbortController();
        const phases = new Set<string | undefined>();
        const observing = (async () => {
          for await (const { sandboxId } of runtime.observe(controller.signal)) {
            if (sandboxId !== spec.sandboxId) continue;
            phases.add((await runtime.inspect(sandboxId))?.phase);
            if (phases.has("exited")) controller.abort();
          }
        })();
        await ensure(spec);
        await observing;
        expect(phases).toContain("exited");
      });
    });

    describe("readiness", () => {
      test("asks the port, without following redirects", async ({ run }) => {
        const spec = await run(serve, { readinessPort: 8000 });
        await until(() => probe(spec.sandboxId, 8000));
        expect(await probe(spec.sandboxId, 8001)).toBe(false);
        const answers = (head: string) => [
          "sh",
          "-c",
          `while true; do printf 'HTTP/1.1 ${head}\\r\\nContent-Length: 0\\r\\n\\r\\n' | nc -l -p 8000; done`,
        ];
        const redirecting = await run(answers("302 Found\\r\\nLocation: http://127.0.0.1:1/"), { readinessPort: 8000 });
        await until(() => probe(redirecting.sandboxId, 8000));
        const failing = await run(answers("503 Service Unavailable"), { readinessPort: 8000 });
        await until(async () => (await harness.exec(failing.sandboxId, ["netstat", "-ltn"])).output.includes(":8000"));
        expect(await probe(failing.sandboxId, 8000)).toBe(false);
      });

      test("is not blocked by an endless answer, or by none", async ({ run }) => {
        const endless = await run(
          ["sh", "-c", "while true; do (printf 'HTTP/1.1 200 OK\\r\\n\\r\\n'; yes) | nc -l -p 8000; done"],
          { readinessPort: 8000 },
        );
        await until(() => probe(endless.sandboxId, 8000));
        const silent = await run(["nc", "-ll", "-p", "8000", "-e", "sleep", "60"], { readinessPort: 8000 });
        expect(await probe(silent.sandboxId, 8000)).toBe(false);
        const header = await run(
          ["sh", "-c", "while true; do (printf 'HTTP/1.1 200 OK\\r\\nx: '; yes) | nc -l -p 8000; done"],
          { readinessPort: 8000 },
        );
        await until(async () => (await harness.exec(header.sandboxId, ["netstat", "-ltn"])).output.includes(":8000"));
        expect(await probe(header.sandboxId, 8000)).toBe(false);
      });

      test("without a port runs `true`, or waits a second where that is missing", async ({ run, specOf }) => {
        const spec = await run(idle);
        await until(() => probe(spec.sandboxId));
        const bare = specOf(await harness.makeImage(idle, ["sleep"]));
        const { startedAt } = await ensure(bare);
        await until(() => probe(bare.sandboxId));
        expect(Date.now() - (startedAt?.getTime() ?? Number.NaN)).toBeGreaterThanOrEqual(1_000);
      });

      test("is false for a sandbox that has ended or is gone, and can be aborted", async ({ run }) => {
        const spec = await run(["true"]);
        await see(spec.sandboxId, "exited");
        expect(await probe(spec.sandboxId)).toBe(false);
        expect(await probe(spec.sandboxId, 8000)).toBe(false);
        expect(await probe(randomUUID())).toBe(false);
        const reason = new Error("enough");
        await expect(runtime.probe(spec.sandboxId, 8000, AbortSignal.abort(reason))).rejects.toBe(reason);
        const silent = await run(["nc", "-ll", "-p", "8000", "-e", "sleep", "60"], { readinessPort: 8000 });
        const controller = new AbortController();
        const probing = runtime.probe(silent.sandboxId, 8000, controller.signal);
        controller.abort(reason);
        await expect(probing).rejects.toBe(reason);
      });
    });

    describe("limits", () => {
      test("limits memory, and reports a sandbox that exceeded it", async ({ run }) => {
        const spec = await run(["tail", "/dev/zero"]);
        expect(await see(spec.sandboxId, "exited")).toMatchObject({ exitCode: 137, outOfMemory: true });
        const survivor = await run(["sh", "-c", "tail /dev/zero; exit 3"]);
        expect(await see(survivor.sandboxId, "exited")).toMatchObject({ exitCode: 3, outOfMemory: false });
      });

      test("sets the memory limit, and that of processes where it has one, in the sandbox's control group", async ({
        run,
      }) => {
        const spec = await run(idle, { memoryMb: 96, pids: 33 });
        const { output } = await harness.exec(spec.sandboxId, [
          "sh",
          "-c",
          "cd /sys/fs/cgroup; (cat memory/memory.limit_in_bytes pids/pids.max || cat memory.max pids.max) 2>/dev/null",
        ]);
        const numbers = output.trim().split("\n").map(Number);
        const [memory, pids] = numbers.toSorted((a, b) => b - a);
        expect(memory).toBe(96 * 1024 * 1024);
        if (harness.limitsProcesses) expect(pids).toBe(33);
      });

      test("keeps a fork bomb within its process limit while a neighbour answers", async ({ run, skip }) => {
        skip(
          !harness.limitsProcesses,
          "how many processes a sandbox may have is set for its node (podPidsLimit), not for it alone",
        );
        const neighbour = await run(serve, { readinessPort: 8000 });
        await until(() => probe(neighbour.sandboxId, 8000));
        // The inner shell ends when it can't fork, which leaves room for one more; the outer then forks no more.
        const bomb = await run(
          [
            "sh",
            "-c",
            `cd /sys/fs/cgroup; [ -d pids ] && cd pids; (while true; do sleep 600 & done) 2>/dev/null; sleep 600 &
             read now < pids.current; read max < pids.max; echo full $now $max; while true; do read x < /dev/zero; done`,
          ],
          { pids: 40, cpus: 0.25 },
        );
        await until(async () => (await harness.readLogs(bomb.sandboxId)) !== "");
        expect(await harness.readLogs(bomb.sandboxId)).toBe("full 40 40\n");
        expect(await probe(neighbour.sandboxId, 8000)).toBe(true);
        expect(await runtime.inspect(bomb.sandboxId)).toMatchObject({ phase: "running" });
        await runtime.stop(bomb.sandboxId, 0);
      });
    });

    describe("isolation", () => {
      test("leaves few capabilities, no new privileges, and a seccomp filter", async ({ run }) => {
        const spec = await run(idle);
        const { output } = await harness.exec(spec.sandboxId, ["cat", "/proc/1/status"]);
        const status = Object.fromEntries(output.split("\n").map((line) => line.split(/:\s+/)));
        // CHOWN, DAC_OVERRIDE, FOWNER, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE
        const allowed = [0, 1, 3, 5, 6, 7, 8, 10].reduce((mask, bit) => mask | (1n << BigInt(bit)), 0n);
        for (const set of ["CapPrm", "CapEff", "CapBnd"]) expect(BigInt(`0x${status[set]}`) & ~allowed).toBe(0n);
        expect(status).toMatchObject({ NoNewPrivs: "1", Seccomp: "2" });
        for (const command of [
          "mknod /tmp/null c 1 3",
          "mount -t tmpfs none /tmp",
          "chroot / true",
          "ping -c 1 127.0.0.1",
        ]) {
          expect((await harness.exec(spec.sandboxId, ["sh", "-c", command])).exitCode, command).not.toBe(0);
        }
      });

      test("adds nothing of the platform to the environment, and no engine socket", async ({ run }) => {
        const spec = await run(idle);
        const { output } = await harness.exec(spec.sandboxId, [
          "sh",
          "-c",
          "tr '\\0' '\\n' < /proc/1/environ; ls /run /var/run",
        ]);
        // Kubernetes' own variables are there, but empty.
        expect(output).not.toMatch(/SANDGATE|KUBERNETES\w+=.|docker\.sock/);
      });

      test("reaches no port of the host on any of its addresses", async ({ run, skip }) => {
        const { network } = harness;
        if (!network) return skip("nothing here enforces network policies");
        const spec = await run(idle);
        const server = createServer((_, response) => response.end("the platform")).listen(0, "0.0.0.0");
        await once(server, "listening");
        const { port } = server.address() as AddressInfo;
        try {
          for (const address of network.hostAddresses) {
            expect(await network.runUnprotected(fetchCommand(address, port)), `control ${address}`).toEqual({
              exitCode: 0,
              output: "",
            });
            expect(await reaches(spec.sandboxId, address, port), address).toBe(false);
          }
        } finally {
          server.close();
        }
      });

      test("reaches public addresses, but no private or link-local ones", async ({ run, skip }) => {
        const { network } = harness;
        if (!network) return skip("nothing here enforces network policies");
        const spec = await run(idle);
        for (const address of Object.values(network.peers)) {
          expect(await network.runUnprotected(fetchCommand(address, 8000)), `control ${address}`).toEqual({
            exitCode: 0,
            output: "",
          });
        }
        expect(await reaches(spec.sandboxId, network.peers.public, 8000)).toBe(true);
        expect(await reaches(spec.sandboxId, network.peers.private, 8000)).toBe(false);
        expect(await reaches(spec.sandboxId, network.peers.linkLocal, 8000)).toBe(false);
      });

      test("reaches itself, but no neighbour", async ({ run, skip }) => {
        const { network } = harness;
        if (!network) return skip("nothing here enforces network policies");
        const [a, b] = [await run(serve, { readinessPort: 8000 }), await run(serve, { readinessPort: 8000 })];
        for (const { sandboxId } of [a, b]) await until(() => probe(sandboxId, 8000));
        expect(await reaches(a.sandboxId, "127.0.0.1", 8000)).toBe(true);
        expect(await reaches(a.sandboxId, await harness.addressOf(b.sandboxId), 8000)).toBe(false);
        expect(await reaches(b.sandboxId, await harness.addressOf(a.sandboxId), 8000)).toBe(false);
      });

      test("can be checked repeatedly, and by several at once", async () => {
        const second = harness.openSecond();
        await Promise.all([runtime.check(), second.check(), runtime.check()]);
        await runtime.check();
      });
    });

    describe("images", () => {
      /** Runs an image of a registry as the service does: an engine pulls it first, a node with its pod. */
      async function runFrom(
        specOf: SpecOf,
        reference: string,
        changes: Partial<ImageAccess> = {},
      ): Promise<Observation> {
        const access = { registryHost: harness.registry.host, ...harness.registry.credential, volumes: [], ...changes };
        const { signal } = new AbortController();
        await harness.images?.pull({ pinnedReference: reference, ...access, signal });
        const spec = specOf(reference, { findAccess: async () => access });
        for (;;) {
          const seen = await runtime.ensure(spec);
          // It has none of the scheduler's word at first.
          if (seen.phase !== "created" || (seen.problem && seen.problem.reason !== "unschedulable")) return seen;
          await delay(50);
        }
      }

      /** Why that fails, as the sandbox's record tells it. */
      async function refusalOf(
        specOf: SpecOf,
        reference: string,
        changes: Partial<ImageAccess> = {},
      ): Promise<string | undefined> {
        try {
          return (await runFrom(specOf, reference, changes)).problem?.reason;
        } catch (error) {
          if (error instanceof SandboxRefused) return error.failure.reason;
          if (error instanceof DomainError) return error.reason.toLowerCase();
          throw error;
        }
      }

      const noPull = "nodes of another machine pull from no registry of this one";

      test("are pulled by digest with a credential, again and again", async ({ specOf, skip }) => {
        skip(!harness.pullsFromLoopback, noPull);
        const reference = await harness.registry.publish();
        expect(await runFrom(specOf, reference)).toMatchObject({ phase: "running" });
        expect(await runFrom(specOf, reference)).toMatchObject({ phase: "running" });
      });

      test("are refused with a wrong credential, also where they are already, and told from missing ones", async ({
        specOf,
        skip,
      }) => {
        skip(!harness.pullsFromLoopback, noPull);
        const reference = await harness.registry.publish();
        expect(await refusalOf(specOf, reference, { password: "wrong" })).toBe("image_pull_unauthorized");
        expect(await refusalOf(specOf, reference, { username: "", password: "" })).toBe("image_pull_unauthorized");
        const missing = "image_not_found_in_registry";
        expect(await refusalOf(specOf, reference.replace(/[0-9a-f]{64}$/, "0".repeat(64)))).toBe(missing);
        expect(await refusalOf(specOf, reference.replace(/\/[^@]+@/, "/no/such@"))).toBe(missing);
      });

      test("of a registry that can't be reached are told as such", async ({ specOf }) => {
        const registryHost = "127.0.0.1:1";
        const reference = `${registryHost}/team/app@sha256:${"0".repeat(64)}`;
        expect(await refusalOf(specOf, reference, { registryHost })).toBe("registry_unreachable");
      });

      test("are no longer waited for once their pull is given up", async ({ specOf, skip }) => {
        skip(!harness.pullsFromLoopback, noPull);
        const sockets = new Set<Socket>();
        const silent = createTcpServer((socket) => sockets.add(socket)).listen(0, "127.0.0.1");
        await once(silent, "listening");
        const registryHost = `127.0.0.1:${(silent.address() as AddressInfo).port}`;
        const access = { registryHost, ...harness.registry.credential };
        const reference = `${registryHost}/team/app@sha256:${"0".repeat(64)}`;
        const connected = once(silent, "connection");
        if (harness.images) {
          const controller = new AbortController();
          const reason = new Error("enough");
          const request = { pinnedReference: reference, ...access, signal: controller.signal };
          const pulling = harness.images.pull(request);
          connected.then(() => controller.abort(reason));
          await expect(pulling).rejects.toBe(reason);
          await expect(harness.images.pull(request)).rejects.toBe(reason);
        } else {
          const spec = specOf(reference, { findAccess: async () => ({ ...access, volumes: [] }) });
          expect(await runtime.ensure(spec)).toMatchObject({ phase: "created" });
          await connected;
          await runtime.stop(spec.sandboxId, 0);
          await runtime.remove(spec.sandboxId);
          expect(await runtime.inspect(spec.sandboxId)).toBeUndefined();
        }
        for (const socket of sockets) socket.destroy();
        silent.close();
      });

      /** Nodes keep the images of their pods by themselves. */
      const noStore =
        "nodes fetch, keep and delete images themselves: the platform neither finds, lists nor removes any there";
      const pull = (pinnedReference: string) =>
        harness.images?.pull({
          pinnedReference,
          registryHost: harness.registry.host,
          ...harness.registry.credential,
          signal: new AbortController().signal,
        });

      test("are found that the engine has, and no others", async ({ skip }) => {
        const { images } = harness;
        if (!images) return skip(noStore);
        const id = await harness.makeImage(idle);
        expect(await images.find(id)).toEqual({ pinnedReference: id, digest: expect.stringMatching(/^sha256:/) });
        expect(await images.find("sandgate-test/none:1")).toBeUndefined();
      });

      test("are listed with their names, and removed where no container uses them", async ({ specOf, skip }) => {
        const { images } = harness;
        if (!images) return skip(noStore);
        const name = await harness.registry.publish();
        await pull(name);
        const find = async () => (await images.list()).find(({ names }) => names.includes(name));
        const { pinnedReference: id } = (await images.find(name)) ?? {};
        expect(await find()).toMatchObject({ id, names: [name], isUsed: false });
        expect((await find())?.sizeBytes).toBeGreaterThan(100_000);
        const spec = specOf(id ?? "");
        await ensure(spec);
        expect(await find()).toMatchObject({ isUsed: true });
        expect(await images.remove(name)).toBe(false);
        await runtime.remove(spec.sandboxId);
        expect(await images.remove(name)).toBe(true);
        expect(await find()).toBeUndefined();
        expect(await images.remove(name)).toBe(false);
      });
    });
  });
}

function fetchCommand(address: string, port: number): string[] {
  return ["timeout", "2", "wget", "-q", "-O", "/dev/null", `http://${address}:${port}/`];
}
