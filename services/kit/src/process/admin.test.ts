import { expect, test } from "vitest";
import { counter, createMetrics } from "../base/metrics.ts";
import { startAdminServer } from "./admin.ts";

test("operators see health, readiness with every dependency's state, and metrics of all registries", async () => {
  const registries = [createMetrics({ processMetrics: true }), createMetrics()] as const;
  const definition = { name: "sandgate_things_total", help: "Things.", labelNames: ["service"] as const };
  counter(registries[0], definition).inc({ service: "a" }, 2);
  counter(registries[1], definition).inc({ service: "b" }, 3);
  counter(registries[1], definition).inc({ service: "b" });
  let ready = false;
  let fail = false;
  const admin = await startAdminServer({
    host: "127.0.0.1",
    port: 0,
    registries,
    ready: () => ready,
    async dependencies() {
      if (fail) throw new Error("can't say");
      return { engine: "ok", database: "connection refused" };
    },
  });
  const get = async (path: string) => {
    const response = await fetch(`${admin.url}${path}`);
    return { status: response.status, body: await response.text() };
  };
  try {
    expect((await get("/healthz")).status).toBe(200);
    expect((await get("/readyz")).status).toBe(503);
    ready = true;
    const readyz = await get("/readyz");
    expect(readyz.status).toBe(200);
    expect(JSON.parse(readyz.body)).toEqual({
      ready: true,
      dependencies: { engine: "ok", database: "connection refused" },
    });
    const { body } = await get("/metrics");
    expect(body).toContain('sandgate_things_total{service="a"} 2');
    expect(body).toContain('sandgate_things_total{service="b"} 4');
    expect(body).toContain('sandgate_dependency_up{dependency="engine"} 1');
    expect(body).toContain('sandgate_dependency_up{dependency="database"} 0');
    expect(body).toContain("process_cpu_seconds_total");
    expect(body.match(/^# TYPE sandgate_things_total/gm)).toHaveLength(1);
    fail = true;
    expect(await get("/readyz")).toMatchObject({ status: 200, body: expect.stringContaining("can't say") });
    expect((await get("/else")).status).toBe(404);
  } finally {
    await admin.close();
  }
});
