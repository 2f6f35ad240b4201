import { execFile } from "node:child_process";
import { randomInt, randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { createLogger } from "@sandgate/kit/base/logging";
import { storageProblem } from "@sandgate/sandbox/docker-disk-use";
import { hasMemoryEvent } from "@sandgate/sandbox/docker-memory";
import { createDockerRuntime, type DockerRuntimeOptions } from "@sandgate/sandbox/runtime.docker";
import { openFaultProxy } from "@sandgate/test-support/fault-proxy";
import {
  buildImage,
  engineSocket,
  openTestEngine,
  probeEngine,
  sandboxLabels,
  type TestImage,
  engineAddress as url,
} from "@sandgate/test-support/images";
import { startProcess } from "@sandgate/test-support/process";
import { probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { test } from "@sandgate/test-support/test";
import type { Container } from "dockerode";
import { afterAll, afterEach, beforeAll, describe, expect, vi } from "vitest";
import { describeRuntime, type RuntimeHarness } from "./runtime.ts";

const execute = promisify(execFile);
const logger = createLogger({ service: "runtime-test", level: "silent" });
const isAvailable = await requireServer("docker", async () => {
  await probeEngine();
  await probeRegistry();
  await execute("iptables", ["-S", "DOCKER-USER"]);
});

/**
 * Hosts to reach or not: a network namespace of its own behind the host, with a public and a private address, and a
 * link-local address on the host's loopback interface. Numbered at random, so that two runs on a machine don't meet.
 */
async function openPeers(): Promise<{
  addresses: RuntimeHarness["peers"];
  namespace: string;
  close(): Promise<void>;
}> {
  const number = randomInt(64);
  const network = { public: `203.0.113.${number * 4}`, private: `10.213.77.${number * 4}` };
  const addresses = {
    public: hostOf(network.public, 2),
    private: hostOf(network.private, 2),
    linkLocal: `169.254.77.${number}`,
  };
  const namespace = `sandgate-test${number}`;
  const link = `sgtest${number}`;
  const ip = (...args: string[]) => execute("ip", args);
  const close = async () => {
    await Promise.all(servers.map((server) => server.stop()));
    await ip("address", "del", `${addresses.linkLocal}/32`, "dev", "lo").catch(() => {});
    await ip("link", "del", link).catch(() => {});
    await ip("netns", "del", namespace).catch(() => {});
    await removeFolder();
  };
  const { path: folder, remove: removeFolder } = await createTempFolder();
  await writeFile(join(folder, "index.html"), "peer\n");
  const servers: ReturnType<typeof startProcess>[] = [];
  try {
    await ip("netns", "add", namespace);
    await ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", namespace);
    await ip("link", "set", link, "up");
    await ip("-n", namespace, "link", "set", "eth0", "up");
    for (const subnet of Object.values(network)) {
      await ip("address", "add", `${hostOf(subnet, 1)}/30`, "dev", link);
      await ip("-n", namespace, "address", "add", `${hostOf(subnet, 2)}/30`, "dev", "eth0");
    }
    await ip("address", "add", `${addresses.linkLocal}/32`, "dev", "lo");
    const env = { PATH: process.env.PATH };
    const serve = ["busybox", "httpd", "-f", "-h", folder, "-p"];
    servers.push(
      ...["8000", "25"].map((port) => startProcess("ip", ["netns", "exec", namespace, ...serve, port], { env })),
      startProcess("busybox", [...serve.slice(1), `${addresses.linkLocal}:8000`], { env }),
    );
    for (const address of Object.values(addresses)) {
      while (!(await fetch(`http://${address}:8000/`).catch(() => undefined))?.ok) await delay(50);
    }
  } catch (error) {
    await close();
    throw error;
  }
  return { addresses, namespace, close };
}

function hostOf(subnet: string, host: number): string {
  return subnet.replace(/\d+$/, (last) => String(Number(last) + host));
}

/** A DNS server (RFC 1035, section 4.1) that knows the IPv4 address of app.example. Runs in a process of its own. */
function answerQuestions(address: readonly number[]): void {
  const socket = process.getBuiltinModule("node:dgram").createSocket("udp4");
  socket.on("message", (query, { address: asker, port }) => {
    const question = query.subarray(12, query.indexOf(0, 12) + 5);
    const isAddress = question.includes("example") && question.readUInt16BE(question.length - 4) === 1;
    const header = Buffer.from([0x81, 0x80, 0, 1, 0, isAddress ? 1 : 0, 0, 0, 0, 0]);
    const answer = Buffer.from(isAddress ? [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, ...address] : []);
    socket.send(Buffer.concat([query.subarray(0, 2), header, question, answer]), port, asker);
  });
  socket.bind(53);
}

/** What a container, or an exec in it, prints on both streams until it ends. */
async function collect(stream: NodeJS.ReadableStream): Promise<string> {
  const both = new PassThrough();
  openTestEngine().modem.demuxStream(stream, both, both);
  stream.on("end", () => both.end());
  let text = "";
  for await (const chunk of both) text += chunk;
  return text;
}

async function openHarness(): Promise<RuntimeHarness> {
  const closing = new AsyncDisposableStack();
  try {
    return await fillHarness(closing);
  } catch (error) {
    await closing.disposeAsync();
    throw error;
  }
}

async function fillHarness(closing: AsyncDisposableStack): Promise<RuntimeHarness> {
  const engine = openTestEngine();
  const installationId = `test-${randomUUID()}`;
  const open = () => createDockerRuntime({ url, installationId, isolation: true, logger });
  const runtime = open();
  const credential = { username: "alice", password: "correct horse" };
  const registry = closing.adopt(await startRegistry({ users: [credential] }), (each) => each.stop());
  const peers = closing.adopt(await openPeers(), (each) => each.close());
  await runtime.check();
  const containerOf = (sandboxId: string) => engine.getContainer(`sandgate-${sandboxId}`);
  const makeImage = async (command: readonly string[], programs?: readonly string[]) => {
    const image = await buildImage(engine, {
      command,
      ...(programs && { programs }),
      files: { "www/index.html": "hello\n" },
    });
    closing.defer(() => image.remove());
    return image.id;
  };
  const tools = await makeImage(["sleep", "3600"]);
  return {
    runtime,
    openSecond: open,
    makeImage,
    async exec(sandboxId, command) {
      const exec = await containerOf(sandboxId).exec({ Cmd: [...command], AttachStdout: true, AttachStderr: true });
      const output = await collect(await exec.start({}));
      const { ExitCode: exitCode } = await exec.inspect();
      return { exitCode: exitCode ?? -1, output };
    },
    async readLogs(sandboxId) {
      return collect(await containerOf(sandboxId).logs({ stdout: true, stderr: true, follow: false }).then(asStream));
    },
    async addressOf(sandboxId) {
      const info = await containerOf(sandboxId).inspect();
      return info.NetworkSettings.Networks.sandgate?.IPAddress ?? "";
    },
    async runUnprotected(command) {
      const labels = { "sandgate.io/test": installationId };
      const container: Container = await engine.createContainer({ Image: tools, Cmd: [...command], Labels: labels });
      try {
        await container.start();
        const { StatusCode: exitCode } = await container.wait();
        const output = await collect(
          await container.logs({ stdout: true, stderr: true, follow: false }).then(asStream),
        );
        return { exitCode, output };
      } finally {
        await container.remove({ force: true });
      }
    },
    hostAddresses: Object.entries(networkInterfaces())
      .filter(([name]) => !name.startsWith("veth"))
      .flatMap(([, addresses]) => addresses ?? [])
      .filter(({ family, internal }) => family === "IPv4" && !internal)
      .map(({ address }) => address),
    peers: peers.addresses,
    registry: {
      host: registry.host,
      credential,
      async publish() {
        const image = await buildImage(engine, { command: ["sleep", "3600"] });
        const digest = await registry.push(engine, image.id, "team/app", "1", credential);
        await image.remove();
        const reference = `${registry.host}/team/app@${digest}`;
        closing.defer(async () => {
          await engine
            .getImage(reference)
            .remove({ force: true })
            .catch(() => {});
        });
        return reference;
      },
    },
    close: () => closing.disposeAsync(),
  };
}

/** Without `follow` the client has the logs whole, and streams are what it takes frames apart from. */
function asStream(logs: Buffer): NodeJS.ReadableStream {
  const stream = new PassThrough();
  setImmediate(() => stream.end(logs));
  return stream;
}

describeRuntime("docker", isAvailable, openHarness);

describe.runIf(isAvailable)("runtime: docker alone", { timeout: 300_000 }, () => {
  const engine = openTestEngine();
  const installationId = `test-${randomUUID()}`;
  const runtime = createDockerRuntime({ url, installationId, isolation: true, logger });
  const images: TestImage[] = [];
  const made: string[] = [];

  async function prepare(
    contents: Parameters<typeof buildImage>[1] = { command: ["sleep", "3600"], changes: ["VOLUME /data"] },
  ) {
    const image = await buildImage(engine, contents);
    images.push(image);
    const sandboxId = randomUUID();
    made.push(sandboxId);
    const workspaceId = randomUUID();
    return { sandboxId, workspaceId, reference: image.id, memoryMb: 64, cpus: 0.5, pids: 64 };
  }

  afterAll(async () => {
    await Promise.all(made.map((sandboxId) => runtime.remove(sandboxId)));
    await Promise.all(images.map((image) => image.remove()));
  });

  test("starts a container that a crash left created", async () => {
    const spec = await prepare();
    await runtime.check();
    await engine.createContainer({
      name: `sandgate-${spec.sandboxId}`,
      Image: spec.reference,
      Labels: sandboxLabels({ ...spec, installationId }),
      HostConfig: { NetworkMode: "sandgate" },
    });
    expect(await runtime.inspect(spec.sandboxId)).toMatchObject({ phase: "created" });
    expect(await runtime.ensure(spec)).toMatchObject({ phase: "running" });
  });

  test("creates its first containers concurrently, whether the engine's storage has size limits or not", async () => {
    const specs = await Promise.all(Array.from({ length: 4 }, () => prepare()));
    const fresh = createDockerRuntime({ url, installationId, isolation: true, logger });
    await fresh.check();
    const seen = await Promise.all(specs.map((spec) => fresh.ensure(spec)));
    expect(seen.map(({ phase }) => phase)).toEqual(Array(4).fill("running"));
  });

  test.each([
    ["a user that it doesn't have", { command: ["true"], changes: ["USER nobody:nowhere"] }],
    [
      "labels that fill lists",
      { command: ["true"], changes: [`LABEL filler=${"x".repeat(60_000)}`, `LABEL more=${"x".repeat(10_000)}`] },
    ],
    ["a program that no path can name", { command: [`/${"x".repeat(60_000)}`] }],
  ])("refuses an image with %s at once, and lists all the same", async (_what, contents) => {
    const spec = await prepare(contents);
    await expect(runtime.ensure(spec)).rejects.toMatchObject({ reason: "PROVISIONING_FAILED" });
    expect(await runtime.list()).toBeInstanceOf(Array);
  });

  test("neither lists nor inspects the containers of another installation", async () => {
    const spec = await prepare();
    await runtime.ensure(spec);
    const other = createDockerRuntime({ url, installationId: `test-${randomUUID()}`, isolation: true, logger });
    expect(await other.list()).toEqual([]);
    expect(await other.inspect(spec.sandboxId)).toBeUndefined();
    expect((await runtime.list()).map(({ sandboxId }) => sandboxId)).toContain(spec.sandboxId);
  });

  test("sets the limits and options of a container", async () => {
    const spec = await prepare();
    await runtime.ensure(spec);
    const { HostConfig: host, Config: config } = await engine.getContainer(`sandgate-${spec.sandboxId}`).inspect();
    expect(host).toMatchObject({
      Memory: 64 * 1024 * 1024,
      MemorySwap: 64 * 1024 * 1024,
      NanoCpus: 5e8,
      PidsLimit: 64,
      NetworkMode: "sandgate",
      Privileged: false,
      PublishAllPorts: false,
      RestartPolicy: { Name: "no" },
      LogConfig: { Type: "json-file", Config: { "max-size": "64m", "max-file": "3" } },
    });
    expect(config).toMatchObject({ StopSignal: "SIGTERM", Hostname: spec.sandboxId });
  });

  test("gives an image's volumes no more room than a sandbox may write, and leaves none behind", async () => {
    const paths = ["/data", "/more/", "/tmp/../cache"];
    const limited = createDockerRuntime({ url, installationId, isolation: true, logger, diskMb: 16 });
    const spec = await prepare({ command: ["sleep", "3600"], changes: [`VOLUME ${JSON.stringify(paths)}`] });
    await limited.ensure(spec);
    const container = engine.getContainer(`sandgate-${spec.sandboxId}`);
    expect((await container.inspect()).Mounts.filter(({ Type }) => Type === "volume")).toEqual([]);
    const script = paths
      .map(
        (path) => `dd if=/dev/zero of=${path}/big bs=1M count=120 2>/dev/null; stat -c %s ${path}/big; rm ${path}/big`,
      )
      .join("; ");
    const exec = await container.exec({ Cmd: ["sh", "-c", script], AttachStdout: true, AttachStderr: true });
    const sizes = (await collect(await exec.start({}))).trim().split("\n").map(Number);
    expect(sizes).toEqual(paths.map(() => 16 * 1024 * 1024));
  });

  test("measures what a running sandbox has written, by what it takes on the disk, and says when it must", async () => {
    const warn = vi.spyOn(logger, "warn");
    const measuring = createDockerRuntime({ url, installationId, isolation: true, logger, diskMb: 16 });
    await measuring.check();
    await measuring.check();
    const { Driver, DriverStatus } = await engine.info();
    const reason = storageProblem({ Driver, DriverStatus });
    const warnings = warn.mock.calls.filter(([, message]) => message?.includes("it is measured"));
    expect(warnings).toHaveLength(reason === undefined ? 0 : 1);
    warn.mockRestore();
    const write = "dd if=/dev/zero of=/big bs=1M count=20; truncate -s 1G /holes; echo done; sleep 3600";
    const spec = await prepare({ command: ["sh", "-c", write] });
    await measuring.ensure(spec);
    const { signal } = new AbortController();
    const measure = () => measuring.measureDisk(spec.sandboxId, signal);
    if (reason === undefined) return expect(await measure()).toBe("limited");
    await expect.poll(measure).toBeGreaterThan(19 * 1024 * 1024);
    expect(await measure()).toBeLessThan(40 * 1024 * 1024);
    await measuring.stop(spec.sandboxId, 0);
    expect(await measure()).toBeUndefined();
    await measuring.remove(spec.sandboxId);
    expect(await measure()).toBeUndefined();
  });

  test("resumes observing after an outage of the engine, and wakes every sandbox", async ({ folder }) => {
    const spec = await prepare();
    await runtime.ensure(spec);
    const socketPath = join(folder, "docker.sock");
    const controller = new AbortController();
    const proxy = await openFaultProxy({ listen: { path: socketPath }, to: { path: engineSocket } });
    const proxied = createDockerRuntime({ url: `docker://${socketPath}`, installationId, isolation: true, logger });
    const wakeUps = proxied.observe(controller.signal)[Symbol.asyncIterator]();
    const wakeUpOf = async (sandboxId: string) => {
      for (let next = await wakeUps.next(); next.value?.sandboxId !== sandboxId; ) next = await wakeUps.next();
    };
    await wakeUpOf(spec.sandboxId);
    await proxy.set("down");
    await expect(proxied.list()).rejects.toMatchObject({ reason: "RUNTIME_UNAVAILABLE" });
    await proxy.set("open");
    await wakeUpOf(spec.sandboxId);
    controller.abort();
    while (!(await wakeUps.next()).done);
    await proxy.close();
  });

  test("restores firewall rules that someone removed, and leaves those of others alone", async () => {
    await runtime.check();
    // Each once: another platform on this machine may put the same one back at the same moment.
    const listRules = async () => {
      const { stdout } = await execute("iptables", ["-S"]);
      return [...new Set(stdout.split("\n").filter((line) => /sandgate|SANDGATE/.test(line)))];
    };
    const before = await listRules();
    await execute("iptables", ["-D", "INPUT", "-i", "sandgate0", "-j", "SANDGATE-INPUT"]);
    await execute("iptables", ["-F", "SANDGATE-FORWARD"]);
    await execute("iptables", ["-I", "DOCKER-USER", "1", "-i", "sandgate-none0", "-j", "RETURN"]);
    try {
      await runtime.check();
      const rules = await listRules();
      expect(rules.filter((line) => line.startsWith("-A DOCKER-USER"))).toEqual([
        "-A DOCKER-USER -i sandgate0 -j SANDGATE-FORWARD",
        "-A DOCKER-USER -i sandgate-none0 -j RETURN",
      ]);
    } finally {
      await execute("iptables", ["-D", "DOCKER-USER", "-i", "sandgate-none0", "-j", "RETURN"]);
    }
    expect(await listRules()).toEqual(before);
  });

  test("finds the engine's event of a sandbox that ran out of memory, and none of one that was killed", async () => {
    const image = await buildImage(engine, { command: ["tail", "/dev/zero"] });
    images.push(image);
    const [hungry, killed] = [{ ...(await prepare()), reference: image.id }, await prepare()];
    const seen: boolean[] = [];
    for (const spec of [hungry, killed]) {
      await runtime.ensure(spec);
      const container = engine.getContainer(`sandgate-${spec.sandboxId}`);
      if (spec === killed) await runtime.stop(spec.sandboxId, 0);
      await container.wait();
      const { Id, State } = await container.inspect();
      seen.push(await hasMemoryEvent(engine, Id, new Date(State.StartedAt), new Date(State.FinishedAt)));
    }
    expect(seen).toEqual([true, false]);
    expect(await runtime.inspect(killed.sandboxId)).toMatchObject({ exitCode: 137, outOfMemory: false });
  });

  test("reaches no port that another container publishes on the host", async () => {
    const spec = await prepare();
    await runtime.ensure(spec);
    const server = await engine.createContainer({
      Image: spec.reference,
      Cmd: ["httpd", "-f", "-p", "8000"],
      ExposedPorts: { "8000/tcp": {} },
      HostConfig: { PortBindings: { "8000/tcp": [{ HostIp: "0.0.0.0", HostPort: "" }] } },
    });
    try {
      await server.start();
      const { NetworkSettings: network } = await server.inspect();
      const port = network.Ports["8000/tcp"]?.[0]?.HostPort;
      const gateway = network.Networks.bridge?.Gateway;
      const url = `http://${gateway}:${port}/`;
      // There is nothing to serve, which is an answer too.
      while ((await fetch(url).catch(() => undefined))?.status !== 404) await delay(50);
      const container = engine.getContainer(`sandgate-${spec.sandboxId}`);
      const command = ["timeout", "2", "wget", "-q", "-O", "-", url];
      const exec = await container.exec({ Cmd: command, AttachStdout: true, AttachStderr: true });
      expect(await collect(await exec.start({}))).not.toContain("404");
    } finally {
      await server.remove({ force: true, v: true });
    }
  });

  test("creates no sandbox where the firewall can't be set, unless isolation is off", async () => {
    const spec = await prepare();
    vi.stubEnv("PATH", "/nowhere");
    try {
      const refusing = createDockerRuntime({ url, installationId, isolation: true, logger });
      const unavailable = { reason: "ISOLATION_UNAVAILABLE", message: expect.stringContaining("iptables") };
      await expect(refusing.check()).rejects.toMatchObject(unavailable);
      await expect(refusing.ensure(spec)).rejects.toMatchObject(unavailable);
      expect(await refusing.inspect(spec.sandboxId)).toBeUndefined();
      const trusting = createDockerRuntime({ url, installationId, isolation: false, logger });
      await trusting.check();
      expect(await trusting.ensure(spec)).toMatchObject({ phase: "running" });
    } finally {
      vi.unstubAllEnvs();
    }
  });

  describe("the network policy", () => {
    let peers: Awaited<ReturnType<typeof openPeers>>;
    beforeAll(async () => {
      peers = await openPeers();
    });
    // The rules are everybody's on this machine.
    afterEach(() => runtime.check());
    afterAll(() => peers?.close());

    /** A sandbox under this policy. */
    async function start(network: DockerRuntimeOptions["network"] = {}, nameservers?: readonly string[]) {
      const spec = await prepare({ command: ["sleep", "3600"] });
      const governed = createDockerRuntime({ url, installationId, isolation: true, logger, network, nameservers });
      await governed.check();
      await governed.ensure({ ...spec, pids: 256 });
      const run = async (script: string) => {
        const container = engine.getContainer(`sandgate-${spec.sandboxId}`);
        const exec = await container.exec({ Cmd: ["sh", "-c", script], AttachStdout: true, AttachStderr: true });
        return (await collect(await exec.start({}))).trim();
      };
      const reaches = async (address: string, port: number) =>
        (await run(`timeout 2 wget -q -O /dev/null http://${address}:${port}/ && echo reached`)) === "reached";
      /** Opens as many connections at once; answers how many there were together, of all that the sandbox has. */
      const open = async (count: number) => {
        const script = `most=0
          for i in $(seq ${count}); do (sleep 6 | nc -w 6 ${peers.addresses.public} 8000 >/dev/null 2>&1) & done
          for i in $(seq 15); do
            now=$(netstat -tn | grep -c ESTABLISHED); [ $now -gt $most ] && most=$now
            [ $most -ge ${count} ] && break; sleep 0.2
          done; wait; echo $most`;
        return Number((await run(script)).split("\n").at(-1));
      };
      return { governed, run, reaches, open };
    }

    test("learns neither names nor addresses of neighbours from DNS, and resolves through its nameservers", async () => {
      const known = [198, 51, 100, 7];
      const { public: open, private: hidden } = peers.addresses;
      const server = startProcess(
        "ip",
        [
          "netns",
          "exec",
          peers.namespace,
          process.execPath,
          "--eval",
          `(${answerQuestions})(${JSON.stringify(known)})`,
        ],
        { env: { PATH: process.env.PATH } },
      );
      const neighbour = await prepare();
      await runtime.ensure(neighbour);
      const { Config, NetworkSettings, Id } = await engine.getContainer(`sandgate-${neighbour.sandboxId}`).inspect();
      const address = NetworkSettings.Networks.sandgate?.IPAddress ?? "";
      const names = [`sandgate-${neighbour.sandboxId}`, Config.Hostname, Id.slice(0, 12)];
      const lookups = [address, ...names.flatMap((name) => [name, `${name}.sandgate`])];
      const ask = ["", " 127.0.0.11"].flatMap((resolver) =>
        lookups.map((name) => `timeout 3 nslookup ${name}${resolver}`),
      );
      const script = [...ask, "cat /etc/resolv.conf", "netstat -lnu", "true"].join("; ");
      const control = await engine.createContainer({
        Image: neighbour.reference,
        Cmd: ["sh", "-c", script],
        HostConfig: { NetworkMode: "sandgate" },
      });
      try {
        await control.start();
        await control.wait();
        const said = (await control.logs({ stdout: true, stderr: true, follow: false })).toString("latin1");
        expect(said).toMatch(new RegExp(`name = ${names[0]}`));
        expect(said).toMatch(new RegExp(`Address: ${address}`));
      } finally {
        await control.remove({ force: true, v: true });
      }

      for (const nameserver of [open, hidden]) {
        const { run } = await start({}, [nameserver]);
        const said = await run(script);
        expect(said).not.toMatch(/name = /);
        expect(said).not.toMatch(new RegExp(`Address: *${address}`));
        expect(said).not.toContain("127.0.0.11:");
        expect(await run("nslookup app.example")).toContain(known.join("."));
      }
      await server.stop();
    });

    test("keeps a sandbox to its connections, also after the rules were verified again", async () => {
      const free = await start();
      expect(await free.open(12)).toBe(12);
      const { governed, open } = await start({ maxConnections: 5 });
      const first = open(12);
      await delay(1_000);
      await governed.check();
      expect([await open(12), await first]).toEqual([5, 5]);
    });

    test("keeps a sandbox to its rate of new connections", async () => {
      const { open } = await start({ newConnectionsPerSecond: 2 });
      const opened = await open(40);
      expect(opened).toBeGreaterThanOrEqual(10);
      expect(opened).toBeLessThan(30);
    });

    test("closes port 25 unless it is opened", async () => {
      const { public: address } = peers.addresses;
      const closed = await start();
      expect(await closed.reaches(address, 8000)).toBe(true);
      expect(await closed.reaches(address, 25)).toBe(false);
      const open = await start({ smtp: true });
      expect(await open.reaches(address, 25)).toBe(true);
    });

    test("closes and opens what the operator's lists name, what is closed first", async () => {
      const { public: open, private: hidden } = peers.addresses;
      const none = await start();
      expect([await none.reaches(open, 8000), await none.reaches(hidden, 8000)]).toEqual([true, false]);
      const lists = await start({
        deny: [{ network: `${open}/24`, port: undefined }],
        allow: [{ network: `${hidden}/32`, port: 8000 }],
      });
      expect([await lists.reaches(open, 8000), await lists.reaches(hidden, 8000)]).toEqual([false, true]);
      expect(await lists.reaches(hidden, 25)).toBe(false);
      const both = await start({
        deny: [{ network: `${hidden}/32`, port: 8000 }],
        allow: [{ network: `${hidden}/32`, port: undefined }],
      });
      expect([await both.reaches(hidden, 8000), await both.reaches(hidden, 25)]).toEqual([false, true]);
    });

    test("warns of a kernel that can't limit connections, and sets the other rules", async ({ folder }) => {
      const { stdout } = await execute("sh", ["-c", "command -v iptables-restore"]);
      const script = `#!/bin/sh
        input=$(cat)
        case "$input" in *connlimit*) echo "Couldn't load match connlimit" >&2; exit 2;; esac
        printf '%s\\n' "$input" | ${stdout.trim()} "$@"`;
      await writeFile(join(folder, "iptables-restore"), script, { mode: 0o755 });
      const warning = createLogger({ service: "runtime-test", level: "silent" });
      const warn = vi.spyOn(warning, "warn");
      vi.stubEnv("PATH", `${folder}:${process.env.PATH}`);
      try {
        const network = { maxConnections: 5 };
        const poor = createDockerRuntime({ url, installationId, isolation: true, logger: warning, network });
        await poor.check();
        await poor.check();
      } finally {
        vi.unstubAllEnvs();
      }
      expect(warn.mock.calls).toEqual([
        [{ reason: expect.stringContaining("connlimit") }, expect.stringContaining("not limited")],
      ]);
      const { stdout: rules } = await execute("iptables", ["-S", "SANDGATE-FORWARD"]);
      expect(rules).toContain("-d 10.0.0.0/8 -j DROP");
      expect(rules).not.toContain("connlimit");
    });
  });

  test("refuses a sandbox for which the host's network has no room, and names the cause", async ({ folder }) => {
    const spec = await prepare();
    await runtime.check();
    // Each pair takes two of the bridge's 1,023 ports; those of a group go in one call.
    const group = String(randomInt(1_000, 1_000_000));
    const pairs = Array.from({ length: 512 }, (_, index) => [`sgfull${index}a`, `sgfull${index}b`]);
    const commands = pairs.flatMap(([a, b]) => [
      `link add ${a} type veth peer name ${b}`,
      ...[a, b].map((name) => `link set ${name} group ${group} master sandgate0`),
    ]);
    await writeFile(join(folder, "links"), `${commands.join("\n")}\n`);
    try {
      await expect(execute("ip", ["-force", "-batch", join(folder, "links")])).rejects.toThrow("Exchange full");
      await expect(runtime.ensure(spec)).rejects.toMatchObject({
        reason: "PROVISIONING_FAILED",
        message: expect.stringContaining("host is full"),
      });
    } finally {
      await execute("ip", ["link", "del", "group", group]);
    }
    expect(await runtime.ensure(spec)).toMatchObject({ phase: "running" });
  });

  test("reports an engine that is not there", async () => {
    const absent = createDockerRuntime({
      url: "docker:///nowhere/docker.sock",
      installationId,
      isolation: true,
      logger,
    });
    const unavailable = { reason: "RUNTIME_UNAVAILABLE" };
    const signal = new AbortController().signal;
    const pinnedReference = `127.0.0.1:1/a@sha256:${"0".repeat(64)}`;
    await expect(absent.check()).rejects.toMatchObject(unavailable);
    await expect(absent.list()).rejects.toMatchObject(unavailable);
    await expect(absent.ensure(await prepare())).rejects.toMatchObject(unavailable);
    await expect(absent.probe(randomUUID(), 80, signal)).rejects.toMatchObject(unavailable);
    await expect(
      absent.pull({ pinnedReference, registryHost: "127.0.0.1:1", username: "", password: "", signal }),
    ).rejects.toMatchObject(unavailable);
  });

  test("refuses a runtime that the engine lacks, and resolvers that only the host reaches", async () => {
    const gvisor = createDockerRuntime({
      url,
      installationId,
      isolation: true,
      ociRuntime: "no-such-runtime",
      logger,
    });
    await expect(gvisor.check()).rejects.toMatchObject({ reason: "ISOLATION_UNAVAILABLE" });
    expect(() =>
      createDockerRuntime({ url, installationId, isolation: true, nameservers: ["127.0.0.53"], logger }),
    ).toThrow("127.0.0.53");
  });
});
