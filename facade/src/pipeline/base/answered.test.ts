import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { apiToken, at, openTestPlatform, sandboxMessage, type TestPlatform, workspaceId } from "../../test-platform.ts";

let platform: TestPlatform;
let url: string;
/** What the services are working on. */
let begun = 0;
/** Lets sign-ins be refused. */
let refuse: PromiseWithResolvers<void>;

beforeAll(async () => {
  platform = await openTestPlatform({
    env: { SANDGATE_RATE_LIMIT: "0", SANDGATE_SIGNIN_RATE_LIMIT: "0" },
    handlers: {
      identity: {
        async signIn() {
          begun += 1;
          await refuse.promise;
          throw new DomainError("INVALID_CREDENTIALS", "Wrong name or password.");
        },
      },
      sandbox: {
        getSandbox: () => ({ sandbox: sandboxMessage() }),
        async waitSandboxes(_, { signal }) {
          begun += 1;
          await once(signal, "abort");
          throw signal.reason;
        },
      },
      telemetry: {
        async *tailTelemetry(_, { signal }) {
          yield { position: "1", row: { case: undefined } };
          await once(signal, "abort");
        },
      },
      files: {
        async *readFile() {
          const entry = { path: Buffer.from("/a"), size: 10n, modifiedAt: at };
          yield { part: { case: "start" as const, value: { entry, length: 10n, offset: 0n } } };
          yield { part: { case: "data" as const, value: Buffer.from("abc") } };
          throw new Error("broken");
        },
      },
    },
  });
  url = await platform.listen();
});
afterAll(() => platform.close());
beforeEach(() => {
  begun = 0;
  refuse = Promise.withResolvers();
  platform.logLines.length = 0;
});

function textOf(method: string, path: string, body = ""): string {
  const lines = [
    `${method} ${path} HTTP/1.1`,
    "Host: api.test",
    `X-Request-Id: ${newId()}`,
    `Authorization: Bearer ${apiToken}`,
    `X-Workspace-Id: ${workspaceId}`,
    ...(body && ["Content-Type: application/json", `Content-Length: ${body.length}`]),
  ];
  return `${lines.join("\r\n")}\r\n\r\n${body}`;
}

const signIn = () => textOf("POST", "/auth/login", '{"username":"eve@example.test","password":"guessed"}');

function send(...texts: string[]): Socket {
  const socket = connect(Number(new URL(url).port), "127.0.0.1").on("error", () => {});
  socket.write(texts.join(""));
  return socket;
}

/** Sends requests over one connection, and leaves once all are worked on. */
async function leave(...texts: string[]): Promise<void> {
  const all = begun + texts.length;
  const socket = send(...texts);
  await until(() => expect(begun).toBe(all));
  socket.destroy();
}

/** The requests that are logged by now, but the one that this sends: whatever came before it has ended by its end. */
async function logged(): Promise<{ route: string; status: number }[]> {
  await fetch(`${url}/healthz`);
  return platform.logLines
    .map((line) => JSON.parse(line))
    .filter(({ msg, route }) => msg === "request" && route !== "/healthz")
    .map(({ route, status }) => ({ route, status }));
}

async function counted(route: string): Promise<string[]> {
  const text = await platform.metrics.getSingleMetricAsString("sandgate_http_request_seconds");
  const counts = text.matchAll(/_count\{.*route="([^"]*)",status="(\d+)",fault="(\w+)",live="\w+"\} (\d+)/g);
  return [...counts].flatMap(([, of, status, fault, count]) => (of === route ? `${status} ${fault} ${count}` : []));
}

test("requests whose client left are logged, measured and audited once, as they would have been answered", async () => {
  await leave(signIn());
  // Also those that wait for the answer to another one on their connection.
  await leave(signIn(), signIn());
  refuse.resolve();
  const refused = { route: "/auth/login", status: 401 };
  await until(async () => expect(await logged()).toEqual([refused, refused, refused]));
  expect(await counted("/auth/login")).toEqual(["401 client 3"]);
  const attempts = () => platform.state.audited.filter(({ action }) => action === "user.sign_in");
  await until(() => expect(attempts()).toMatchObject([{ outcome: "invalid_credentials", count: 3 }]));
});

test("one that ended because its client left has the status 499, and is no fault of the platform", async () => {
  await leave(textOf("POST", "/sandboxes/wait", '{"sandbox_id":"box"}'));
  await until(async () => expect(await logged()).toEqual([{ route: "/sandboxes/wait", status: 499 }]));
  expect(await counted("/sandboxes/wait")).toEqual(["499 client 1"]);
});

test("a stream whose client leaves and a download that breaks off are logged and measured once", async () => {
  const stream = send(textOf("GET", "/sandbox/monitoring/box/stream"));
  await once(stream, "data");
  stream.destroy();
  const streamed = { route: "/sandbox/monitoring/:sandbox_id/stream", status: 200 };
  await until(async () => expect(await logged()).toEqual([streamed]));
  await once(send(textOf("GET", "/sandboxes/box/files?path=/a")).resume(), "close");
  const broken = { route: "/sandboxes/:sandbox_id/files", status: 200 };
  await until(async () => expect(await logged()).toEqual([streamed, broken]));
  expect(await counted(broken.route)).toEqual(["200 none 1"]);
});
