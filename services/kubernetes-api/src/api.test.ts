import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { inspect } from "node:util";
import { test as baseTest } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { type Api, type ApiError, openApi } from "./api.ts";

interface Answer {
  /** Undefined: there is no answer. */
  status?: number;
  body?: object;
  headers?: Record<string, string>;
}

/** A server that answers with these in turn, and then with the last, and a client of it. */
const test = baseTest.extend("serve", async ({ folder }, { onCleanup }) => {
  const servers: { server: Server; api: Api }[] = [];
  onCleanup(async () => {
    for (const { server, api } of servers) {
      await api.close();
      server.closeAllConnections();
      server.close();
    }
  });
  return async (answers: readonly Answer[]) => {
    const requests: {
      method: string;
      url: string;
      type: string | undefined;
      token: string | undefined;
      socket: IncomingMessage["socket"];
    }[] = [];
    const server = createServer((request, response) => {
      const answer = answers[Math.min(requests.length, answers.length - 1)];
      const { method = "", url = "", headers, socket } = request;
      requests.push({ method, url, type: headers["content-type"], token: headers.authorization, socket });
      request.resume().on("end", () => {
        if (answer && answer.status === undefined) return;
        response.writeHead(answer?.status ?? 200, answer?.headers);
        response.end(JSON.stringify(answer?.body ?? {}));
      });
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const path = join(folder, "kubeconfig");
    const configWith = (token: string, tls: object) => ({
      clusters: [{ name: "c", cluster: { server: `http://127.0.0.1:${port}`, ...tls } }],
      users: [{ name: "u", user: { token } }],
      contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
      "current-context": "c",
    });
    const setToken = (token: string, tls: object = {}) =>
      writeFile(path, JSON.stringify(configWith(token, { "insecure-skip-tls-verify": true, ...tls })));
    await setToken("first");
    const api = openApi(`kubernetes:${path}`, { writesPerSecond: 1_000, requestTimeoutMs: 500 });
    servers.push({ server, api });
    return { api, requests, setToken };
  };
});

test("tries again what the server refuses for now, no sooner than it says", async ({ serve }) => {
  const { api, requests } = await serve([
    { status: 429, headers: { "retry-after": "1" } },
    { status: 500 },
    { status: 201, body: { kind: "Pod" } },
  ]);
  const startedAt = performance.now();
  expect(await api.call({ method: "POST", path: "/api/v1/namespaces/n/pods", body: {} })).toEqual({ kind: "Pod" });
  expect(requests).toHaveLength(3);
  expect(performance.now() - startedAt).toBeGreaterThanOrEqual(1_000);
});

test("gives back what the server refuses for good", async ({ serve }) => {
  const body = { reason: "Forbidden", message: "exceeded quota: pods" };
  const { api, requests } = await serve([{ status: 403, body }]);
  const refused: Partial<ApiError> = { status: 403, reason: "Forbidden", message: "exceeded quota: pods" };
  await expect(api.call({ method: "POST", path: "/api/v1/namespaces/n/pods", body: {} })).rejects.toMatchObject(
    refused,
  );
  expect(requests).toHaveLength(1);
});

test("keeps its connections, and names the kind of a patch", async ({ serve }) => {
  const { api, requests } = await serve([{ status: 200 }]);
  for (let round = 0; round < 10; round++) {
    for (const method of ["POST", "PATCH", "DELETE"] as const)
      await api.call({ method, path: "/api/v1/namespaces/n/pods/a", body: {} });
  }
  // Some may still be busy with the end of an answer.
  expect(new Set(requests.map(({ socket }) => socket)).size).toBeLessThan(6);
  expect(requests[1]?.type).toBe("application/strategic-merge-patch+json");
});

test("ends with its signal", async ({ serve }) => {
  const { api } = await serve([{ status: 503 }]);
  const controller = new AbortController();
  const reason = new Error("enough");
  const calling = api.call({ method: "GET", path: "/api", signal: controller.signal });
  controller.abort(reason);
  await expect(calling).rejects.toBe(reason);
});

test("reads its credentials again when the server takes them no more, and asks once more", async ({ serve }) => {
  const { api, requests, setToken } = await serve([{ status: 200 }, { status: 401 }, { status: 200 }, { status: 401 }]);
  const get = () => api.call({ method: "GET", path: "/api/v1/namespaces/n/pods" });
  await get();
  await setToken("second");
  await get();
  expect(requests.map(({ token }) => token)).toEqual(["Bearer first", "Bearer first", "Bearer second"]);
  await expect(get()).rejects.toMatchObject({ status: 401 });
  expect(requests).toHaveLength(5);
});

test("keeps its connections for another token, and opens others for another TLS setting", async ({ serve }) => {
  const statuses = [200, 200, 200, 401, 200, 401, 200];
  const { api, requests, setToken } = await serve(statuses.map((status) => ({ status })));
  const get = () => api.call({ method: "GET", path: "/api/v1/namespaces/n/pods" });
  // Some may still be busy with the end of an answer.
  for (let round = 0; round < 3; round++) await get();
  await setToken("second");
  await get();
  await setToken("third", { "tls-server-name": "api.example" });
  await get();
  expect(requests.slice(3).map(({ token }) => token?.split(" ")[1])).toEqual(["first", "second", "second", "third"]);
  const sockets = requests.map(({ socket }) => socket);
  const wasThere = (index: number) => sockets.indexOf(sockets[index] as (typeof sockets)[0]) < index;
  expect([wasThere(4), wasThere(6)]).toEqual([true, false]);
});

test("what is wrong with a kubeconfig is told without its credentials", async ({ folder }) => {
  const path = join(folder, "kubeconfig");
  const open = () => openApi(`kubernetes:${path}`, { writesPerSecond: 1 });
  expect(open).toThrow("ENOENT");
  await writeFile(path, "users:\n- name: u\n  user:\n    token: hunter2\n   broken: [\n");
  try {
    open();
    expect.unreachable();
  } catch (error) {
    expect(String(error)).toContain(`${path} is not a kubeconfig`);
    expect(inspect(error, { depth: 9 })).not.toContain("hunter2");
  }
});

test("a stream that does not begin in time fails", async ({ serve }) => {
  const { api } = await serve([{}]);
  await expect(api.openStream("/api", {}, new AbortController().signal)).rejects.toThrow();
});

test("a request that is not answered is sent again", async ({ serve }) => {
  const { api, requests } = await serve([{}, { status: 200 }]);
  await api.call({ method: "GET", path: "/api" });
  expect(requests).toHaveLength(2);
});

test("tells how far the server's clock is ahead, but not what its seconds can't", async ({ serve }) => {
  const at = (aheadMs: number): Answer => ({
    status: 200,
    headers: { date: new Date(Date.now() + aheadMs).toUTCString() },
  });
  const { api } = await serve([at(600_000), at(0)]);
  await api.call({ method: "GET", path: "/api" });
  expect(Math.abs(api.clockAheadMs() - 600_000)).toBeLessThan(60_000);
  await api.call({ method: "GET", path: "/api" });
  expect(api.clockAheadMs()).toBe(0);
});
