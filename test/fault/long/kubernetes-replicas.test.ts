import { setTimeout as delay } from "node:timers/promises";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { type Client, createClient, expectStatus } from "../../conformance/client.ts";
import { openEventStream, readEvents } from "../../conformance/event-stream.ts";
import { deployed } from "../../deploy/cluster-rights.ts";
import { type ClusterPlatform, requireInCluster, startInCluster } from "../../platform/in-cluster/platform.ts";
import { unlimited, unlimitedSandboxes } from "../../platform/limits.ts";
import { openOperator } from "../../platform/operator.ts";
import { createCallers } from "../callers.ts";
import type { Journal } from "../journal.ts";
import { crash } from "../outages.ts";
import { causeOf, countFailure, countOutcomes, type Outcomes } from "../outcomes.ts";
import { expectPodsConsistent, type OnCluster, operateOn, removeWorkspaces, writer } from "../pod-platform.ts";

vi.setConfig({ testTimeout: 900_000 });

/** Each makes and ends a sandbox in some seconds, on a node of two cores beside some twenty processes. */
const callers = 1;
const outageMs = 30_000;

describe.runIf(await requireInCluster())("two replicas of each process in a cluster", () => {
  let platform: ClusterPlatform;
  let on: OnCluster;
  let imageId: string;

  beforeAll(async () => {
    platform = await startInCluster({
      replicas: 2,
      settings: {
        ...unlimited,
        ...unlimitedSandboxes,
        SANDGATE_SANDBOX_CPU_REQUEST_MILLIS: "10",
        // One that nobody makes ready is waited for as long as a test takes.
        SANDGATE_READINESS_TIMEOUT_SECONDS: "3600",
      },
    });
    on = operateOn({ ...platform, operator: await openOperator(platform) });
    imageId = await on.register(writer);
  });
  afterAll(() => platform?.stop());

  /** Callers with things of their own, whose requests are counted. */
  function openCallers() {
    const outcomes = countOutcomes(createClient(platform.url));
    return { outcomes, ...createCallers({ facades: [outcomes.client], operator: on.operator, imageId, callers }) };
  }

  async function settle(journal: Journal): Promise<void> {
    await expectPodsConsistent(journal, on);
    await removeWorkspaces(journal, on);
  }

  test("an upgrade by the README's commands fails no request, and leaves sandboxes, their logs and waits alone", async () => {
    const { operator } = on;
    const staying = await operator.provisionReady(imageId);
    const waitedFor = await operator.provision(await on.register(writer, { readiness_port: 1 }));
    const { outcomes, journal, send } = openCallers();
    const done = new AbortController();
    const { signal } = done;
    const { client } = outcomes;
    const paths = [
      "/sandboxes",
      "/sandbox-images",
      `/workspaces/${operator.as.workspace}/members`,
      `/sandbox/monitoring/${staying}?limit=1`,
    ];
    const asking = paths.map((path) => repeat(() => client.get(path, operator.as), 200, signal));
    const ended = { waits: 0, tails: 0 };
    const waiting = repeat(
      async () => {
        const body = { sandbox_id: waitedFor, timeout_seconds: 10 };
        const { error } = (await client.post("/sandboxes/wait", body, operator.as)).body;
        if (error?.code !== "sandbox_not_ready") countFailure(outcomes, `a wait: ${error?.code}`);
        else if (error.message.includes("shutting down")) ended.waits++;
      },
      0,
      signal,
    );
    const lines: number[] = [];
    const tailing = followTail({ outcomes, client, path: `/sandbox/monitoring/${staying}/stream`, on, signal, lines });
    await until(() => expect(lines.length).toBeGreaterThan(3));
    const startedAt = performance.now();
    await send(0, platform.upgrade());
    const seconds = Math.round((performance.now() - startedAt) / 1000);
    const last = lines.length;
    await until(() => expect(lines.length).toBeGreaterThan(last + 10));
    done.abort();
    await Promise.all([...asking, waiting]);
    ended.tails = await tailing;
    process.stderr.write(
      `an upgrade of all took ${seconds} s under ${outcomes.requests} requests; failed: ${JSON.stringify(outcomes.failures)}; ended early, to be sent again: ${JSON.stringify(ended)}\n`,
    );
    const images = ["get", "pods", "--namespace", deployed.sandbox.namespace];
    await until(
      async () => {
        const found = await platform.cluster.kubectl(
          ...images,
          "--output=jsonpath={.items[*].spec.containers[0].image}",
        );
        expect(new Set(found.split(" "))).toEqual(new Set([platform.nextImage]));
      },
      { intervalMs: 500 },
    );
    // Each once and in order, over all ends of the stream.
    expect(lines).toEqual(lines.map((_, index) => (lines[0] ?? 0) + index));
    expect(ended.tails).toBeGreaterThan(0);
    expect(await operator.read(staying)).toMatchObject({ state: "ready" });
    expect(await operator.read(waitedFor)).toMatchObject({ state: "provisioning" });
    for (const id of [staying, waitedFor]) {
      expectStatus(await operator.delete(`/sandboxes/${id}`, operator.as), 204);
      await on.isRemoved(id);
    }
    await settle(journal);
    expect(outcomes.failures).toEqual({});
  });

  test("one of two sandbox processes that is killed for good leaves its work to the other", async () => {
    const { journal, send, outcomes } = openCallers();
    await send(60);
    await send(60, platform.killOne("sandbox"));
    await send(60);
    process.stderr.write(`${outcomes.requests} requests; failed: ${JSON.stringify(outcomes.failures)}\n`);
    // A call that was cut off is made again by the callers, with its Idempotency-Key.
    await expectPodsConsistent(journal, on);
    const ready = (await on.listPods()).length;
    const counts = [
      ...(await platform.readMetrics("sandbox")).matchAll(/^sandgate_sandboxes\{state="(\w+)"\} (\d+)$/gm),
    ];
    expect(counts.map(([, state, count]) => [state, Number(count)]).filter(([, count]) => count !== 0)).toEqual(
      ready > 0 ? [["ready", ready]] : [],
    );
    await settle(journal);
    await platform.start("sandbox");
  });

  test("an API server that is away for 30 s under load costs no sandbox, no line and no request", async () => {
    const { journal, send, outcomes } = openCallers();
    await send(60);
    await send(60, crash(on.own.apiServer, outageMs));
    await send(60);
    process.stderr.write(`${outcomes.requests} requests; failed: ${JSON.stringify(outcomes.failures)}\n`);
    await settle(journal);
    expect(outcomes.failures).toEqual({});
  });

  test("the namespace of sandboxes is deleted, and brought back by the README's commands", async () => {
    const { operator } = on;
    const [running, stopped] = [await operator.provisionReady(imageId), await operator.provisionReady(imageId)];
    await platform.cluster.kubectl("delete", "namespace", deployed.sandboxes, "--wait=false");
    await on.reaches(running, "failed", "runtime_lost");
    expectStatus(await operator.delete(`/sandboxes/${stopped}`, operator.as), 204);
    const accepted = await operator.provision(imageId);
    await platform.restoreNamespace();
    expectStatus(await operator.wait(accepted), 200);
    expect(["failed", "stopped"]).toContain((await operator.read(stopped)).state);
    expectStatus(await operator.delete(`/sandboxes/${accepted}`, operator.as), 204);
    await until(async () => expect(await on.listPods()).toEqual([]), { intervalMs: 500 });
  });
});

