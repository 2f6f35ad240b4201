import { execFile } from "node:child_process";
import { randomInt, randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { createLogger } from "@sandgate/kit/base/logging";
import { createDockerRuntime } from "@sandgate/sandbox/runtime.docker";
import { listHostAddresses } from "@sandgate/test-support/host-addresses";
import { buildImage, openTestEngine, engineAddress as url } from "@sandgate/test-support/images";
import { startProcess } from "@sandgate/test-support/process";
import { startRegistry } from "@sandgate/test-support/registry";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import type { Container } from "dockerode";
import { removeHostObjects } from "../platform/host-objects.ts";
import type { NetworkHarness, RuntimeHarness } from "./runtime-harness.ts";

const execute = promisify(execFile);
const logger = createLogger({ service: "runtime-test", level: "silent" });

export interface Peers {
  addresses: NetworkHarness["peers"];
  /** The network namespace that the public and the private one are in. */
  namespace: string;
  close(): Promise<void>;
}

/**
 * Hosts to reach or not: a network namespace of its own behind the host, with a public and a private address, and a
 * link-local address on the host's loopback interface. Numbered at random, so that two runs on a machine don't meet.
 */
export async function openPeers(): Promise<Peers> {
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
  await writeFile(join(folder, "big"), Buffer.alloc(32_000_000));
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

/** Prints how many bytes the first connection to the port sends. Runs in a process of its own. */
export function countBytes(port: number): void {
  let bytes = 0;
  const server = process.getBuiltinModule("node:net").createServer((socket) => {
    socket.on("data", (data) => (bytes += data.length));
    socket.on("end", () => process.stdout.write(String(bytes)));
    server.close();
  });
  server.listen(port);
}

/** A DNS server (RFC 1035, section 4.1) that knows the IPv4 address of app.example. Runs in a process of its own. */
export function answerQuestions(address: readonly number[]): void {
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
export async function collect(stream: NodeJS.ReadableStream): Promise<string> {
  const both = new PassThrough();
  openTestEngine().modem.demuxStream(stream, both, both);
  stream.on("end", () => both.end());
  let text = "";
  for await (const chunk of both) text += chunk;
  return text;
}

export async function openDockerHarness(): Promise<RuntimeHarness> {
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
  const options = { url, installationId, isolation: true, logger };
  const { lifecycle: runtime, images, operations } = createDockerRuntime(options);
  const credential = { username: "alice", password: "correct horse" };
  const registry = closing.adopt(await startRegistry({ users: [credential] }), (each) => each.stop());
  const peers = closing.adopt(await openPeers(), (each) => each.close());
  closing.defer(() => removeHostObjects(installationId));
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
    operations,
    images,
    missingImage: `sha256:${"0".repeat(64)}`,
    openSecond: () => createDockerRuntime(options).lifecycle,
    shortestGraceSeconds: 0,
    limitsProcesses: true,
    pullsFromLoopback: true,
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
      return Object.values(info.NetworkSettings.Networks)[0]?.IPAddress ?? "";
    },
    network: {
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
      hostAddresses: listHostAddresses(),
      peers: peers.addresses,
    },
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
