import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { test as baseTest } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { expect } from "vitest";
import type { ContainerEvent } from "../collect/container-source.ts";
import { openApiPods } from "./api-pods.ts";

const createdAt = "2026-01-02T03:04:05Z";
const podsPath = "/api/v1/namespaces/s/pods";

function podOf(number: number, state: object, o: { installationId?: string } = {}) {
  const labels = { "sandgate.io/sandbox-id": `s${number}`, "sandgate.io/installation": o.installationId ?? "i1" };
  const metadata = { name: `sandgate-s${number}`, namespace: "s", uid: `u${number}`, labels };
  const containerStatuses = [
    { name: "a-proxy", state: { running: { startedAt: createdAt } } },
    { name: "sandbox", state },
  ];
  return { metadata, spec: { nodeName: "n1", containers: [] }, status: { containerStatuses } };
}

const waiting = { waiting: { reason: "ContainerCreating" } };
const running = { running: { startedAt: createdAt } };
const ended = { terminated: { exitCode: 0, startedAt: createdAt } };
const neverStarted = { terminated: { exitCode: 128, startedAt: "1970-01-01T00:00:00Z" } };

/** A source, and the API server that it asks. */
const test = baseTest.extend("open", async ({ folder }, { onCleanup }) => {
  const pages: object[][] = [[]];
  const found = new Map<string, object>();
  const watches: ServerResponse[] = [];
  /** Paths that the account has no right to. */
  const forbidden = new Set<string>();
  const server = createServer(({ url = "" }, response) => {
    const { pathname, searchParams } = new URL(url, "http://localhost");
    if (searchParams.has("watch")) {
      response.writeHead(200, { "content-type": "application/json" }).flushHeaders();
      return void watches.push(response);
    }
    const page = Number(searchParams.get("continue") ?? 0);
    const next = page + 1 < pages.length ? { continue: String(page + 1) } : {};
    const answer = pathname === podsPath ? { metadata: next, items: pages[page] } : found.get(pathname);
    const status = forbidden.has(pathname) ? 403 : answer ? 200 : 404;
    response.writeHead(status, { "content-type": "application/json" });
    response.end(JSON.stringify(answer ?? { message: "not found" }));
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  onCleanup(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const kubeconfig = {
    clusters: [{ name: "c", cluster: { server: `http://127.0.0.1:${port}`, "insecure-skip-tls-verify": true } }],
    users: [{ name: "u", user: { token: "t" } }],
    contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
    "current-context": "c",
  };
  await writeFile(join(folder, "kubeconfig"), JSON.stringify(kubeconfig));
  const source = openApiPods({
    address: `kubernetes:${join(folder, "kubeconfig")}`,
    namespaces: ["s"],
    installationId: "i1",
    logger: createLogger({ service: "telemetry", level: "silent" }),
    metrics: createMetrics(),
  });
  return { source, pages, found, watches, forbidden, signal: new AbortController().signal };
});

test("lists all pods of the installation, page by page, with what their containers are at", async ({ open }) => {
  const { source, pages, found, signal } = open;
  const strange = podOf(9, running, { installationId: "i2" });
  pages.splice(0, 1, [podOf(1, waiting), podOf(2, running), strange], [podOf(3, ended), podOf(4, neverStarted)]);
  const listed = await source.list({ signal });
  expect(listed.map(({ id, sandboxId, state }) => [id, sandboxId, state])).toEqual([
    ["u1", "s1", "created"],
    ["u2", "s2", "running"],
    ["u3", "s3", "ended"],
    ["u4", "s4", "created"],
  ]);
  expect(await source.list({ sandboxId: "s2", signal })).toEqual([]);
  expect(await source.inspect("u2", signal)).toBeUndefined();
  found.set(`${podsPath}/sandgate-s2`, podOf(2, ended));
  expect(await source.list({ sandboxId: "s2", signal })).toMatchObject([{ id: "u2", state: "ended" }]);
  // Of another pod that has its name by now.
  found.set(`${podsPath}/sandgate-s3`, {
    ...podOf(3, running),
    metadata: { ...podOf(3, running).metadata, uid: "u33" },
  });
  expect(await source.inspect("u3", signal)).toBeUndefined();
});

test("tells what happens to containers once each, and ends with the watch", async ({ open }) => {
  const { source, watches, signal } = open;
  const events: ContainerEvent[] = [];
  const watching = (async () => {
    for await (const event of source.watch(signal)) events.push(event);
  })();
  await until(() => expect(watches).toHaveLength(1));
  const tell = (type: string, object: object) => watches[0]?.write(`${JSON.stringify({ type, object })}\n`);
  tell("ADDED", podOf(1, waiting));
  tell("MODIFIED", podOf(1, running));
  tell("MODIFIED", podOf(1, running));
  tell("ADDED", podOf(2, ended));
  tell("MODIFIED", podOf(1, ended));
  tell("DELETED", podOf(1, ended));
  watches[0]?.end();
  await watching;
  expect(events.map(({ containerId, action }) => `${containerId} ${action}`)).toEqual([
    "u1 start",
    "u2 start",
    "u2 die",
    "u1 die",
    "u1 destroy",
  ]);
});

test("a container without a log, or that is gone, has no lines", async ({ open }) => {
  const { source, pages, signal } = open;
  pages.splice(0, 1, [podOf(1, running)]);
  const [container] = await source.list({ signal });
  if (!container) throw new Error("nothing is listed");
  for (const each of [container, { ...container, id: "u0" }]) {
    const blocks: unknown[] = [];
    for await (const block of source.readLogs(each, "", { follow: true, signal })) blocks.push(block);
    expect(blocks).toEqual([]);
  }
});

test("the right to figures may be left out, and the right to logs is missed until it is there", async ({ open }) => {
  const { source, pages, found, forbidden, signal } = open;
  pages.splice(0, 1, [podOf(1, running)]);
  const [container] = await source.list({ signal });
  if (!container) throw new Error("nothing is listed");
  const logPath = `${podsPath}/sandgate-s1/log`;
  found.set(logPath, {});
  forbidden.add(logPath).add("/api/v1/nodes/n1/proxy/metrics/resource");
  expect(await source.openSampler(container.id)(signal)).toBeUndefined();
  expect(source.problem?.()).toBeUndefined();
  const read = async () => {
    for await (const _ of source.readLogs(container, "", { follow: false, signal }));
  };
  await read();
  expect(source.problem?.()).toBe("the API server forbids: get pods/log");
  forbidden.delete(logPath);
  await read();
  expect(source.problem?.()).toBeUndefined();
});
