import { once } from "node:events";
import { constants, createServer as createHost, type ServerHttp2Session } from "node:http2";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type ConnectRouter, createClient } from "@connectrpc/connect";
import { FileService } from "@sandgate/proto/sandbox/v1/files";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { findFreePort, type RunningProcess, startProcess } from "@sandgate/test-support/process";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { createLogger } from "../base/logging.ts";
import { createMetrics } from "../base/metrics.ts";
import { type ServiceHost, startServiceHost } from "../process/host.ts";
import { createRemoteTransport } from "./clients.ts";
import { asFacade, type UserCaller } from "./context.ts";
import { createInternalKeys, createTokenVerifier, type TokenSigner } from "./internal-auth.ts";
import { type FromFile, makeKeys, openTokenSigner } from "./internal-keys.ts";

const program = join(import.meta.dirname, "replicas.fixture.child.ts");
const logger = createLogger({ service: "test", level: "silent" });
const user: UserCaller = { id: "u", credential: "session", credentialId: "s", operator: false };
const [first, second] = ["127.0.0.1", "127.0.0.2"];

const { path: folder, remove: removeFolder } = await createTempFolder();
let signer: FromFile<TokenSigner>;
let port: number;
let running: Map<string, RunningProcess>;
/** What the name of the service stands for. */
let addresses: string[];

beforeAll(async () => {
  await makeKeys(folder);
  signer = await openTokenSigner({ caller: "facade", file: join(folder, "facade.jwk.json"), logger });
});
afterAll(async () => {
  signer.close();
  await removeFolder();
});
beforeEach(async () => {
  port = await findFreePort();
  running = new Map();
  addresses = [first, second];
});
afterEach(async () => {
  await Promise.all([...running.values()].map((replica) => replica.kill()));
});

async function start(address: string): Promise<void> {
  const args = [program, address, String(port), join(folder, "jwks.json")];
  const replica = startProcess(process.execPath, args, { env: { PATH: process.env.PATH } });
  running.set(address, replica);
  while (!replica.output().includes("up")) await delay(10);
}

async function stop(address: string): Promise<void> {
  expect(await running.get(address)?.stop()).toBe(0);
}

function openClient() {
  const transport = createRemoteTransport({
    url: `http://workspace:${port}`,
    signer,
    audience: "workspace",
    resolve: async () => addresses,
    resolveEveryMs: 50,
  });
  const client = createClient(WorkspaceService, transport);
  const call = (timeoutMs?: number) => asFacade({ requestId: "r", user, timeoutMs });
  return {
    create: () => client.createWorkspace({ name: "w" }, call()),
    /** The address of the replica that answered. */
    async ask(timeoutMs?: number): Promise<string> {
      let replica = "";
      await client.getMembership(
        { userId: "0199b0f0-0000-7000-8000-000000000000", workspaceId: "0199b0f0-0000-7000-8000-000000000000" },
        {
          ...call(timeoutMs),
          onHeader(header) {
            replica = header.get("replica") ?? "";
          },
        },
      );
      return replica;
    },
  };
}

/** Four callers at once, without a pause, until `stop`. */
function startLoad(call: () => Promise<unknown>) {
  const failures: unknown[] = [];
  let answered = 0;
  let going = true;
  const callers = Array.from({ length: 4 }, async () => {
    while (going) {
      await call().then(
        () => answered++,
        (error: unknown) => failures.push(error),
      );
    }
  });
  return {
    failures,
    answered: () => answered,
    async stop() {
      going = false;
      await Promise.all(callers);
    },
  };
}

/** Asks until every one of these has answered. */
async function untilAnswered(ask: () => Promise<string>, wanted: readonly string[]): Promise<void> {
  const seen = new Set<string>();
  while (!wanted.every((address) => seen.has(address))) seen.add(await ask());
}

test("calls are spread over the replicas, also those that come later, and leave those that go", async () => {
  await Promise.all([start(first), start(second)]);
  addresses = [first];
  const { ask } = openClient();
  expect(await ask()).toBe(first);
  addresses = [first, second];
  await untilAnswered(ask, [first, second]);
  const turns = [await ask(), await ask(), await ask(), await ask()];
  expect(turns.filter((address) => address === first)).toHaveLength(2);
  addresses = [second];
  for (let inARow = 0; inARow < 10; ) inARow = (await ask()) === second ? inARow + 1 : 0;
});

test("restarting one replica after the other fails no call", async () => {
  await Promise.all([start(first), start(second)]);
  const { ask, create } = openClient();
  const [asking, creating] = [startLoad(ask), startLoad(create)];
  for (const address of [first, second]) {
    await stop(address);
    await start(address);
    await untilAnswered(ask, [first, second]);
  }
  await until(() => expect(Math.min(asking.answered(), creating.answered())).toBeGreaterThan(100));
  await Promise.all([asking.stop(), creating.stop()]);
  expect([...asking.failures, ...creating.failures]).toEqual([]);
});

test("killing a replica fails no call that may be repeated", async () => {
  await Promise.all([start(first), start(second)]);
  const { ask } = openClient();
  const load = startLoad(ask);
  await untilAnswered(ask, [first, second]);
  await running.get(first)?.kill();
  await start(first);
  await untilAnswered(ask, [first, second]);
  await load.stop();
  expect(load.failures).toEqual([]);
});

