import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { Agent, type IncomingMessage, request } from "node:http";
import { openTestEngine, probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { type Client, createClient, expectError, expectStatus } from "../conformance/client.ts";
import { findDefaultImage, startPlatform, type TestPlatform } from "../platform/local.ts";

vi.setConfig({ testTimeout: 300_000 });

describe.runIf(await requireServer("docker", probeEngine))("stopping and starting the platform", () => {
  let platform: TestPlatform;
  let client: Client;
  let workspace: string;
  let defaultImageId: string;

  beforeAll(async () => {
    platform = await startPlatform();
    client = createClient(platform.url);
    const token = await signIn();
    const { workspaces } = expectStatus(await client.get("/workspaces", { token }), 200);
    workspace = workspaces[0].id;
    const { images } = expectStatus(await client.get("/sandbox-images", { token, workspace }), 200);
    defaultImageId = images[0].id;
  });

  afterAll(() => platform.stop());

  async function signIn(): Promise<string> {
    return expectStatus(await client.post("/auth/login", platform.admin), 200).tokens.access_token;
  }

  async function provision(imageId: string): Promise<string> {
    const token = await signIn();
    const answer = await client.post("/sandboxes/provision", { image_id: imageId }, { token, workspace });
    return expectStatus(answer, 201).id;
  }

  const wait = (sandboxId: string, token: string) =>
    client.post("/sandboxes/wait", { sandbox_id: sandboxId }, { token, workspace });

  const read = async (sandboxId: string) =>
    expectStatus(await client.get(`/sandboxes/${sandboxId}`, { token: await signIn(), workspace }), 200);

  const isRunning = async (sandboxId: string) =>
    (await openTestEngine().getContainer(`sandgate-${sandboxId}`).inspect()).State.Running;

  test("a stop leaves sandboxes running and ends open waits", async () => {
    const running = await provision(defaultImageId);
    expectStatus(await wait(running, await signIn()), 200);
    const deafImage = { name: "deaf", image: await findDefaultImage(), is_default: true, readiness_port: 9 };
    const created = await client.post("/sandbox-images", deafImage, { token: await signIn(), workspace });
    const starting = await provision(expectStatus(created, 201).id);
    const waited = wait(starting, await signIn());
    // The wait is open once a request sent after it was answered.
    await read(starting);

    expect(await platform.terminate(), platform.process.output()).toBe(0);
    expect((await waited).body.error.code).toBe("sandbox_not_ready");
    expect(await isRunning(running)).toBe(true);

    await platform.start();
    expect(await read(running)).toMatchObject({ state: "ready" });
    expect(await read(starting)).toMatchObject({ state: "provisioning" });
    expect(await isRunning(running)).toBe(true);
  });

  test("what ends a process that was started before a restart names its program", async () => {
    const id = await provision(defaultImageId);
    const before = { token: await signIn(), workspace };
    expectStatus(await wait(id, before.token), 200);
    const processes = `/sandboxes/${id}/processes`;
    const started = expectStatus(await client.post(processes, { command: ["sleep", "1000"] }, before), 201);
    expect(await platform.terminate(), platform.process.output()).toBe(0);
    await platform.start();
    const as = { token: await signIn(), workspace };
    expectStatus(await client.delete(`${processes}/${started.id}`, as), 204);
    const ended = async () =>
      expectStatus(await client.get(`/workspaces/${workspace}/audit-log?action=process.end`, as), 200).entries;
    const target = { type: "sandbox", id, process_id: started.id, program: "sleep" };
    await expect.poll(ended).toMatchObject([{ target }]);
  });

  test("a stop answers the requests in progress", async () => {
    const body = JSON.stringify(platform.admin);
    const slow = request(`${platform.url}/auth/login`, {
      method: "POST",
      agent: new Agent({ keepAlive: true }),
      headers: { "content-type": "application/json", "content-length": body.length, expect: "100-continue" },
    });
    slow.flushHeaders();
    await once(slow, "continue");

    const terminated = platform.terminate();
    await expect.poll(() => fetch(platform.url).then(() => "listening", String)).toContain("fetch failed");
    slow.end(body);
    const [answer] = (await once(slow, "response")) as [IncomingMessage];
    answer.resume();
    expect(answer.statusCode).toBe(200);
    expect(answer.headers.connection).toBe("close");
    expect(await terminated).toBe(0);
    await platform.start();
  });

  test("a crash at any time loses no sandbox that was accepted", async () => {
    const accepted = await provision(defaultImageId);
    await platform.kill();
    await platform.start();
    expect(expectStatus(await wait(accepted, await signIn()), 200)).toMatchObject({ id: accepted, state: "ready" });
    const options = { token: await signIn(), workspace };
    expectStatus(await client.delete(`/sandboxes/${accepted}`, options), 204);
    await expect.poll(async () => (await read(accepted)).state).toBe("stopped");
  });

  test.each([
    ["a stop", () => platform.terminate()],
    ["a crash", () => platform.kill()],
  ])("%s leaves commands running, to be listed, read, written to and waited for", async (_, end) => {
    const id = await provision(defaultImageId);
    const token = await signIn();
    expectStatus(await wait(id, token), 200);
    const { token: apiToken } = expectStatus(await client.post("/api-tokens", { description: "a" }, { token }), 201);
    const as = { token: apiToken, workspace };
    const at = (rest = "") => `/sandboxes/${id}/processes${rest}`;
    const headers = { "idempotency-key": randomUUID() };
    const body = { command: "echo before; read line; echo $line; sleep 1000", stdin_open: true, tag: "kept" };
    const started = expectStatus(await client.post(at(), body, { ...as, headers }), 201);
    const ended = expectStatus(await client.post(`/sandboxes/${id}/exec`, { command: "exit 7" }, as), 200);
    const isBefore = async () =>
      expect(expectStatus(await client.get(at(`/${started.id}`), as), 200).output_bytes).toBe("before\n".length);
    await vi.waitUntil(
      () =>
        isBefore().then(
          () => true,
          () => false,
        ),
      { timeout: 60_000 },
    );

    await end();
    await platform.start();

    const { processes } = expectStatus(await client.get(at("?tag=kept"), as), 200);
    expect(processes).toEqual([expect.objectContaining({ id: started.id, pid: started.pid, state: "running" })]);
    expect(expectStatus(await client.get(at(`/${ended.id}`), as), 200)).toMatchObject({
      state: "exited",
      exit_code: 7,
    });
    // The key is still known.
    expect(expectStatus(await client.post(at(), body, { ...as, headers }), 201).id).toBe(started.id);
    expectError(await client.post(at(), { ...body, command: "true" }, { ...as, headers }), "conflict");
    const typed = await client.send("POST", at(`/${started.id}/stdin`), {
      ...as,
      raw: "after\n",
      headers: { "content-type": "application/octet-stream" },
    });
    expect(expectStatus(typed, 200)).toMatchObject({ offset: 6 });
    const output = expectStatus(await client.get(at(`/${started.id}/output?after=7&wait_seconds=30`), as), 200);
    expect(output.events.map(({ data }: { data: string }) => data).join("")).toBe("after\n");
    expectStatus(await client.delete(at(`/${started.id}`), as), 204);
    expectStatus(await client.delete(`/sandboxes/${id}`, as), 204);
  });
});