/** Sends a request again and again. How each ends is counted by the client. */
async function repeat(request: () => Promise<unknown>, pauseMs: number, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await request().catch(() => {});
    await delay(pauseMs);
  }
}

/**
 * Follows the lines of a `writer` over all ends of the stream, of which it answers how many there were. One that is cut
 * off is a failure.
 */
async function followTail(o: {
  outcomes: Outcomes;
  client: Client;
  path: string;
  on: OnCluster;
  signal: AbortSignal;
  /** The numbers of the lines that have come. */
  lines: number[];
}): Promise<number> {
  let lastId: string | undefined;
  let ends = 0;
  while (!o.signal.aborted) {
    try {
      const url = `${o.client.url}${o.path}?include=logs`;
      const response = await openEventStream(url, { ...o.on.operator.as, lastId, signal: o.signal });
      if (!response.ok) {
        countFailure(o.outcomes, `a tail ${response.status} ${await response.text()}`);
        await delay(500);
        continue;
      }
      for await (const { id, event, data } of readEvents(response)) {
        if (event !== "log") continue;
        lastId = id;
        o.lines.push(Number(data.log.replace("line ", "")));
      }
      ends++;
    } catch (error) {
      if (!o.signal.aborted) countFailure(o.outcomes, `a tail: ${causeOf(error)}`);
    }
  }
  return ends;
}
