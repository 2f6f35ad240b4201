import { execFile } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { promisify } from "node:util";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { test } from "@sandgate/test-support/test";
import { afterEach, expect, vi } from "vitest";
import { openKubeletSamples, parseSamples } from "./kubelet-samples.ts";

const execute = promisify(execFile);

const page = `# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="sandbox",namespace="sandboxes",pod="sandbox-1"} 1.2345e-02 1795364046123
container_cpu_usage_seconds_total{container="sandbox",namespace="sandboxes",pod="sandbox-2"} 7 1795364046125
container_memory_working_set_bytes{container="sandbox",namespace="sandboxes",pod="sandbox-1"} 1.048576e+06 1795364046123
container_start_time_seconds{container="sandbox",namespace="sandboxes",pod="sandbox-1"} 1.7953640e+09
node_cpu_usage_seconds_total 40.5 1795364046100
pod_cpu_usage_seconds_total{namespace="sandboxes",pod="sandbox-1"} 2 1795364046123
resource_scrape_error 0
`;

test("a container's figures are read from the kubelet's metrics, when both are there", () => {
  expect(parseSamples(page)).toEqual(
    new Map([
      [
        "sandboxes/sandbox-1/sandbox",
        { timeNs: 1_795_364_046_123_000_000n, cpuSeconds: 0.012345, memoryBytes: 1_048_576 },
      ],
    ]),
  );
});

test.each([
  ["lines that don't end", "container_cpu_usage_seconds_total{"],
  ["lines without labels' end", "container_cpu_usage_seconds_total{\n"],
  ["labels without a value", 'container_cpu_usage_seconds_total{a="'],
  ["lines with other ends", "container_cpu_usage_seconds_total{a\r"],
])("a kubelet's %s are read in linear time", (_what, unit) => {
  // In quadratic time this takes an hour.
  expect(parseSamples(unit.repeat((16 * mebibyte) / unit.length))).toEqual(new Map());
  const name = "a".repeat(mebibyte);
  expect(parseSamples(`container_cpu_usage_seconds_total{${name}} 1 2`)).toEqual(new Map());
});

let server: Server | undefined;
afterEach(() => {
  server?.closeAllConnections();
  server?.close();
});

test("the kubelet is asked with the token of the moment, once for many containers, and only when its certificate is good", async ({
  folder,
}) => {
  const at = (name: string) => join(folder, name);
  const subject = ["-subj", "/CN=kubelet", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"];
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  for (const name of ["kubelet", "other"]) {
    const files = ["-keyout", at(`${name}.key`), "-out", at(`${name}.crt`)];
    await execute("openssl", ["req", "-x509", ...key, ...files, ...subject]);
  }
  let isAllowed = true;
  const asked: (string | undefined)[] = [];
  server = createServer(
    { key: readFileSync(at("kubelet.key")), cert: readFileSync(at("kubelet.crt")) },
    (request, response) => {
      asked.push(`${request.url} ${request.headers.authorization}`);
      response.writeHead(isAllowed ? 200 : 403).end(page);
    },
  );
  await new Promise<void>((resolve) => server?.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const url = `https://127.0.0.1:${port}`;
  const tokenFile = at("token");
  writeFileSync(tokenFile, "first\n");
  const logger = createLogger({ service: "telemetry", level: "silent" });
  const [warned, informed] = [vi.spyOn(logger, "warn"), vi.spyOn(logger, "info")];
  const open = (caFile: string | undefined) =>
    openKubeletSamples({ url, tokenFile, caFile, logger, metrics: createMetrics() });
  const container = { namespace: "sandboxes", pod: "sandbox-1", container: "sandbox" };
  const { signal } = new AbortController();

  const samples = open(at("kubelet.crt"));
  const both = await Promise.all([samples.find(container, signal), samples.find({ ...container, pod: "x" }, signal)]);
  expect(both).toMatchObject([{ cpuSeconds: 0.012345 }, undefined]);
  expect(asked).toEqual(["/metrics/resource Bearer first"]);

  writeFileSync(tokenFile, "second\n");
  const startMs = performance.now();
  const clock = vi.spyOn(performance, "now");
  isAllowed = false;
  for (const laterMs of [2_500, 5_000]) {
    clock.mockReturnValue(startMs + laterMs);
    await expect(samples.find(container, signal)).rejects.toThrow("answered 403");
  }
  expect([warned.mock.calls.length, informed.mock.calls.length]).toEqual([1, 0]);
  expect(samples.problem()).toBe("the kubelet's figures can't be had: the kubelet answered 403 for /metrics/resource");
  isAllowed = true;
  clock.mockReturnValue(startMs + 7_500);
  expect(await samples.find(container, signal)).toMatchObject({ cpuSeconds: 0.012345 });
  expect([warned.mock.calls.length, informed.mock.calls.length]).toEqual([1, 1]);
  expect(samples.problem()).toBeUndefined();
  clock.mockRestore();
  isAllowed = false;
  expect(asked).toEqual(["/metrics/resource Bearer first", ...Array(3).fill("/metrics/resource Bearer second")]);
  await expect(open(undefined).find(container, signal)).rejects.toThrow("answered 403");
  expect(asked.at(-1)).toBe("/metrics/resource Bearer second");
  await expect(open(at("other.crt")).find(container, signal)).rejects.toThrow("self-signed certificate");
  expect(asked).toHaveLength(5);
});
