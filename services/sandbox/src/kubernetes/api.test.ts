import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { test as baseTest } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { type Api, type ApiError, openApi } from "./api.ts";

interface Answer {
  status: number;
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
    const requests: { method: string; url: string; type: string | undefined; socket: IncomingMessage["socket"] }[] = [];
    const server = createServer((request, response) => {
      const answer = answers[Math.min(requests.length, answers.length - 1)];
      const { method = "", url = "", headers, socket } = request;
      requests.push({ method, url, type: headers["content-type"], socket });
      request.resume().on("end", () => {
        response.writeHead(answer?.status ?? 200, answer?.headers);
        response.end(JSON.stringify(answer?.body ?? {}));
      });
    }).listen(0, "127.0.0.1");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const path = join(folder, "kubeconfig");
    const config = {
      clusters: [{ name: "c", cluster: { server: `http://127.0.0.1:${port}`, "insecure-skip-tls-verify": true } }],
      users: [{ name: "u", user: { token: "t" } }],
      contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
      "current-context": "c",
    };
    await writeFile(path, JSON.stringify(config));
    const api = openApi(`kubernetes:${path}`, { writesPerSecond: 1_000 });
    servers.push({ server, api });
    return { api, requests };
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
    for (const method of ["POST", "PATCH"] as const)
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
