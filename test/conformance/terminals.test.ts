import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { request as sendRequest } from "node:http";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectInvalid, expectStatus, isoMilliseconds, uuid } from "./client.ts";
import { openEventStream, readEvents } from "./event-stream.ts";
import { openSocket, type ProcessSocket } from "./process-socket.ts";
import { type Box, killHelper, openBox } from "./sandbox-box.ts";
import { requireSandboxHost } from "./sandbox-host.ts";
import { requireSuiteSettings } from "./target.ts";

const hasSuiteSettings = await requireSuiteSettings();

describe.runIf(await requireSandboxHost())("processes and terminals", () => {
  let box: Box;
  const sockets: ProcessSocket[] = [];

  beforeAll(async () => {
    box = await openBox();
  });
  afterAll(async () => {
    for (const socket of sockets) socket.close();
    await box?.close();
  });

  const pathOf = (id: string, rest = "") => box.path(`processes/${id}${rest}`);
  const get = async (path: string) => expectStatus(await box.target.get(path, box.as()), 200);
  const credential = () => ({ authorization: `Bearer ${box.owner.token}`, "x-workspace-id": box.owner.workspace });

  async function attach(
    id: string,
    query = "",
    headers: Record<string, string> = credential(),
    { url }: { url: string } = box.target,
  ) {
    const socket = await openSocket(`${url}${pathOf(id, `/attach${query}`)}`, { headers });
    sockets.push(socket);
    return socket;
  }
  /** The answer to an upgrade that is refused. */
  async function refusal(id: string, query: string, more: Record<string, string>) {
    const headers = {
      connection: "Upgrade",
      upgrade: "websocket",
      "sec-websocket-version": "13",
      "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
      ...more,
    };
    const sent = sendRequest(`${box.target.url}${pathOf(id, `/attach${query}`)}`, { headers, agent: false }).end();
    const [response] = await Promise.race([once(sent, "response"), once(sent, "upgrade")]);
    if (response.statusCode === 101) throw new Error("it was upgraded");
    let text = "";
    for await (const chunk of response) text += chunk;
    return JSON.parse(text).error.code;
  }
  const write = (id: string, data: string | Buffer, query = "") =>
    fetch(`${box.target.url}${pathOf(id, `/stdin${query}`)}`, {
      method: "POST",
      body: data,
      headers: { ...credential(), "content-type": "application/octet-stream" },
    });
  const output = async (id: string, query = "") => get(pathOf(id, `/output${query}`));
  const textOf = (page: { events: { type: string; data: string; encoding: string }[] }) =>
    Buffer.concat(
      page.events
        .filter(({ type }) => type === "output")
        .map(({ data, encoding }) => Buffer.from(data, encoding as "utf8")),
    ).toString();

  test("a process runs on by itself, and is listed by state and tag", async () => {
    const tag = randomUUID();
    const started = await box.start({ command: ["sleep", "1000"], tag });
    expect(started).toEqual({
      id: uuid,
      pid: expect.any(Number),
      command: ["sleep", "1000"],
      cwd: "/",
      user: null,
      tag,
      pty: null,
      state: "running",
      exit_code: null,
      signal: null,
      timed_out: false,
      stdin_open: false,
      output_bytes: 0,
      retained_from: 0,
      started_at: isoMilliseconds,
      ended_at: null,
    });
    expect(await box.wait(started.id, 1)).toMatchObject({ state: "running" });
    const list = async (query: string) => (await get(box.path(`processes?tag=${tag}${query}`))).processes;
    expect(await list("")).toEqual([await box.read(started.id)]);
    expect(await list("&state=exited,lost")).toEqual([]);
    expect(expectStatus(await box.target.delete(pathOf(started.id), box.as()), 204)).toBeUndefined();
    expect(await list("&state=exited")).toMatchObject([
      { id: started.id, state: "exited", signal: "SIGTERM", exit_code: 143 },
    ]);
    expectStatus(await box.target.delete(pathOf(started.id), box.as()), 204);
    expectInvalid(await box.target.get(box.path("processes?state=dead"), box.as()), "query.state");
  });

  test("signals go by their names, and not to a process that has ended", async () => {
    const { id } = await box.start("trap 'echo got it' USR1; echo ready; while :; do sleep 0.1; done");
    await until(async () => expect(textOf(await output(id))).toBe("ready\n"));
    const signal = (name: string) => box.target.post(pathOf(id, "/signal"), { signal: name }, box.as());
    expectStatus(await signal("SIGUSR1"), 204);
    await until(async () => expect(textOf(await output(id))).toMatch(/^got it$/m));
    expectInvalid(await signal("SIGNONE"), "body.signal");
    expectStatus(await signal("SIGKILL"), 204);
    expect(await box.wait(id)).toMatchObject({ signal: "SIGKILL", exit_code: 137 });
    expectError(await signal("SIGTERM"), "conflict");
  });

  test("timeout, DELETE and SIGKILL end all descendants, those of sessions of their own too", async () => {
    const mark = () => `7${Math.floor(Math.random() * 1e7)}`;
    const command = (seconds: string) =>
      `trap '' TERM; setsid sh -c 'trap "" TERM; (setsid sleep ${seconds} &); sleep ${seconds}' & (sleep ${seconds} &) ; sleep ${seconds}`;
    const count = async (seconds: string) => {
      const { stdout } = await box.exec(["sh", "-c", `ps -o args | grep -c "^[s]leep ${seconds}"; true`]);
      return Number(stdout);
    };
    const ends: ((id: string) => Promise<unknown>)[] = [
      async (id) => expectStatus(await box.target.delete(pathOf(id), box.as()), 204),
      async (id) => expectStatus(await box.target.post(pathOf(id, "/signal"), { signal: "KILL" }, box.as()), 204),
      async (id) => expect(await box.wait(id)).toMatchObject({ timed_out: true }),
    ];
    for (const [index, end] of ends.entries()) {
      const seconds = mark();
      const { id } = await box.start({ command: command(seconds), ...(index === 2 && { timeout_seconds: 2 }) });
      await until(async () => expect(await count(seconds)).toBe(4));
      await end(id);
      await until(async () => expect((await box.read(id)).state).toBe("exited"));
      expect(await count(seconds)).toBe(0);
    }
  });

  test("output is kept, and read once and in order from any offset", async () => {
    const { id } = await box.start("for i in 1 2 3; do echo out $i; echo err $i >&2; done");
    await box.wait(id);
    const all = await output(id);
    expect(all).toMatchObject({ next: 36, process: { state: "exited", output_bytes: 36, retained_from: 0 } });
    const whole = textOf(all);
    expect(whole.length).toBe(36);
    for (const after of [0, 1, 5, 18, 35, 36]) {
      expect(textOf(await output(id, `?after=${after}`))).toBe(whole.slice(after));
    }
    const events = [];
    const url = `${box.target.url}${pathOf(id, "/output")}`;
    for await (const event of readEvents(await openEventStream(url, { ...box.owner, lastId: "30" })))
      events.push(event);
    expect(events.map(({ event }) => event)).toEqual(["start", "output", "exit"]);
    expect(events[1]).toMatchObject({ id: "36", data: { data: whole.slice(30), encoding: "utf8" } });
    expectInvalid(await box.target.get(pathOf(id, "/output?after=-1"), box.as()), "query.after");
  });

  test("the newest MiB is kept of what nobody reads, and what is gone is one gap", async () => {
    const { id } = await box.start("yes 1234567 | head -c 3145728; echo end");
    await box.wait(id);
    const page = await output(id);
    expect(page.events[0]).toMatchObject({ type: "gap", bytes: 3145732 - 1048576 });
    const kept = textOf(page);
    expect([kept.length, kept.endsWith("1234567\nend\n")]).toEqual([1048576, true]);
    expect(page).toMatchObject({ next: 3145732, process: { retained_from: 3145732 - 1048576 } });
  });

  test("the fastest reader paces a process, and loses nothing", { timeout: 300_000 }, async () => {
    const { createHash } = await import("node:crypto");
    const bytes = 256 * 1024 * 1024;
    const command = `head -c ${bytes} /dev/urandom | tee /proc/self/fd/2 | sha256sum > /tmp/sum`;
    const { id } = await box.start({ command: ["sh", "-c", `sleep 1; ${command}`] });
    const url = `${box.target.url}${pathOf(id, "/output")}?encoding=base64`;
    const hash = createHash("sha256");
    let length = 0;
    for await (const { event, data } of readEvents(await openEventStream(url, box.owner))) {
      expect(event).not.toBe("gap");
      if (event !== "output") continue;
      const chunk = Buffer.from(data.data, "base64");
      length += chunk.length;
      hash.update(chunk);
    }
    expect(length).toBe(bytes);
    const { stdout } = await box.exec("cut -d' ' -f1 /tmp/sum");
    expect(hash.digest("hex")).toBe(stdout.trim());
  });

  test("input at an old offset is not doubled; a gap, and input after its end, conflict", async () => {
    const { id } = await box.start({ command: ["cat"], stdin: "first\n", stdin_open: true });
    const taken = async (data: string, query: string) => (await write(id, data, query)).json();
    expect(await taken("second\n", "?offset=6")).toEqual({ offset: 13, closed: false });
    expect(await taken("second\nthird\n", "?offset=6")).toEqual({ offset: 19, closed: false });
    expect((await write(id, "x", "?offset=99")).status).toBe(409);
    expect((await write(id, "x", "?offset=-1")).status).toBe(422);
    expect(await taken("last\n", "?eof=true")).toEqual({ offset: 24, closed: true });
    expect(await box.wait(id)).toMatchObject({ exit_code: 0, stdin_open: false });
    expect(textOf(await output(id))).toBe("first\nsecond\nthird\nlast\n");
    expect((await write(id, "x")).status).toBe(409);
    const large = await write(id, Buffer.alloc(1024 * 1024 + 1));
    expect(large.status).toBe(422);
    expect((await large.json()) as object).toMatchObject({ error: { details: [{ field: "body" }] } });
  });

  test("a full pipe answers with the offset reached", { timeout: 120_000 }, async () => {
    const { id } = await box.start({ command: ["sleep", "1000"], stdin_open: true });
    const answer = (await (await write(id, Buffer.alloc(512 * 1024))).json()) as { offset: number };
    expect(answer.offset).toBeGreaterThan(0);
    expect(answer.offset).toBeLessThan(512 * 1024);
    await box.target.delete(pathOf(id), box.as());
  });

  test("a terminal has the size and the type that it should, and a resize reaches its program", async () => {
    const { id, pty } = await box.start({ command: ["sh"], pty: { cols: 100, rows: 30 } });
    expect(pty).toEqual({ cols: 100, rows: 30 });
    const socket = await attach(id);
    expect(socket.protocol).toBe("sandgate.process.v1");
    socket.type("stty size; echo $TERM; trap 'echo resized $(stty size)' WINCH\n");
    await socket.says(/30 100\r\nxterm-256color/);
    socket.tell({ type: "resize", cols: 120, rows: 40 });
    await until(async () => expect((await box.read(id)).pty).toEqual({ cols: 120, rows: 40 }));
    socket.type("stty size\n");
    await socket.says(/40 120/);
    expectStatus(await box.target.put(pathOf(id, "/pty"), { cols: 80, rows: 24 }, box.as()), 204);
    expect((await box.read(id)).pty).toEqual({ cols: 80, rows: 24 });
    expectInvalid(
      await box.target.put(pathOf(id, "/pty"), { cols: 0, rows: 1001 }, box.as()),
      "body.cols",
      "body.rows",
    );
    socket.type("sleep 1000; echo interrupted $?\n");
    await socket.says(/sleep 1000/);
    await until(() => {
      socket.type("\u0003");
      expect(socket.output()).toMatch(/interrupted 130|\^C/);
    });
    socket.type("exit 7\n");
    expect(await socket.closed).toEqual({ code: 1000, reason: "" });
    expect(socket.frames.at(-1)).toMatchObject({ type: "exit", process: { id, exit_code: 7, state: "exited" } });
    expect(socket.last).toBe("text");
    for (const size of [
      { cols: 0, rows: 1 },
      { cols: 1, rows: 1001 },
    ]) {
      const refused = await box.target.post(box.path("processes"), { command: ["sh"], pty: size }, box.as());
      expect(refused.status).toBe(422);
    }
    const plain = await box.start(["sleep", "1000"]);
    expectError(await box.target.put(pathOf(plain.id, "/pty"), { cols: 80, rows: 24 }, box.as()), "conflict");
    await box.target.delete(pathOf(plain.id), box.as());
  });

  test("a closed socket leaves the terminal running, and another finds all that it wrote", async () => {
    const { id } = await box.start({ command: ["sh"], pty: { cols: 80, rows: 24 } });
    const first = await attach(id);
    first.type("echo one$((1))\n");
    await first.says(/one1/);
    first.close();
    await first.closed;
    const [second, third] = [await attach(id), await attach(id)];
    await second.says(/one1/);
    second.type("echo two$((2))\n");
    for (const socket of [second, third]) await socket.says(/two2/);
    const { output_bytes } = await box.read(id);
    const late = await attach(id, `?after=${output_bytes}`);
    second.type("exit\n");
    for (const socket of [second, third, late]) expect((await socket.closed).code).toBe(1000);
    expect(late.output()).not.toContain("one1");
    expect(late.frames).toMatchObject([{ type: "exit" }]);
    const ended = await attach(id);
    expect((await ended.closed).code).toBe(1000);
    expect(ended.output()).toBe(second.output());
  });

  test("a socket carries both streams apart, much input, its end and signals", async () => {
    const { id } = await box.start({
      command: "wc -c; echo done >&2; trap 'exit 9' USR1; while :; do sleep 0.1; done",
      stdin_open: true,
    });
    const socket = await attach(id);
    for (let i = 0; i < 64; i++) socket.type("x".repeat(64 * 1024));
    socket.tell({ type: "eof" });
    await socket.says(String(64 * 64 * 1024));
    await until(() => expect(socket.output(2)).toBe("done\n"));
    await until(() => {
      socket.tell({ type: "signal", signal: "SIGUSR1" });
      expect(socket.frames).toMatchObject([{ type: "exit", process: { exit_code: 9 } }]);
    });
  });

  test.each<[what: string, frame: string | Uint8Array]>([
    ["another first byte", Buffer.of(1, 65)],
    ["no JSON", "resize"],
    ["an unknown type", '{"type":"close"}'],
    ["a bad size", '{"type":"resize","cols":0,"rows":5}'],
    ["an unknown signal", '{"type":"signal","signal":"SIGX"}'],
  ])("a frame with %s closes the socket, not the process", async (_what, frame) => {
    const { id } = await box.start({ command: ["sh"], pty: { cols: 80, rows: 24 } });
    const socket = await attach(id);
    socket.raw(frame);
    expect(await socket.closed).toEqual({ code: 1008, reason: "validation_error" });
    expect(socket.frames).toEqual([{ type: "end", reason: "validation_error" }]);
    expect((await box.read(id)).state).toBe("running");
    await box.kill(id);
  });

  test("a ticket opens a socket of its process once", async () => {
    const { id } = await box.start({ command: ["sh"], pty: { cols: 80, rows: 24 } });
    const other = await box.start({ command: ["sh"], pty: { cols: 80, rows: 24 } });
    const make = async () => {
      const answer = await box.target.send("POST", pathOf(id, "/tickets"), box.as());
      const { ticket, expires_at } = expectStatus(answer, 201);
      expect(Date.parse(expires_at) - box.target.now()).toBeLessThanOrEqual(30_000);
      return `?ticket=${ticket}`;
    };
    const ticket = await make();
    expect(await refusal(other.id, ticket, {})).toBe("invalid_token");
    expect(await refusal(id, `${ticket.slice(0, -2)}AA`, {})).toBe("invalid_token");
    expect(await refusal(id, "?ticket=x", {})).toBe("invalid_token");
    expect(await refusal(id, "", {})).toBe("unauthenticated");
    // A page of another site is refused, and doesn't spend it.
    expect(await refusal(id, ticket, { origin: "https://evil.example" })).toBe("forbidden");
    const { url } = box.target;
    const socket = await attach(id, ticket, { origin: new URL(url).origin }, { url });
    socket.type("echo by$((1))ticket\n");
    await socket.says(/by1ticket/);
    expect(await refusal(id, ticket, {})).toBe("invalid_token");
    if (hasSuiteSettings) {
      const shared = await attach(id, await make(), { origin: "https://app.example.com" });
      await shared.says(/by1ticket/);
    }
    expectError(await box.target.send("POST", pathOf(randomUUID(), "/tickets"), box.as()), "not_found");
    expectError(await box.target.send("POST", pathOf(id, "/tickets"), box.as(box.stranger)), "sandbox_not_found");
    for (const each of [id, other.id]) await box.kill(each);
    expect((await socket.closed).code).toBe(1000);
  });

  test("streams and sockets end with the credential that opened them, and with the sandbox", async () => {
    const { target, owner } = box;
    const sandboxId = await box.provision();
    const process = expectStatus(
      await target.post(
        `/sandboxes/${sandboxId}/processes`,
        { command: ["sh"], pty: { cols: 80, rows: 24 } },
        box.as(),
      ),
      201,
    );
    const path = `/sandboxes/${sandboxId}/processes/${process.id}`;
    const login = await target.post("/auth/login", { username: owner.username, password: owner.password });
    const { tokens } = expectStatus(login, 200);
    const session = { token: tokens.access_token, workspace: owner.workspace };
    const open = async (token: string, query = "") => {
      const headers = { authorization: `Bearer ${token}`, "x-workspace-id": owner.workspace };
      const socket = await openSocket(`${target.url}${path}/attach${query}`, { headers });
      sockets.push(socket);
      return socket;
    };
    const made = expectStatus(await target.send("POST", `${path}/tickets`, session), 201);
    const byTicket = await openSocket(`${target.url}${path}/attach?ticket=${made.ticket}`);
    const direct = await open(session.token);
    const events = await openEventStream(`${target.url}${path}/output`, session);
    expectStatus(await target.post("/auth/logout", { refresh_token: tokens.refresh_token }), 204);
    for (const socket of [byTicket, direct]) {
      expect(await socket.closed).toEqual({ code: 4001, reason: "invalid_token" });
      expect(socket.frames.at(-1)).toEqual({ type: "end", reason: "invalid_token" });
    }
    const seen = [];
    for await (const event of readEvents(events)) seen.push(event);
    expect(seen.at(-1)).toMatchObject({ event: "end", data: { reason: "invalid_token" } });

    const apiToken = expectStatus(
      await target.post("/api-tokens", { description: "terminal" }, { token: owner.token }),
      201,
    );
    const ofToken = { token: apiToken.token, workspace: owner.workspace };
    const ticket = expectStatus(await target.send("POST", `${path}/tickets`, ofToken), 201).ticket;
    const byTokensTicket = await openSocket(`${target.url}${path}/attach?ticket=${ticket}`);
    expectStatus(await target.delete(`/api-tokens/${apiToken.token}`, { token: owner.token }), 204);
    expect(await byTokensTicket.closed).toEqual({ code: 4001, reason: "invalid_token" });

    const last = await open(owner.token);
    const lastEvents = await openEventStream(`${target.url}${path}/output`, owner);
    expectStatus(await target.delete(`/sandboxes/${sandboxId}`, box.as()), 204);
    expect(await last.closed).toEqual({ code: 4001, reason: "sandbox_stopped" });
    const rest = [];
    for await (const event of readEvents(lastEvents)) rest.push(event);
    expect(rest.at(-1)).toMatchObject({ event: "end", data: { reason: "sandbox_stopped" } });
  });

  test("what the tenant kills of the helper is lost, and the next call works", async () => {
    const sandboxId = await box.provision();
    const path = `/sandboxes/${sandboxId}`;
    const started = expectStatus(
      await box.target.post(`${path}/processes`, { command: ["sleep", "1000"] }, box.as()),
      201,
    );
    // A replica remembers what it has seen itself.
    for (let i = 0; i < 10; i++) {
      expectStatus(await box.target.get(`${path}/processes/${started.id}`, box.as()), 200);
    }
    await box.target.post(`${path}/processes`, { command: killHelper }, box.as());
    await until(async () => {
      const next = await box.target.post(`${path}/exec`, { command: ["echo", "again"] }, box.as());
      expect(expectStatus(next, 200).stdout).toBe("again\n");
      const record = expectStatus(await box.target.get(`${path}/processes/${started.id}`, box.as()), 200);
      expect(record).toMatchObject({ state: "lost", exit_code: null });
    });
    const lost = `${path}/processes/${started.id}`;
    for (const answer of [
      await box.target.post(`${lost}/signal`, { signal: "SIGTERM" }, box.as()),
      await box.target.put(`${lost}/pty`, { cols: 80, rows: 24 }, box.as()),
    ]) {
      expectError(answer, "conflict");
      expect(answer.body.error.message).toBe("The process has ended.");
    }
    const written = await fetch(`${box.target.url}${lost}/stdin`, {
      method: "POST",
      body: "input",
      headers: { ...credential(), "content-type": "application/octet-stream" },
    });
    expect(written.status).toBe(409);
    expectStatus(await box.target.post(`${lost}/tickets`, undefined, box.as()), 201);
    expectStatus(await box.target.delete(lost, box.as()), 204);
  });
});
