import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, expect } from "vitest";
import { ensureOn, fetchCommand, idle, type RuntimeTest, serve, until } from "./runtime-harness.ts";

// The contract of the lifecycle port.

export function describeLife(test: RuntimeTest): void {
  describe("life", () => {
    test("creates, starts, lists and removes a sandbox, each idempotently", async ({
      harness,
      runtime,
      specOf,
      ensure,
    }) => {
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

    test("creates one sandbox when several callers race", async ({ harness, runtime, specOf }) => {
      const spec = specOf(await harness.makeImage(idle));
      const second = harness.openSecond();
      const seen = await Promise.all([runtime, second, runtime, second, runtime].map((each) => ensureOn(each, spec)));
      expect(seen.every(({ phase }) => phase === "running")).toBe(true);
      expect((await runtime.list()).filter(({ sandboxId }) => sandboxId === spec.sandboxId)).toHaveLength(1);
    });

    test("notices an early exit with its code, and does not start it again", async ({ harness, run, ensure, see }) => {
      const spec = await run(["sh", "-c", "echo done; exit 4"]);
      const exited = await see(spec.sandboxId, "exited");
      expect(exited).toMatchObject({ exitCode: 4, outOfMemory: false });
      expect(await ensure(spec)).toEqual(exited);
      expect(await harness.readLogs(spec.sandboxId)).toBe("done\n");
    });

    test("runs a command instead of the image's, and gives variables, both as they are", async ({
      harness,
      specOf,
      ensure,
      see,
    }) => {
      const image = await harness.makeImage(["sh", "-c", 'echo "image $GREETING"; exit 3']);
      const greeting = "a $HOME $(GREETING) $$ 'b' = ü";
      const env = { names: ["EMPTY", "GREETING"], find: async () => ({ EMPTY: "", GREETING: greeting }) };
      const command = ["sh", "-c", 'echo "$0 $GREETING<$EMPTY>"; exit 4', "$(GREETING) $$ $HOME"];
      const [ofImage, own] = [
        { ...specOf(image), env },
        { ...specOf(image), env, command },
      ];
      for (const [spec, exitCode] of [
        [ofImage, 3],
        [own, 4],
      ] as const) {
        await ensure(spec);
        expect(await see(spec.sandboxId, "exited")).toMatchObject({ exitCode });
      }
      expect(await harness.readLogs(ofImage.sandboxId)).toBe(`image ${greeting}\n`);
      expect(await harness.readLogs(own.sandboxId)).toBe(`$(GREETING) $$ $HOME ${greeting}<>\n`);
    });

    test("refuses a command that is not in the image, each time, in words of ours", async ({
      harness,
      runtime,
      specOf,
      ensure,
    }) => {
      const spec = specOf(await harness.makeImage(["/no/such/program"]));
      for (const _ of [1, 2]) {
        await expect(ensure(spec)).rejects.toMatchObject({
          reason: "PROVISIONING_FAILED",
          message: "The container could not be started: the image lacks its command, or what that needs to run.",
        });
      }
      expect(await runtime.inspect(spec.sandboxId)).toMatchObject({ phase: "created" });
    });

    test("refuses an image that is not there", async ({ harness, specOf, ensure }) => {
      await expect(ensure(specOf(harness.missingImage))).rejects.toMatchObject({ reason: "PROVISIONING_FAILED" });
    });

    test("lets a sandbox end on SIGTERM, and kills one that ignores it", async ({ harness, runtime, run }) => {
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

    test("wakes its observers, and ends with its signal", async ({ harness, runtime, specOf, ensure }) => {
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
}

export function describeReadiness(test: RuntimeTest): void {
  describe("readiness", () => {
    test("asks the port, without following redirects", async ({ harness, run, probe }) => {
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

    test("is not blocked by an endless answer, or by none", async ({ harness, run, probe }) => {
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

    test("without a port runs `true`, or waits a second where that is missing", async ({
      harness,
      specOf,
      run,
      ensure,
      probe,
    }) => {
      const spec = await run(idle);
      await until(() => probe(spec.sandboxId));
      const bare = specOf(await harness.makeImage(idle, ["sleep"]));
      const { startedAt } = await ensure(bare);
      await until(() => probe(bare.sandboxId));
      expect(Date.now() - (startedAt?.getTime() ?? Number.NaN)).toBeGreaterThanOrEqual(1_000);
    });

    test("is false for a sandbox that has ended or is gone, and can be aborted", async ({
      runtime,
      run,
      see,
      probe,
    }) => {
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
}

export function describeLimits(test: RuntimeTest): void {
  describe("limits", () => {
    test("limits memory, and reports a sandbox that exceeded it", async ({ run, see }) => {
      const spec = await run(["tail", "/dev/zero"]);
      expect(await see(spec.sandboxId, "exited")).toMatchObject({ exitCode: 137, outOfMemory: true });
      const survivor = await run(["sh", "-c", "tail /dev/zero; exit 3"]);
      expect(await see(survivor.sandboxId, "exited")).toMatchObject({ exitCode: 3, outOfMemory: false });
    });

    test("sets the memory limit, and that of processes where it has one, in the sandbox's control group", async ({
      harness,
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

    test("keeps a fork bomb within its process limit while a neighbour answers", async ({
      harness,
      runtime,
      run,
      probe,
      skip,
    }) => {
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
}

export function describeIsolation(test: RuntimeTest): void {
  describe("isolation", () => {
    test("leaves few capabilities, no new privileges, and a seccomp filter", async ({ harness, run }) => {
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

    test("adds nothing of the platform to the environment, and no engine socket", async ({ harness, run }) => {
      const spec = await run(idle);
      const { output } = await harness.exec(spec.sandboxId, [
        "sh",
        "-c",
        "tr '\\0' '\\n' < /proc/1/environ; ls /run /var/run",
      ]);
      // Kubernetes' own variables are there, but empty.
      expect(output).not.toMatch(/SANDGATE|KUBERNETES\w+=.|docker\.sock/);
    });

    test("reaches no port of the host on any of its addresses", async ({ harness, run, reaches, skip }) => {
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

    test("reaches public addresses, but no private or link-local ones", async ({ harness, run, reaches, skip }) => {
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

    test("reaches itself, but no neighbour", async ({ harness, run, probe, reaches, skip }) => {
      const { network } = harness;
      if (!network) return skip("nothing here enforces network policies");
      const [a, b] = [await run(serve, { readinessPort: 8000 }), await run(serve, { readinessPort: 8000 })];
      for (const { sandboxId } of [a, b]) await until(() => probe(sandboxId, 8000));
      expect(await reaches(a.sandboxId, "127.0.0.1", 8000)).toBe(true);
      expect(await reaches(a.sandboxId, await harness.addressOf(b.sandboxId), 8000)).toBe(false);
      expect(await reaches(b.sandboxId, await harness.addressOf(a.sandboxId), 8000)).toBe(false);
    });

    test("can be checked repeatedly, and by several at once", async ({ harness, runtime }) => {
      const second = harness.openSecond();
      await Promise.all([runtime.check(), second.check(), runtime.check()]);
      await runtime.check();
    });
  });
}
