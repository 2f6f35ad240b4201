import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectInvalid, expectStatus, isoMicroseconds, uniqueName } from "./client.ts";
import { openEventStream, readEvents, type StreamEvent } from "./event-stream.ts";
import { type HostImage, openSandboxHost, requireSandboxHost, type SandboxHost, unseen } from "./sandbox-host.ts";
import { openTarget, type Target, type Tenant } from "./target.ts";

interface LogEntry {
  timestamp: string;
  stream: string;
  log: string;
}

/** Writes ten lines to each stream, then five a second. */
const script = `
i=0
while [ $i -lt 10 ]; do
  echo "out $i"
  echo "err $i" >&2
  i=$((i + 1))
done
while :; do
  echo "tick $i"
  i=$((i + 1))
  sleep 0.2
done
`;

describe.runIf(await requireSandboxHost())(
  "monitoring",
  () => {
    let target: Target;
    let owner: Tenant;
    let stranger: Tenant;
    let host: SandboxHost;
    let image: HostImage;
    let imageId: string;
    let id: string;
    let name: string;

    const as = (tenant: Tenant) => ({ token: tenant.token, workspace: tenant.workspace });
    const path = (query = "", which = id) => `/sandbox/monitoring/${which}${query}`;
    const query = async (text = "", which = id) => expectStatus(await target.get(path(text, which), as(owner)), 200);

    /** An image whose sandboxes never become ready. */
    async function registerSlow(): Promise<string> {
      const body = { name: "slow", image: image.reference, is_default: true, memory_mb: 256, readiness_port: 9 };
      return expectStatus(await target.post("/sandbox-images", body, as(target.operator)), 201).id;
    }

    beforeAll(async () => {
      host = openSandboxHost();
      image = await host.makeImage({ command: ["/bin/sh", "/run"], files: { "/run": script } });
      target = await openTarget();
      [owner, stranger] = [await target.newTenant(), await target.newTenant()];
      const body = { name: "talker", image: image.reference, is_default: true, memory_mb: 256 };
      imageId = expectStatus(await target.post("/sandbox-images", body, as(target.operator)), 201).id;
      name = uniqueName("talker");
      const provisioned = await target.post("/sandboxes/provision", { image_id: imageId, name }, as(owner));
      id = expectStatus(provisioned, 201).id;
      expectStatus(await target.post("/sandboxes/wait", { sandbox_id: id, timeout_seconds: 240 }, as(owner)), 200);
      await until(async () => expect((await query()).logs.length).toBeGreaterThan(20), { intervalMs: 200 });
    });
    afterAll(async () => {
      if (id) await target.delete(`/sandboxes/${id}`, as(owner));
      await target?.close();
      await image?.remove();
    });

    test("takes the name instead of the id", async () => {
      expect((await query("?include=metrics", name)).sandbox_id).toBe(id);
    });

    test("since is inclusive and until is not", async () => {
      const { logs }: { logs: LogEntry[] } = await query();
      const [first, second, third] = [logs[5], logs[6], logs[logs.length - 1]];
      if (!first || !second || !third) throw new Error("there are more lines than that");
      const window = await query(`?since=${second.timestamp}&until=${third.timestamp}`);
      expect(window.logs).toEqual(
        logs.filter((entry) => entry.timestamp >= second.timestamp && entry.timestamp < third.timestamp),
      );
      expect((await query(`?until=${first.timestamp}&include=logs`)).logs.length).toBeLessThanOrEqual(5);
      expect((await query("?since=2020-01-01T00:00:00Z&until=2020-01-02T00:00:00Z")).logs).toEqual([]);
      // No offset means UTC; another offset means itself.
      expect((await query(`?since=${second.timestamp.replace("Z", "")}&until=${third.timestamp}`)).logs).toEqual(
        window.logs,
      );
      expect((await query("?since=&until=&stream=")).logs.length).toBeGreaterThan(0);
    });

    test("refuses invalid queries", async () => {
      const now = new Date().toISOString();
      expectInvalid(await target.get(path("?stream=stdin"), as(owner)), "query.stream");
      for (const include of ["", "logs,", "cpu", "logs,cpu"]) {
        expectInvalid(await target.get(path(`?include=${include}`), as(owner)), "query.include");
      }
      for (const since of ["yesterday", "2026-01-01", "2026-13-01T00:00:00Z"]) {
        expectInvalid(await target.get(path(`?since=${since}`), as(owner)), "query.since");
      }
      expectInvalid(await target.get(path(`?since=${now}&until=${now}`), as(owner)), "query.since");
      expectInvalid(
        await target.get(path("?since=x&until=y&limit=0&stream=z"), as(owner)),
        "query.since",
        "query.until",
        "query.limit",
        "query.stream",
      );
    });

    test("another workspace's sandbox looks like one that doesn't exist", async () => {
      const answers = [
        await target.get(path(), as(stranger)),
        await target.get(path("", name), as(stranger)),
        await target.get(path("", "no-such"), as(stranger)),
      ];
      for (const answer of answers) {
        expectError(answer, "sandbox_not_found");
        expect(answer.body.error.message).toBe(answers[2]?.body.error.message);
      }
      expectError(await target.get(path(), { token: owner.token }), "workspace_required");
      expectError(await target.get(path()), "unauthenticated");
    });

    test("a sandbox that is provisioning can be monitored", async () => {
      const made = expectStatus(
        await target.post("/sandboxes/provision", { image_id: await registerSlow() }, as(owner)),
        201,
      );
      expect(await query("", made.id)).toMatchObject({ sandbox_id: made.id, sandbox_name: made.name });
      expectStatus(await target.delete(`/sandboxes/${made.id}`, as(owner)), 204);
    });

    test("logs are kept to the last line after the sandbox has ended", async () => {
      const body = { name: "brief", is_default: true, memory_mb: 256 };
      const brief = await host.makeImage({
        command: ["/bin/sh", "-c", "echo first; sleep 1; echo last >&2; exit 3"],
      });
      const made = await target.post("/sandbox-images", { ...body, image: brief.reference }, as(target.operator));
      const provisioned = await target.post(
        "/sandboxes/provision",
        { image_id: expectStatus(made, 201).id },
        as(owner),
      );
      const { id: briefId } = expectStatus(provisioned, 201);
      await expect.poll(async () => (await target.get(`/sandboxes/${briefId}`, as(owner))).body.state).toBe("failed");
      await expect
        .poll(async () => (await query("", briefId)).logs.map((entry: LogEntry) => [entry.stream, entry.log]))
        .toEqual([
          ["stdout", "first"],
          ["stderr", "last"],
        ]);
      await brief.remove();
    });

    test("a container that exits at once is on the timeline and its logs are kept, every time", async ({ skip }) => {
      const { list } = host;
      if (!list) return skip(unseen);
      const quick = await host.makeImage({ command: ["echo", "last words"] });
      const body = { name: "quick", image: quick.reference, is_default: true, memory_mb: 256 };
      const image_id = expectStatus(await target.post("/sandbox-images", body, as(target.operator)), 201).id;
      const ids: string[] = await Promise.all(
        Array.from({ length: 18 }, async () => {
          return expectStatus(await target.post("/sandboxes/provision", { image_id }, as(owner)), 201).id;
        }),
      );
      const incomplete = async (sandboxId: string) => {
        const sandbox = await until(
          async () => {
            const read = expectStatus(await target.get(`/sandboxes/${sandboxId}`, as(owner)), 200);
            expect(read.state).toBe("failed");
            return read;
          },
          { intervalMs: 500 },
        );
        const phases = sandbox.timeline.map((entry: { phase: string }) => entry.phase);
        expect(phases).toEqual(expect.arrayContaining(["created", "started", "stopped"]));
        await until(async () => expect(await list({ sandbox: sandboxId })).toEqual([]), { intervalMs: 500 });
        const logs: LogEntry[] = (await query("", sandboxId)).logs;
        return logs.map(({ log }) => log).join() === "last words" ? [] : [sandboxId];
      };
      expect((await Promise.all(ids.map(incomplete))).flat()).toEqual([]);
      await quick.remove();
    });

    test("the live stream resumes where it stopped, without a gap or a repetition", async () => {
      const first = await readStream(8);
      const resumed = await readStream(8, first.at(-1)?.id);
      const ticks = [...first, ...resumed]
        .filter((event) => event.event === "log")
        .map((event) => Number(event.data.log.replace("tick ", "")));
      expect(ticks.length).toBeGreaterThan(8);
      for (const [index, tick] of ticks.entries()) {
        expect(tick).toBe((ticks[0] ?? 0) + index);
      }
      expect(first[0]?.data).toMatchObject({ timestamp: expect.stringMatching(/Z$/) });
    });

    test("the live stream reports errors before it starts as every route does", async () => {
      expectError(await target.get(path("/stream"), as(stranger)), "sandbox_not_found");
      expectError(await target.get(path("/stream")), "unauthenticated");
      const answer = await target.get(path("/stream"), { ...as(owner), headers: { "last-event-id": "nonsense" } });
      expectInvalid(answer, "header.last-event-id");
    });

    test("the live stream ends with the session", async () => {
      const { tokens } = expectStatus(
        await target.post("/auth/login", { username: owner.username, password: owner.password }),
        200,
      );
      const { workspace } = owner;
      const response = await openEventStream(target.url + path("/stream"), { token: tokens.access_token, workspace });
      expect(response.status).toBe(200);
      const ended = await readUntilLog(response);
      expectStatus(await target.post("/auth/logout", { refresh_token: tokens.refresh_token }), 204);
      await ended();
    });

    test("a wait and a live stream end when their member is removed, and others' go on", async () => {
      const member = await target.newTenant();
      const members = `/workspaces/${owner.workspace}/members`;
      const body = { username: member.username, role: "member" };
      const { user_id } = expectStatus(await target.post(members, body, as(owner)), 201);
      const visiting = { token: member.token, workspace: owner.workspace };
      const provisioned = await target.post("/sandboxes/provision", { image_id: await registerSlow() }, as(owner));
      const slow: string = expectStatus(provisioned, 201).id;

      const waiting = target.post("/sandboxes/wait", { sandbox_id: slow, timeout_seconds: 240 }, visiting);
      const stream = await openEventStream(target.url + path("/stream"), visiting);
      expect(stream.status).toBe(200);
      const ended = await readUntilLog(stream);
      const others = readStream(25);
      expectStatus(await target.delete(`${members}/${user_id}`, as(owner)), 204);
      expectError(await waiting, "workspace_forbidden");
      await ended();
      expect(await others).toHaveLength(25);
      expectStatus(await target.delete(`/sandboxes/${slow}`, as(owner)), 204);
    });

    // Last, since a sample is taken only every 5 s.
    describe("with several samples", () => {
      beforeAll(async () => {
        await until(async () => expect((await query()).metrics.length).toBeGreaterThan(3), { intervalMs: 200 });
      });

      test("answers both streams with the engine's timestamps, oldest first, and samples", async () => {
        const body = await query("?limit=10000");
        expect(body).toMatchObject({ sandbox_id: id, sandbox_name: name });
        expect(Object.keys(body).sort()).toEqual(["logs", "metrics", "sandbox_id", "sandbox_name"]);
        const logs: LogEntry[] = body.logs;
        for (const entry of logs) {
          expect(entry).toEqual({
            timestamp: isoMicroseconds,
            stream: expect.stringMatching(/^(stdout|stderr)$/),
            log: expect.any(String),
          });
        }
        const of = (stream: string) => logs.filter((entry) => entry.stream === stream).map((entry) => entry.log);
        expect(of("stdout").slice(0, 11)).toEqual([...Array.from({ length: 10 }, (_, i) => `out ${i}`), "tick 10"]);
        expect(of("stderr")).toEqual(Array.from({ length: 10 }, (_, i) => `err ${i}`));
        expect(logs.map((entry) => entry.timestamp)).toEqual(logs.map((entry) => entry.timestamp).sort());
        for (const point of body.metrics) {
          expect(Object.keys(point).sort()).toEqual(["cpu_usage", "memory_usage", "timestamp"]);
          expect(point.timestamp).toMatch(/Z$/);
          expect(point.memory_usage).toBeGreaterThan(0);
        }
        const cpu: number[] = body.metrics.map((point: { cpu_usage: number }) => point.cpu_usage);
        expect(cpu).toEqual([...cpu].sort((a, b) => a - b));
        expect(cpu.at(-1)).toBeGreaterThan(0);
      });

      test("limit keeps the newest lines and samples", async () => {
        // Everything before a stored line is stored too; what was written before now may not be.
        const { logs, metrics } = await query();
        const [until] = [logs.at(-1).timestamp, metrics.at(-1).timestamp].sort();
        const all = await query(`?until=${until}`);
        const some = await query(`?until=${until}&limit=2`);
        expect(all.metrics.length).toBeGreaterThan(2);
        expect(some.logs).toEqual(all.logs.slice(-2));
        expect(some.metrics).toEqual(all.metrics.slice(-2));
        for (const limit of ["0", "10001", "1.5", "x", "-1"]) {
          expectInvalid(await target.get(path(`?limit=${limit}`), as(owner)), "query.limit");
        }
        expectStatus(await target.get(path("?limit=10000"), as(owner)), 200);
      });

      test("stream and include filter", async () => {
        const stderr = await query("?stream=stderr");
        expect(stderr.logs).toHaveLength(10);
        expect(stderr.metrics.length).toBeGreaterThan(0);
        expect(await query("?include=logs")).toMatchObject({ metrics: [] });
        expect((await query("?include=metrics")).logs).toEqual([]);
        expect((await query("?include=metrics,logs")).logs.length).toBeGreaterThan(0);
      });
    });

    /** Resolves with the first log line that comes, with a function that resolves when the server ends the stream. */
    async function readUntilLog(response: Response): Promise<() => Promise<void>> {
      const events = readEvents(response);
      for (let next = await events.next(); next.value?.event !== "log"; next = await events.next()) {
        if (next.done) throw new Error("the stream ended without a log line");
      }
      return async () => {
        while (!(await events.next()).done);
      };
    }

    async function readStream(count: number, lastId?: string): Promise<StreamEvent[]> {
      const { token, workspace } = owner;
      const response = await openEventStream(target.url + path("/stream"), { token, workspace, lastId });
      expect(response.headers.get("content-type")).toMatch(/^text\/event-stream/);
      expect(response.headers.get("x-request-id")).toMatch(/\S/);
      const events: StreamEvent[] = [];
      for await (const event of readEvents(response)) {
        events.push(event);
        if (events.length === count) break;
      }
      return events;
    }
  },
  90_000,
);
