import { execFile } from "node:child_process";
import { randomInt, randomUUID } from "node:crypto";
import { mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { createLogger } from "@sandgate/kit/base/logging";
import { hasMemoryEvent } from "@sandgate/sandbox/docker-memory";
import { hostNamesOf } from "@sandgate/sandbox/docker-names";
import { storageProblem } from "@sandgate/sandbox/docker-storage-limit";
import { parseSubnetRanges } from "@sandgate/sandbox/docker-subnets";
import { createDockerRuntime, type DockerRuntimeOptions } from "@sandgate/sandbox/runtime.docker";
import { openFaultProxy } from "@sandgate/test-support/fault-proxy";
import {
  buildFolderImage,
  buildImage,
  engineSocket,
  openTestEngine,
  probeEngine,
  sandboxLabels,
  type TestImage,
  engineAddress as url,
} from "@sandgate/test-support/images";
import { startProcess } from "@sandgate/test-support/process";
import { probeRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { test } from "@sandgate/test-support/test";
import { afterAll, afterEach, beforeAll, describe, expect, vi } from "vitest";
import { removeHostObjects } from "../platform/host-objects.ts";
import { describeRuntime } from "./runtime.ts";
import { answerQuestions, collect, countBytes, openDockerHarness, openPeers } from "./runtime-harness.docker.ts";

const execute = promisify(execFile);
const openLifecycle = (options: DockerRuntimeOptions) => createDockerRuntime(options).lifecycle;
const logger = createLogger({ service: "runtime-test", level: "silent" });
const isAvailable = await requireServer("docker", async () => {
  await probeEngine();
  await probeRegistry();
});

const hasConntrack = await requireServer("conntrack", () => execute("conntrack", ["--version"]));

describeRuntime("docker", isAvailable, openDockerHarness);

describe.runIf(isAvailable)("runtime: docker alone", { timeout: 300_000 }, () => {
  const engine = openTestEngine();
  const installationId = `test-${randomUUID()}`;
  const names = hostNamesOf(installationId);
  const runtime = openLifecycle({ url, installationId, isolation: true, logger });
  const images: TestImage[] = [];
  const made: string[] = [];

  const execIn = (sandboxId: string) => async (script: string) => {
    const container = engine.getContainer(`sandgate-${sandboxId}`);
    const exec = await container.exec({ Cmd: ["sh", "-c", script], AttachStdout: true, AttachStderr: true });
    return (await collect(await exec.start({}))).trim();
  };
  const addressOf = async (sandboxId: string) => {
    const { NetworkSettings: network } = await engine.getContainer(`sandgate-${sandboxId}`).inspect();
    return Object.values(network.Networks)[0]?.IPAddress ?? "";
  };
  const networkOf = async (sandboxId: string) =>
    (await engine.getContainer(`sandgate-${sandboxId}`).inspect()).HostConfig.NetworkMode ?? "";

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
    await removeHostObjects(installationId);
  });

  test.each(["bridge", "sandgate-gone"])(
    "starts a container that a crash left created on network %s",
    async (network) => {
      const spec = await prepare();
      await runtime.check();
      await engine.createContainer({
        name: `sandgate-${spec.sandboxId}`,
        Image: spec.reference,
        Labels: sandboxLabels({ ...spec, installationId }),
        HostConfig: { NetworkMode: network },
      });
      expect(await runtime.inspect(spec.sandboxId)).toMatchObject({ phase: "created" });
      expect(await runtime.ensure(spec)).toMatchObject({ phase: "running" });
      if (network === "sandgate-gone") expect(await networkOf(spec.sandboxId)).toMatch(/^sandgate-\w{5}-/);
    },
  );

  test("creates its first containers concurrently, whether the engine's storage has size limits or not", async () => {
    const specs = await Promise.all(Array.from({ length: 4 }, () => prepare()));
    const fresh = openLifecycle({ url, installationId, isolation: true, logger });
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
    const other = openLifecycle({ url, installationId: `test-${randomUUID()}`, isolation: true, logger });
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
      NetworkMode: expect.stringMatching(/^sandgate-\w{5}-\w{7}$/),
      CgroupParent: `/${names.controlGroup}`,
      Privileged: false,
      PublishAllPorts: false,
      RestartPolicy: { Name: "no" },
      LogConfig: { Type: "json-file", Config: { "max-size": "64m", "max-file": "3" } },
    });
    expect(config).toMatchObject({ StopSignal: "SIGTERM", Hostname: spec.sandboxId });
    // One byte: a crash neither leaves a dump on the host nor starts the host's handler.
    expect(await execIn(spec.sandboxId)("grep core /proc/self/limits")).toMatch(/ 1 +1 +bytes/);
  });

  test("raises what the kernel counts for all sandboxes and their host together", async () => {
    await runtime.check();
    const defaults = {
      "fs/inotify/max_user_instances": 128,
      "fs/aio-max-nr": 65_536,
      "net/ipv4/neigh/default/gc_thresh2": 512,
      "net/ipv4/neigh/default/gc_thresh3": 1_024,
    };
    for (const [name, initial] of Object.entries(defaults)) {
      expect(Number(await readFile(`/proc/sys/${name}`, "utf8")), name).toBeGreaterThan(16 * initial);
    }
  });

  test("brings the helper into sandboxes after an image whose links lead its folder astray, too", async ({
    folder,
  }) => {
    await mkdir(join(folder, "b/n1/n2"), { recursive: true });
    await symlink("/b/n1/n2", join(folder, "b/c"));
    await symlink("/b/c/../..", join(folder, ".sandgate"));
    const crafted = await buildFolderImage(engine, folder, { command: ["sleep", "3600"] });
    images.push(crafted);
    const freshId = `test-${randomUUID()}`;
    const fresh = openLifecycle({ url, installationId: freshId, isolation: true, logger });
    try {
      // It may do without.
      await fresh.ensure({ ...(await prepare()), reference: crafted.id }).catch(() => {});
      const spec = await prepare();
      await fresh.ensure(spec);
      expect(await execIn(spec.sandboxId)("ls /.sandgate")).toBe("helper");
    } finally {
      await removeHostObjects(freshId);
    }
  });

  test("gives an image's volumes no more room than a sandbox may write, and leaves none behind", async () => {
    const paths = ["/data", "/more/", "/tmp/../cache"];
    const limited = openLifecycle({ url, installationId, isolation: true, logger, diskMb: 16 });
    const spec = await prepare({ command: ["sleep", "3600"], changes: [`VOLUME ${JSON.stringify(paths)}`] });
    await limited.ensure(spec);
    const container = engine.getContainer(`sandgate-${spec.sandboxId}`);
    // The helper's alone, which can't be written to.
    const mounted = (await container.inspect()).Mounts.filter(({ Type }) => Type === "volume");
    expect(mounted).toEqual([expect.objectContaining({ Destination: "/.sandgate", RW: false })]);
    const script = paths
      .map(
        (path) => `dd if=/dev/zero of=${path}/big bs=1M count=120 2>/dev/null; stat -c %s ${path}/big; rm ${path}/big`,
      )
      .join("; ");
    const exec = await container.exec({ Cmd: ["sh", "-c", script], AttachStdout: true, AttachStderr: true });
    const sizes = (await collect(await exec.start({}))).trim().split("\n").map(Number);
    expect(sizes).toEqual(paths.map(() => 16 * 1024 * 1024));
  });

  test("makes the folders of a pulled image's volumes that are in none of its layers, as the engine would", async () => {
    const long = `/${"long/".repeat(40)}${"x".repeat(120)}`;
    const paths = ["/new", "/deep/er/still", "/www", "/tmp/../up", "/linked", `${long}`, "/"];
    const label = JSON.stringify(JSON.stringify(paths));
    const spec = await prepare({
      command: ["sh", "-c", `echo kept > /new/file; sleep 3600`],
      files: { "www/index.html": "hello\n", linked: "a file\n" },
      changes: [`LABEL sandgate.io/volumes=${label}`],
    });
    // As a crash leaves it before its start.
    await runtime.check();
    await engine.createContainer({
      name: `sandgate-${spec.sandboxId}`,
      Image: spec.reference,
      Labels: sandboxLabels({ ...spec, installationId }),
    });
    expect(await runtime.ensure(spec)).toMatchObject({ phase: "running" });
    const run = execIn(spec.sandboxId);
    const asked = ["/new", "/deep", "/deep/er/still", "/up", long];
    expect(await run(`stat -c '%F %a %u' ${asked.join(" ")}`)).toBe(Array(5).fill("directory 755 0").join("\n"));
    await expect.poll(() => run("cat /new/file /www/index.html /linked")).toBe("kept\nhello\na file");
    const nonsense = await prepare({ command: ["sleep", "3600"], changes: ["LABEL sandgate.io/volumes=nonsense"] });
    expect(await runtime.ensure(nonsense)).toMatchObject({ phase: "running" });
  });

  test("measures what a running sandbox takes on the disk, and says when it must", async () => {
    const info = vi.spyOn(logger, "info");
    const options = { url, installationId, isolation: true, logger, diskMb: 16 };
    const { lifecycle: measuring, disk } = createDockerRuntime(options);
    await measuring.check();
    await measuring.check();
    const { Driver, DriverStatus } = await engine.info();
    const reason = storageProblem({ Driver, DriverStatus });
    const notes = info.mock.calls.filter(([, message]) => message?.includes("it is measured"));
    expect(notes).toHaveLength(reason === undefined ? 0 : 1);
    info.mockRestore();
    const write =
      "dd if=/dev/zero of=/etc/hosts bs=1M count=8; dd if=/dev/zero of=/big bs=1M count=20; truncate -s 1G /holes; mkdir /d; cd /d; seq 300 | xargs touch; sleep 3600";
    const spec = await prepare({ command: ["sh", "-c", write] });
    await measuring.ensure(spec);
    const { signal } = new AbortController();
    const measure = () => disk.measure(spec.sandboxId, signal);
    await expect.poll(async () => (await measure())?.inodes).toBeGreaterThan(300);
    const use = await measure();
    expect(use?.inodes).toBeLessThan(340);
    // No storage limits the files that the engine mounts into it.
    expect(use?.bytes).toBeGreaterThan((reason === undefined ? 7 : 27) * 1024 * 1024);
    expect(use?.bytes).toBeLessThan((reason === undefined ? 12 : 48) * 1024 * 1024);
    await measuring.stop(spec.sandboxId, 0);
    expect(await measure()).toBeUndefined();
    await measuring.remove(spec.sandboxId);
    expect(await measure()).toBeUndefined();
  });

  test("resumes observing after an outage of the engine, and tells that any sandbox may have changed", async ({
    folder,
  }) => {
    const spec = await prepare();
    const socketPath = join(folder, "docker.sock");
    const controller = new AbortController();
    const proxy = await openFaultProxy({ listen: { path: socketPath }, to: { path: engineSocket } });
    const proxied = openLifecycle({ url: `docker://${socketPath}`, installationId, isolation: true, logger });
    const wakeUps = proxied.observe(controller.signal)[Symbol.asyncIterator]();
    const wakeUpOf = async (sandboxId: string | undefined) => {
      for (let next = await wakeUps.next(); next.value?.sandboxId !== sandboxId; ) next = await wakeUps.next();
    };
    await wakeUpOf(undefined);
    await runtime.ensure(spec);
    await wakeUpOf(spec.sandboxId);
    await proxy.set("down");
    await expect(proxied.list()).rejects.toMatchObject({ reason: "RUNTIME_UNAVAILABLE" });
    await proxy.set("open");
    await wakeUpOf(undefined);
    controller.abort();
    while (!(await wakeUps.next()).done);
    await proxy.close();
  });

  const iptables = (...args: string[]) => execute("iptables", args);
  async function listRules(pattern: RegExp, table = "mangle"): Promise<string[]> {
    const { stdout } = await iptables("-t", table, "-S");
    return stdout.split("\n").filter((line) => pattern.test(line));
  }
  const ours = new RegExp(`${names.chainPrefix}|${names.bridgePrefix}`);

  test("restores firewall rules that someone removed, and leaves those of others alone", async () => {
    const { bridgePrefix, chainPrefix } = names;
    await runtime.check();
    const before = await listRules(ours);
    await iptables("-t", "mangle", "-D", "INPUT", "-i", `${bridgePrefix}+`, "-j", `${chainPrefix}-INPUT`);
    await iptables("-t", "mangle", "-F", `${chainPrefix}-FORWARD`);
    const foreign = ["FORWARD", "-i", "sgtest-none0", "-j", "RETURN"];
    await iptables("-t", "mangle", "-I", ...foreign);
    try {
      await runtime.check();
      const jumps = await listRules(/^-A FORWARD /);
      const placeOf = (rule: string) => jumps.indexOf(`-A FORWARD -i ${rule}`);
      expect(placeOf("sgtest-none0 -j RETURN")).toBeGreaterThan(placeOf(`${bridgePrefix}+ -j ${chainPrefix}-FORWARD`));
      expect(placeOf(`${bridgePrefix}+ -j ${chainPrefix}-FORWARD`)).toBeGreaterThanOrEqual(0);
    } finally {
      await iptables("-t", "mangle", "-D", ...foreign);
    }
    expect((await listRules(ours)).toSorted()).toEqual(before.toSorted());
  });

  test("restores them while the engine doesn't answer", async () => {
    await runtime.check();
    const before = await listRules(ours);
    await iptables("-t", "mangle", "-F", `${names.chainPrefix}-FORWARD`);
    const cut = openLifecycle({ url: "docker:///nowhere/docker.sock", installationId, isolation: true, logger });
    await expect(cut.check()).rejects.toMatchObject({ reason: "RUNTIME_UNAVAILABLE" });
    expect((await listRules(ours)).toSorted()).toEqual(before.toSorted());
  });

  test("takes away the rules of an earlier version, which had them in another table", async () => {
    const chain = `${names.chainPrefix}-FORWARD`;
    await iptables("-N", chain);
    await iptables("-A", chain, "-j", "DROP");
    await iptables("-I", "FORWARD", "-i", `${names.bridgePrefix}+`, "-j", chain);
    await openLifecycle({ url, installationId, isolation: true, logger }).check();
    expect(await listRules(new RegExp(chain), "filter")).toEqual([]);
  });

  test("leaves the rules of another installation on the engine alone, whichever checks", async () => {
    const otherId = `test-${randomUUID()}`;
    const policy = { deny: [{ network: "203.0.113.7/32", port: undefined }] };
    const other = openLifecycle({ url, installationId: otherId, isolation: true, logger, network: policy });
    const others = hostNamesOf(otherId);
    try {
      await runtime.check();
      await other.check();
      const both = new RegExp(`${ours.source}|${others.chainPrefix}|${others.bridgePrefix}`);
      const rules = await listRules(both);
      expect(rules).toContain(`-A ${others.chainPrefix}-FORWARD -d 203.0.113.7/32 -j DROP`);
      expect(rules).not.toContain(`-A ${names.chainPrefix}-FORWARD -d 203.0.113.7/32 -j DROP`);
      await runtime.check();
      await other.check();
      expect(await listRules(both)).toEqual(rules);
    } finally {
      await removeHostObjects(otherId);
    }
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
      const refusing = openLifecycle({ url, installationId, isolation: true, logger });
      const unavailable = { reason: "ISOLATION_UNAVAILABLE", message: expect.stringContaining("iptables") };
      await expect(refusing.check()).rejects.toMatchObject(unavailable);
      await expect(refusing.ensure(spec)).rejects.toMatchObject(unavailable);
      expect(await refusing.inspect(spec.sandboxId)).toBeUndefined();
      const trusting = openLifecycle({ url, installationId, isolation: false, logger });
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
      const governed = openLifecycle({ url, installationId, isolation: true, logger, network, nameservers });
      await governed.check();
      await governed.ensure({ ...spec, pids: 256 });
      const run = execIn(spec.sandboxId);
      const reaches = async (address: string, port: number) =>
        (await run(`timeout 2 wget -q -O /dev/null http://${address}:${port}/ && echo reached`)) === "reached";
      /**
       * Opens as many connections at once; returns how many there were together, of all that the sandbox has. They are
       * held until the shell command `held` ends.
       */
      const open = async (count: number, held = "true") => {
        const script = `most=0; clients=
          for i in $(seq ${count}); do
            sleep 60 2>/dev/null | nc -w 60 ${peers.addresses.public} 8000 >/dev/null 2>&1 & clients="$clients $!"
          done
          for i in $(seq 15); do
            now=$(netstat -tn | grep -c ESTABLISHED); [ $now -gt $most ] && most=$now
            [ $most -ge ${count} ] && break; sleep 0.2
          done; ${held}; kill $clients; echo $most`;
        return Number((await run(script)).split("\n").at(-1));
      };
      return { sandboxId: spec.sandboxId, governed, run, reaches, open };
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
      const network = await networkOf(neighbour.sandboxId);
      const address = NetworkSettings.Networks[network]?.IPAddress ?? "";
      const names = [`sandgate-${neighbour.sandboxId}`, Config.Hostname, Id.slice(0, 12)];
      const lookups = [address, ...names.flatMap((name) => [name, `${name}.${network}`])];
      const ask = ["", " 127.0.0.11"].flatMap((resolver) =>
        lookups.map((name) => `timeout 3 nslookup ${name}${resolver}`),
      );
      const script = [...ask, "true"].join("; ");
      const control = await engine.createContainer({
        Image: neighbour.reference,
        Cmd: ["sh", "-c", script],
        HostConfig: { NetworkMode: network },
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
        expect(await run("nslookup app.example")).toContain(known.join("."));
      }
      await server.stop();
    });

    test("keeps a sandbox to its connections, also after the rules were verified again", async () => {
      const free = await start();
      expect(await free.open(12)).toBe(12);
      const { governed, open, run } = await start({ maxConnections: 5 });
      // Longer than the others are counted: connections that follow others would be counted beside them.
      const first = open(12, "until [ -e /tmp/counted ]; do sleep 0.2; done");
      await delay(1_000);
      await governed.check();
      const second = await open(12);
      await run("touch /tmp/counted");
      expect([second, await first]).toEqual([5, 5]);
    });

    test.runIf(hasConntrack)("gives a sandbox none of the flows of the one that had its address before", async () => {
      const singleId = `test-${randomUUID()}`;
      const single = openLifecycle({
        url,
        installationId: singleId,
        isolation: true,
        logger,
        network: { maxConnections: 5 },
        subnets: parseSubnetRanges([`198.19.${randomInt(64, 128)}.0/30`]),
        networkPerWorkspace: false,
      });
      const [first, second] = [await prepare(), await prepare()];
      const open = peers.addresses.public;
      try {
        await single.ensure(first);
        const address = await addressOf(first.sandboxId);
        await execIn(first.sandboxId)(`for i in 1 2 3 4 5; do timeout 1 nslookup a.example ${open} & done; wait`);
        await single.remove(first.sandboxId);
        await single.list();
        await single.ensure(second);
        expect(await addressOf(second.sandboxId)).toBe(address);
        const get = `timeout 2 wget -q -O /dev/null http://${open}:8000/ && echo reached`;
        expect(await execIn(second.sandboxId)(get)).toBe("reached");
      } finally {
        await removeHostObjects(singleId);
      }
    });

    test("lets nobody from beyond the host reach a sandbox's ports, whatever the host forwards", async () => {
      const { run, sandboxId } = await start();
      const address = await addressOf(sandboxId);
      await run("echo hello > /www/index.html; httpd -p 8000 -h /www");
      while (!(await fetch(`http://${address}:8000/`).catch(() => undefined))) await delay(50);
      const forwarding = ["FORWARD", "-o", `${names.bridgePrefix}+`, "-d", address, "-j", "ACCEPT"];
      await iptables("-I", ...forwarding);
      const inPeers = (...args: string[]) => execute("ip", ["netns", "exec", peers.namespace, ...args]);
      try {
        const host = peers.addresses.public.replace(/\d+$/, (last) => String(Number(last) - 1));
        await inPeers("ip", "route", "add", address, "via", host);
        await expect(
          inPeers("timeout", "2", "busybox", "wget", "-O", "-", `http://${address}:8000/`),
        ).rejects.toThrow();
      } finally {
        await iptables("-D", ...forwarding);
      }
    });

    test("keeps a sandbox to its rate of new connections", async () => {
      const { open } = await start({ newConnectionsPerSecond: 2 });
      const began = performance.now();
      const opened = await open(40);
      const seconds = (performance.now() - began) / 1_000;
      // Five seconds' worth at once.
      expect(opened).toBeGreaterThanOrEqual(10);
      expect(opened).toBeLessThanOrEqual(10 + 2 * Math.ceil(seconds));
    });

    test("keeps a sandbox to its bandwidth, in both directions", async () => {
      const { run } = await start({ bandwidthMbit: 8 });
      const [open, bytes] = [peers.addresses.public, 6_000_000];
      // Twice a second's worth goes at once, then at most four times as much a second: 6 MB take more than a second.
      const leastMs = 1000;
      const began = performance.now();
      const got = await run(`wget -q -O - http://${open}:8000/big | head -c ${bytes} | wc -c`);
      expect(Number(got.split("\n").at(-1))).toBe(bytes);
      const gotAt = performance.now();
      expect(gotAt - began).toBeGreaterThan(leastMs);
      const counter = ["--eval", `(${countBytes})(7000)`];
      const sink = startProcess("ip", ["netns", "exec", peers.namespace, process.execPath, ...counter], {
        env: { PATH: process.env.PATH },
      });
      await run(`until head -c ${bytes} /dev/zero | nc ${open} 7000; do sleep 0.1; done`);
      await sink.exited;
      expect(Number(sink.output())).toBe(bytes);
      expect(performance.now() - gotAt).toBeGreaterThan(leastMs);
    });

    test("closes port 25 unless it is opened", async () => {
      const { public: address } = peers.addresses;
      const closed = await start();
      expect(await closed.reaches(address, 8000)).toBe(true);
      expect(await closed.reaches(address, 25)).toBe(false);
      const open = await start({ smtp: true });
      expect(await open.reaches(address, 25)).toBe(true);
    });

    test("holds while the engine makes networks, for which it takes its own chains out for a moment", async () => {
      const { run } = await start();
      const connections = run(
        `until [ -e /tmp/made ]; do
          timeout 1 wget -q -O /dev/null http://${peers.addresses.public}:25/ && echo reached & sleep 0.02
        done; wait`,
      );
      for (let i = 0; i < 10; i++) {
        const network = await engine.createNetwork({ Name: `test-${randomUUID()}` });
        await network.remove();
      }
      await run("touch /tmp/made");
      expect(await connections).not.toContain("reached");
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
        const poor = openLifecycle({ url, installationId, isolation: true, logger: warning, network });
        await poor.check();
        await poor.check();
      } finally {
        vi.unstubAllEnvs();
      }
      const warnings = warn.mock.calls.filter(([, text]) => String(text).includes("connlimit"));
      expect(warnings).toEqual([
        [{ reason: expect.stringContaining("connlimit") }, expect.stringContaining("not limited")],
      ]);
      const { stdout: rules } = await iptables("-t", "mangle", "-S", `${names.chainPrefix}-FORWARD`);
      expect(rules).toContain("-d 10.0.0.0/8 -j DROP");
      expect(rules).not.toContain("connlimit");
    });
  });

  describe("networks", () => {
    /** Two subnets of one sandbox each, which nobody else on this machine has. */
    const place = randomInt(128, 256);
    const subnets = parseSubnetRanges([0, 4].map((offset) => `198.19.${place}.${offset}/30`));
    const open = (o: Partial<DockerRuntimeOptions> = {}) =>
      openLifecycle({
        url,
        installationId: smallId,
        isolation: true,
        logger,
        subnets,
        networkPerWorkspace: false,
        ...o,
      });
    const smallId = `test-${randomUUID()}`;
    const remove = (specs: readonly { sandboxId: string }[]) =>
      Promise.all(specs.map(({ sandboxId }) => runtime.remove(sandboxId)));
    const listNetworks = async () =>
      (await engine.listNetworks({ filters: { label: [`sandgate.io/installation=${smallId}`] } })).map(
        ({ Name }) => Name,
      );
    afterAll(() => removeHostObjects(smallId));

    test("follow each other when they are full, and the cause is named when all are", async () => {
      const specs = [await prepare(), await prepare()] as const;
      const late = await prepare();
      const small = open();
      await small.ensure(specs[0]);
      // One that knows nothing of the first container, and is refused by the engine.
      await open().ensure(specs[1]);
      expect(new Set([await networkOf(specs[0].sandboxId), await networkOf(specs[1].sandboxId)]).size).toBe(2);
      await expect(small.ensure(late)).rejects.toMatchObject({
        failure: { reason: "unschedulable", message: expect.stringContaining("host is full") },
      });
      await runtime.remove(specs[0].sandboxId);
      await small.list();
      expect(await small.ensure(late)).toMatchObject({ phase: "running" });
      await remove([...specs, late]);
    });

    test("are made once, whoever races for them", async () => {
      const specs = await Promise.all(Array.from({ length: 6 }, () => prepare()));
      const workspaceId = randomUUID();
      const range = parseSubnetRanges([`198.18.${randomInt(128, 256)}.0/24`, `198.19.${randomInt(1, 64)}.0/24`]);
      const racing = [1, 2, 3].map(() => open({ subnets: range, networkPerWorkspace: true }));
      await Promise.all(specs.map((spec, index) => racing[index % 3]?.ensure({ ...spec, workspaceId })));
      const used = new Set(await Promise.all(specs.map(({ sandboxId }) => networkOf(sandboxId))));
      expect(used.size).toBe(1);
      await remove(specs);
    });

    test("of each workspace tell nothing of another's sandboxes, on any engine", async () => {
      const [mine, same, foreign] = [await prepare(), await prepare(), await prepare()];
      const apart = openLifecycle({ url, installationId, isolation: true, logger, networkPerWorkspace: true });
      await apart.ensure(mine);
      await apart.ensure({ ...same, workspaceId: mine.workspaceId });
      await apart.ensure(foreign);
      const [sameAddress, foreignAddress] = [await addressOf(same.sandboxId), await addressOf(foreign.sandboxId)];
      // The engine's resolver runs in this one, as it does in all of later engines.
      const ask = (address: string) => `timeout 3 nslookup ${address} 127.0.0.11`;
      const asker = await engine.createContainer({
        Image: mine.reference,
        Cmd: ["sh", "-c", `${ask(sameAddress)}; echo; ${ask(foreignAddress)}; ${ask(`sandgate-${foreign.sandboxId}`)}`],
        HostConfig: { NetworkMode: await networkOf(mine.sandboxId) },
      });
      try {
        await asker.start();
        await asker.wait();
        const said = (await asker.logs({ stdout: true, stderr: true, follow: false })).toString("latin1");
        expect(said).toContain(`name = sandgate-${same.sandboxId}`);
        expect(said).not.toContain(`name = sandgate-${foreign.sandboxId}`);
        expect(said).not.toMatch(new RegExp(`Address: *${foreignAddress}\\n`));
      } finally {
        await asker.remove({ force: true, v: true });
      }
      const reached = `timeout 2 wget -q -O /dev/null http://${foreignAddress}:8000/ && echo reached`;
      await execIn(foreign.sandboxId)("httpd -p 8000 -h /www");
      while (!(await fetch(`http://${foreignAddress}:8000/`).catch(() => undefined))) await delay(50);
      expect(await execIn(mine.sandboxId)(reached)).not.toContain("reached");
    });

    test("are removed ten minutes after their last sandbox, and no earlier", async () => {
      const spec = await prepare();
      const small = open();
      await small.ensure(spec);
      const network = await networkOf(spec.sandboxId);
      vi.useFakeTimers({ toFake: ["performance"] });
      try {
        const listAfter = async (seconds: number) => {
          vi.advanceTimersByTime(seconds * 1_000);
          await small.list();
        };
        await small.list();
        await listAfter(610);
        expect(await listNetworks()).toContain(network);
        await runtime.remove(spec.sandboxId);
        await small.list();
        await listAfter(590);
        expect(await listNetworks()).toContain(network);
        await listAfter(20);
        expect(await listNetworks()).not.toContain(network);
      } finally {
        vi.useRealTimers();
      }
      const next = await prepare();
      expect(await small.ensure(next)).toMatchObject({ phase: "running" });
      await remove([next]);
    });

    test("that somebody removed meanwhile are made again", async () => {
      const [first, second] = [await prepare(), await prepare()];
      const small = open();
      await small.ensure(first);
      const network = await networkOf(first.sandboxId);
      await runtime.remove(first.sandboxId);
      await small.list();
      await engine.getNetwork(network).remove();
      expect(await small.ensure(second)).toMatchObject({ phase: "running" });
      await remove([second]);
    });
  });

  test("limits all sandboxes together, however many there are", async () => {
    const crowdId = `test-${randomUUID()}`;
    const limited = openLifecycle({
      url,
      installationId: crowdId,
      isolation: true,
      logger,
      totals: { pids: 50, memoryMb: 512, cpuWeight: 50 },
    });
    const specs = [
      await prepare(),
      // The inner shell ends when it can't fork.
      await prepare({ command: ["sh", "-c", "(while true; do sleep 600 & done) 2>/dev/null; exec sleep 600"] }),
    ];
    try {
      for (const spec of specs) await limited.ensure(spec);
      const group = hostNamesOf(crowdId).controlGroup;
      const read = async (controller: string, file: string) => {
        const [unified, split] = [`/sys/fs/cgroup/${group}/${file}`, `/sys/fs/cgroup/${controller}/${group}/${file}`];
        return Number(await readFile(split, "utf8").catch(() => readFile(unified, "utf8")));
      };
      // Less than the 64 of the one that forks.
      await expect.poll(() => read("pids", "pids.current")).toBeGreaterThan(45);
      expect(await read("pids", "pids.current")).toBeLessThanOrEqual(50);
      expect(await read("pids", "pids.max")).toBe(50);
      expect(await read("memory", "memory.limit_in_bytes").catch(() => read("memory", "memory.max"))).toBe(
        512 * 2 ** 20,
      );
    } finally {
      await Promise.all(specs.map(({ sandboxId }) => runtime.remove(sandboxId)));
      await removeHostObjects(crowdId);
    }
  });

  test("reports an engine that is not there", async () => {
    const { lifecycle: absent, images: absentImages } = createDockerRuntime({
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
      absentImages.pull({ pinnedReference, registryHost: "127.0.0.1:1", username: "", password: "", signal }),
    ).rejects.toMatchObject(unavailable);
  });

  test("refuses a runtime that the engine lacks", async () => {
    const gvisor = openLifecycle({
      url,
      installationId,
      isolation: true,
      ociRuntime: "no-such-runtime",
      logger,
    });
    await expect(gvisor.check()).rejects.toMatchObject({ reason: "ISOLATION_UNAVAILABLE" });
  });
});