/** Starts replicas that take files, and a client of theirs. */
async function startFiles(onAddresses: readonly string[], protocol: "connect" | "grpc") {
  const keys = await createInternalKeys(["facade"]);
  const download = Promise.withResolvers<void>();
  const readFrom: string[] = [];
  const written: string[] = [];
  const hosts = new Map<string, ServiceHost>();
  for (const address of onAddresses) {
    const routes = (router: ConnectRouter) => {
      router.service(FileService, {
        async *readFile() {
          readFrom.push(address);
          yield { part: { case: "data", value: Uint8Array.of(1) } };
          await download.promise;
        },
        async writeFile(parts) {
          const cases: (string | undefined)[] = [];
          for await (const { part } of parts) cases.push(part.case);
          written.push(cases.join());
          return { created: true };
        },
      });
    };
    const verifier = createTokenVerifier({ audience: "sandbox", jwks: keys.jwks });
    const options = { service: "sandbox", verifier, logger, metrics: createMetrics(), routes };
    hosts.set(address, await startServiceHost({ ...options, host: address, port }));
  }
  const transport = createRemoteTransport({
    url: `http://sandbox:${port}`,
    signer: keys.signer("facade"),
    audience: "sandbox",
    protocol,
    resolve: async () => addresses,
  });
  const client = createClient(FileService, transport);
  const call = () => asFacade({ requestId: "r", user: { ...user, workspaceId: "w", role: "member" }, timeoutMs: 0 });
  const path = Buffer.from("/file");
  async function* parts() {
    yield { part: { case: "start", value: { sandbox: "box", path } } } as const;
    yield { part: { case: "data", value: Uint8Array.of(1) } } as const;
    yield { part: { case: "commit", value: true } } as const;
  }
  return {
    hosts,
    readFrom,
    written,
    upload: () => client.writeFile(parts(), call()),
    /** Reads on until `endDownload`. */
    download: () => client.readFile({ sandbox: "box", path }, call())[Symbol.asyncIterator](),
    endDownload: download.resolve,
  };
}

test.each(["connect", "grpc"] as const)(
  "what a client streams arrives whole although the replica that was chosen accepts no connection (%s)",
  async (protocol) => {
    const { hosts, readFrom, written, ...files } = await startFiles([first, second], protocol);
    const reading = files.download();
    await reading.next();
    while (written.length < 4) await files.upload();
    // A closing host accepts connections for 250 ms. The download keeps the client's old one open.
    const closing = hosts.get(readFrom[0] ?? "")?.close();
    await delay(400);
    await Promise.all([files.upload(), files.upload()]);
    expect(written).toEqual(Array.from({ length: 6 }, () => "start,data,commit"));
    files.endDownload();
    expect(await reading.next()).toMatchObject({ done: true });
    await Promise.all([closing, ...[...hosts.values()].map((host) => host.close())]);
  },
);

test.each(["connect", "grpc"] as const)(
  "what a client streams goes to no other replica once a part of it was sent (%s)",
  async (protocol) => {
    const { hosts, written, upload } = await startFiles([second], protocol);
    let refused = 0;
    const refusing = createHost().on("stream", (stream) => {
      stream
        .on("error", () => {})
        .once("data", () => {
          refused++;
          stream.close(constants.NGHTTP2_REFUSED_STREAM);
        });
    });
    refusing.listen(port, first);
    await once(refusing, "listening");
    while (refused < 2 || written.length === 0) {
      await upload().catch((error: unknown) => expect(error).toMatchObject({ reason: "UPSTREAM_ERROR" }));
    }
    expect(new Set(written)).toEqual(new Set(["start,data,commit"]));
    refusing.close();
    await hosts.get(second)?.close();
  },
);

test("an address that never answers holds nobody up", async () => {
  await start(first);
  // Reserved for documentation (RFC 5737): nobody is there.
  addresses = ["192.0.2.1", first];
  const { ask } = openClient();
  const answers = await Promise.all(Array.from({ length: 10 }, () => ask()));
  expect(new Set(answers)).toEqual(new Set([first]));
});

test("no replica at all is an upstream error, within the deadline", async () => {
  const { ask } = openClient();
  await expect(ask()).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  addresses = ["192.0.2.1"];
  await expect(openClient().ask(100)).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
});

test("a GOAWAY on an idle connection that closes late ends nothing but the connection", async () => {
  const sessions: ServerHttp2Session[] = [];
  const host = createHost().on("session", (session) => sessions.push(session));
  host.on("stream", (stream) => {
    stream.on("error", () => {});
    stream.respond({ ":status": 200, "content-type": "application/proto" });
    stream.end();
  });
  host.listen(0, first);
  // Like a load balancer, this keeps its side open for a while when the other has closed.
  const balancer = createServer({ allowHalfOpen: true }, (socket) => {
    const onward = connect(Object(host.address()).port, first);
    socket.on("data", (data) => onward.write(data)).on("error", () => {});
    onward.on("data", (data) => socket.write(data)).on("error", () => {});
    socket.on("end", () => setTimeout(() => socket.end(), 20));
  }).listen(port, first);
  await Promise.all([once(host, "listening"), once(balancer, "listening")]);
  addresses = [first];
  const { ask } = openClient();
  for (let round = 0; round < 10; round++) {
    await ask();
    await delay(2);
    for (const session of sessions.splice(0)) session.goaway();
    await delay(round);
  }
  await delay(100);
  host.close();
  balancer.close();
});
