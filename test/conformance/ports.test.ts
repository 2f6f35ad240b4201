import { once } from "node:events";
import { Agent, type IncomingMessage, request } from "node:http";
import { connect } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectInvalid, expectStatus } from "./client.ts";
import { createPreviewClient, type PreviewClient } from "./preview-client.ts";
import { type Box, openBox } from "./sandbox-box.ts";
import { requireSandboxHost } from "./sandbox-host.ts";

// Node's own client takes headers too, which its types don't have.
const WebSocketClient = WebSocket as unknown as new (
  address: string,
  options: { headers: Record<string, string> },
) => WebSocket;

/** Answers a request on its standard streams: with the request itself, unless the path says otherwise. */
const answer = String.raw`
IFS= read -r first
head="$(printf %s "$first" | tr -d '\r')"
set -- $head
length=0
while IFS= read -r line; do
  line="$(printf %s "$line" | tr -d '\r')"
  [ -z "$line" ] && break
  head="$head
$line"
  case "$line" in Content-Length:*) length="$(echo "$line" | tr -dc 0-9)" ;; esac
done
case "$2" in
  /cookies*)
    printf 'HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Domain=example.com; Path=/x\r\nSet-Cookie: __Host-sandgate=evil; Secure; Path=/\r\n'
    printf 'Clear-Site-Data: "*"\r\nStrict-Transport-Security: max-age=1\r\nService-Worker-Allowed: /\r\n'
    printf 'Access-Control-Allow-Origin: *\r\nConnection: X-Named\r\nX-Named: 1\r\nX-Kept: 1\r\nContent-Length: 2\r\n\r\nok'
    ;;
  /lengths*) printf 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok' ;;
  /both*) printf 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n' ;;
  /broken*) printf 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc' ;;
  /redirect*) printf 'HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/there\r\nContent-Length: 0\r\n\r\n' ;;
  /slow*) printf 'HTTP/1.1 200 OK\r\n\r\nfirst\n'; read -r rest < /tmp/go; echo "$rest" ;;
  /silent*) sleep 1000 ;;
  /socket*) printf 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhello'; exec cat ;;
  *)
    body="$(head -c "$length")"
    text="$head

$body"
    printf 'HTTP/1.1 200 OK\r\nContent-Length: %s\r\n\r\n%s' "$(printf %s "$text" | wc -c)" "$text"
    ;;
esac
`;
const servers = `
mkdir -p /www
echo loopback > /www/index.html
httpd -p 127.0.0.1:8081 -h /www
mkfifo /tmp/go
nc -ll -p 3000 -e /bin/sh /answer &
exec sleep 100000
`;

describe.runIf(await requireSandboxHost())("ports", () => {
  let box: Box;

  beforeAll(async () => {
    box = await openBox({ files: { "/answer": answer, "/servers": servers } });
    await box.start({ command: ["sh", "/servers"], tag: "servers" });
    for (const port of [3000, 8081]) await until(async () => expect(await http(port)).toMatchObject({ status: 200 }));
  });
  afterAll(() => box?.close());

  const headersOf = (tenant = box.owner) => ({
    authorization: `Bearer ${tenant.token}`,
    "x-workspace-id": tenant.workspace,
  });
  /** A request to a port, with the credential of a program. */
  const http = (port: number | string, path = "/", o: RequestInit = {}) =>
    fetch(`${box.target.url}/sandboxes/${box.id}/ports/${port}/http${path}`, {
      redirect: "manual",
      ...o,
      headers: { ...headersOf(), ...o.headers },
    });
  /** Sends a request as bytes, and returns what comes until the connection ends. */
  async function exchange(lines: readonly string[], body = ""): Promise<string> {
    const { hostname, port } = new URL(box.target.url);
    const socket = connect(Number(port), hostname);
    const headers = Object.entries(headersOf()).map(([name, value]) => `${name}: ${value}`);
    const [first, ...others] = lines;
    socket.write([first, `Host: ${hostname}`, ...headers, ...others, "", body].join("\r\n"), "latin1");
    let text = "";
    socket.on("data", (data) => {
      text += data.toString("latin1");
    });
    await once(socket, "close");
    return text;
  }

  test("listening ports are listed with the process that they belong to", async () => {
    const { ports } = expectStatus(await box.target.get(box.path("listening"), box.as()), 200);
    const process_id = (
      expectStatus(await box.target.get(box.path("processes?tag=servers"), box.as()), 200) as {
        processes: { id: string }[];
      }
    ).processes[0]?.id;
    expect(ports).toEqual(
      expect.arrayContaining([
        { port: 3000, address: expect.any(String), process_id },
        { port: 8081, address: "127.0.0.1", process_id },
      ]),
    );
  });

  test("57: a server on 127.0.0.1 alone is reached, and none is an upstream error", async () => {
    expect(await (await http(8081)).text()).toBe("loopback\n");
    expect(await (await http(8081, "/index.html")).text()).toBe("loopback\n");
    expectError(await box.target.get(box.path("ports/9/http/"), box.as()), "upstream_error");
    for (const port of ["0", "65536", "80a", "-1", "080"]) {
      expectInvalid(await box.target.get(box.path(`ports/${port}/http/`), box.as()), "path.port");
    }
  });

  test("58: the target is the sandbox, whatever the request says", async () => {
    const redirect = await http(3000, "/redirect");
    expect([redirect.status, redirect.headers.get("location")]).toEqual([302, "http://10.0.0.1/there"]);
    const path = `/sandboxes/${box.id}/ports/3000/http//10.0.0.1/%2e%2e/../a?b=%20`;
    expect(await exchange([`GET ${path} HTTP/1.1`, "Connection: close"])).toContain(
      "\r\n\r\nGET //10.0.0.1/%2e%2e/../a?b=%20 HTTP/1.1\nHost: localhost:3000\n",
    );
    const stranger = await http(3000, "/", { headers: headersOf(box.stranger) });
    expect(stranger.status).toBe(404);
    expect(await stranger.json()).toMatchObject({ error: { code: "sandbox_not_found" } });
  });

  test("59: what is of one connection is dropped both ways, and what can be read in two ways is refused", async () => {
    const path = `/sandboxes/${box.id}/ports/3000/http/`;
    const echoed = await exchange([`GET ${path} HTTP/1.1`, "Connection: close, X-Named", "X-Named: 1", "TE: trailers"]);
    expect(echoed).toMatch(/^HTTP\/1\.1 200 /);
    expect(echoed).not.toMatch(/X-Named|\nTE:/);
    const answered = await http(3000, "/cookies");
    expect([answered.headers.get("x-kept"), answered.headers.get("x-named")]).toEqual(["1", null]);
    for (const [lines, body] of [
      [["Content-Length: 4", "Transfer-Encoding: chunked"], "0\r\n\r\n"],
      [["Content-Length: 4", "Content-Length: 5"], "abcde"],
      [["Transfer-Encoding: gzip, chunked"], "0\r\n\r\n"],
      [["X-A: 1\rContent-Length: 4"], "abcd"],
    ] as const) {
      expect(await exchange([`POST ${path} HTTP/1.1`, "Connection: close", ...lines], body)).toMatch(/^HTTP\/1\.1 4/);
    }
    for (const bad of ["/lengths", "/both"]) expect((await http(3000, bad)).status, bad).toBe(502);
  });

  test("60 and 65: who forwarded is said by us, and the bearer stays here", async () => {
    const headers = {
      "x-forwarded-for": "10.9.9.9",
      "x-forwarded-host": "evil.example",
      "x-forwarded-port": "1",
      forwarded: "for=10.9.9.9",
      cookie: "theirs=1",
    };
    const text = await (await http(3000, "/", { headers })).text();
    expect(text).toContain("\nHost: localhost:3000\n");
    expect(text).toMatch(/\nX-Forwarded-For: [0-9a-f.:]+\n/);
    expect(text).toMatch(/\nX-Forwarded-Proto: https?\n/);
    expect(text).toMatch(/\ncookie: theirs=1\n/i);
    expect(text).not.toMatch(/10\.9\.9\.9|evil|bearer|workspace|X-Forwarded-Port/i);
  });

  test("65: an answer is sandboxed and changes nothing for the API's origin", async () => {
    const { headers } = await http(3000, "/cookies");
    expect(headers.get("content-security-policy")).toBe("sandbox");
    for (const name of [
      "set-cookie",
      "clear-site-data",
      "strict-transport-security",
      "service-worker-allowed",
      "access-control-allow-origin",
    ]) {
      expect(headers.get(name), name).toBeNull();
    }
  });

  test("61: a body streams both ways, and an answer that breaks off is broken off", async () => {
    const slow = (await http(3000, "/slow")).body?.getReader();
    expect(Buffer.from((await slow?.read())?.value ?? "").toString()).toBe("first\n");
    await box.exec("echo second > /tmp/go");
    expect(Buffer.from((await slow?.read())?.value ?? "").toString()).toBe("second\n");
    await expect(http(3000, "/broken").then((response) => response.text())).rejects.toThrow();
    const large = "x".repeat(3_000_000);
    const echoed = await http(3000, "/", { method: "PUT", body: large });
    expect((await echoed.text()).endsWith(`\n\n${large}`)).toBe(true);
  });

  test("a connection takes further requests once an answer has come whole", async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const reused: boolean[] = [];
    const { url } = box.target;
    for (const port of [8081, 3000, 8081]) {
      const sent = request(`${url}/sandboxes/${box.id}/ports/${port}/http/`, {
        agent,
        headers: headersOf(),
      }).end();
      const [answer]: IncomingMessage[] = await once(sent, "response");
      await answer?.toArray();
      await delay(50);
      reused.push(sent.reusedSocket);
    }
    agent.destroy();
    expect(reused).toEqual([false, true, true]);
  });

  test("a request that is open ends with its sandbox, whose ports are then a conflict", async () => {
    const id = await box.provision();
    const command = "mkfifo /tmp/go; exec nc -ll -p 3000 -e /bin/sh /answer";
    expectStatus(await box.target.post(`/sandboxes/${id}/processes`, { command }, box.as()), 201);
    const url = `${box.target.url}/sandboxes/${id}/ports/3000/http`;
    await until(async () => expect((await fetch(url, { headers: headersOf() })).status).toBe(200));
    const open = await fetch(`${url}/slow`, { headers: headersOf() });
    const unanswered = fetch(`${url}/silent`, { headers: headersOf() });
    expectStatus(await box.target.delete(`/sandboxes/${id}`, box.as()), 204);
    await expect(open.text()).rejects.toThrow();
    expect((await unanswered).status).toBe(409);
    expectError(await box.target.get(`/sandboxes/${id}/ports/3000/http/`, box.as()), "conflict");
  });

  describe("of a preview", () => {
    // biome-ignore lint/suspicious/noExplicitAny: the record is what the test expects it to be
    async function make(body: object = {}): Promise<{ record: any; client: PreviewClient }> {
      const record = expectStatus(await box.target.post(box.path("ports"), { port: 3000, ...body }, box.as()), 201);
      const headers = { "x-sandgate-token": record.token };
      return { record, client: createPreviewClient({ via: box.target.url, url: record.url, headers }) };
    }
    const revoke = async (id: string) => expectStatus(await box.target.delete(box.path(`ports/${id}`), box.as()), 204);
    const codeOf = ({ text }: { text: string }) => JSON.parse(text).error.code;

    test("51, 52, 54 and 64: its host leads to the sandbox alone, and only its token opens it", async () => {
      const { record, client } = await make({ port: 8081 });
      expect(await client.get()).toMatchObject({ status: 200, text: "loopback\n" });
      // Of the API, and of no server in the sandbox.
      for (const path of ["/healthz", "/openapi.json", "/sandboxes"]) expect((await client.get(path)).status).toBe(404);
      const without = createPreviewClient({ via: box.target.url, url: record.url });
      const private401 = await without.get();
      expect([private401.status, codeOf(private401), private401.headers["www-authenticate"]]).toEqual([
        401,
        "unauthenticated",
        expect.stringMatching(/^Bearer/),
      ]);
      expect(codeOf(await without.get("/", headersOf()))).toBe("unauthenticated");
      expect(codeOf(await without.get("/", { "x-sandgate-token": "sgp_x" }))).toBe("invalid_token");
      const { socket, answer } = await without.upgrade("/socket");
      expect(answer).toMatch(/^HTTP\/1\.1 401 [\s\S]*"unauthenticated"/);
      socket.destroy();
      const other = await make();
      expect(codeOf(await without.get("/", { "x-sandgate-token": other.record.token }))).toBe("invalid_token");
      expect((await box.target.get("/workspaces", { token: record.token })).status).toBe(401);
      const url = record.url.replace(/[a-z2-7]{26}/, "a".repeat(26));
      const nobody = createPreviewClient({ via: box.target.url, url });
      expect(codeOf(await nobody.get())).toBe("not_found");
      expect((await nobody.get("/healthz")).status).toBe(404);
      expect((await box.target.get(`/sandboxes/${box.id}/ports/${record.id}`, box.as())).status).toBe(200);
    });

    test("53 and 56: a link gives a browser a cookie, with which other sites' pages do nothing", async () => {
      const { record } = await make();
      const browser = createPreviewClient({ via: box.target.url, url: record.url });
      const made = await box.target.post(box.path(`ports/${record.id}/links`), {}, box.as());
      const link = new URL(expectStatus(made, 201).url).search;
      const sent = await browser.get(`/deep/page${link}&a=1`);
      expect([sent.status, sent.headers.location]).toEqual([302, `${new URL(record.url).origin}/deep/page?a=1`]);
      const [cookie = ""] = sent.headers["set-cookie"] ?? [];
      expect(cookie).toMatch(/^__Host-sandgate=.*; Secure; HttpOnly; SameSite=Lax$/);
      expect((await browser.get(`/deep/page${link}&a=1`)).status).toBe(401);
      const headers = { cookie: `mine=1; ${cookie.split(";")[0]}` };
      const page = await browser.get("/deep/page?a=1", headers);
      expect(page.text).toMatch(/^GET \/deep\/page\?a=1 HTTP\/1\.1\n/);
      expect(page.text).toMatch(/\ncookie: mine=1\n/i);
      expect((await browser.send("POST", "/", { ...headers, origin: "https://evil.example" })).status).toBe(403);
      expect((await browser.send("POST", "/", { ...headers, origin: new URL(record.url).origin })).status).toBe(200);
    });

    test("55 and 60: what is ours stays here, and the server learns who forwarded", async () => {
      for (const host_header of ["preview", "localhost"]) {
        const { client } = await make({ host_header, public: true });
        const { text } = await client.get("/a?b=1&sandgate_link=x", {
          authorization: "Basic dGhlaXJzOg==",
          cookie: "a=1; __Host-sandgate=x",
          "x-forwarded-for": "10.9.9.9",
          "x-forwarded-host": "evil.example",
        });
        expect(text).toMatch(/^GET \/a\?b=1 HTTP/);
        expect(text).toContain(`\nHost: ${host_header === "localhost" ? "localhost:3000" : client.host}\n`);
        expect(text).toContain(`\nX-Forwarded-Host: ${client.host}\n`);
        expect(text).toMatch(/\nX-Forwarded-For: [0-9a-f.:]+\nX-Forwarded-Proto: https?\n/);
        expect(text).toMatch(/\nauthorization: Basic dGhlaXJzOg==\n/i);
        expect(text).toMatch(/\ncookie: a=1\n/i);
        expect(text).not.toMatch(/10\.9\.9\.9|evil|sandgate/i);
        const cookies = (await client.get("/cookies")).headers["set-cookie"];
        expect(cookies).toEqual(["a=1; Path=/x"]);
      }
    });

    test("57, 59 and 61: what is wrong with the server is an upstream error, and what breaks off is broken off", async () => {
      const { client } = await make();
      for (const path of ["/lengths", "/both"]) expect(codeOf(await client.get(path))).toBe("upstream_error");
      await expect(client.get("/broken")).rejects.toThrow();
      const none = await make({ port: 9 });
      expect(codeOf(await none.client.get())).toBe("upstream_error");
      const slow = await client.open("GET", "/slow");
      let text = "";
      slow.on("data", (data) => {
        text += data;
      });
      await expect.poll(() => text).toBe("first\n");
      await box.exec("echo second > /tmp/go");
      await expect.poll(() => text).toBe("first\nsecond\n");
      const large = "x".repeat(1_000_000);
      expect((await client.send("PUT", "/", {}, large)).text.endsWith(`\n\n${large}`)).toBe(true);
    });

    test("63: what is open is cut when the preview is revoked", async () => {
      const { record, client } = await make();
      const { socket, answer } = await client.upgrade("/socket");
      expect(answer).toMatch(/^HTTP\/1\.1 101 Switching Protocols\r\n/);
      let echoed = "";
      socket.on("data", (data) => {
        echoed += data;
      });
      socket.on("error", () => {});
      socket.write("there and back");
      await expect.poll(() => answer + echoed).toMatch(/hello[\s\S]*there and back$/);
      const open = await client.open("GET", "/slow");
      const broken = once(open, "error");
      open.resume();
      const cut = once(socket, "close");
      await revoke(record.id);
      await Promise.all([cut, broken]);
      await until(async () => expect((await client.get()).status).toBe(404));
    });

    test("it takes 200 requests a second", async () => {
      const { client } = await make({ port: 9 });
      // A machine that does much else may not send as many in a second.
      const codes = await until(async () => {
        const sent = (await Promise.all(Array.from({ length: 600 }, () => client.get()))).map(codeOf);
        expect(new Set(sent)).toEqual(new Set(["upstream_error", "rate_limited"]));
        return sent;
      });
      expect(codes.filter((code) => code === "upstream_error").length).toBeGreaterThanOrEqual(200);
      await until(async () => expect(codeOf(await client.get())).toBe("upstream_error"));
    });
  });

  describe("as one TCP connection", () => {
    const open = async (port: number, tenant = box.owner) => {
      const socket = new WebSocketClient(
        `${box.target.url}/sandboxes/${box.id}/ports/${port}/tcp`.replace(/^http/, "ws"),
        {
          headers: headersOf(tenant),
        },
      );
      socket.binaryType = "arraybuffer";
      const state = { text: "" };
      socket.addEventListener("message", ({ data }) => {
        state.text += Buffer.from(data).toString("latin1");
      });
      const closed = once(socket, "close").then(([event]) => event as CloseEvent);
      await once(socket, "open");
      return { socket, state, closed };
    };

    test("binary frames are its bytes, and 1000 says that the server has ended it", async () => {
      const { socket, state, closed } = await open(8081);
      socket.send(Buffer.from("GET / HTTP/1.0\r\n"));
      socket.send(Buffer.from("\r\n"));
      expect((await closed).code).toBe(1000);
      expect(state.text).toMatch(/^HTTP\/1\.[01] 200 OK\r\n[\s\S]*loopback\n$/);
    });

    test("it ends with its sandbox's credential, refuses text, and isn't there without a server", async () => {
      const text = await open(3000);
      text.socket.send("text");
      expect((await text.closed).code).toBe(1008);
      const headers = { ...headersOf(), connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13" };
      const lines = Object.entries({ ...headers, "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==" });
      const { hostname, port } = new URL(box.target.url);
      const refused = connect(Number(port), hostname);
      refused.write(
        [`GET ${box.path("ports/9/tcp")} HTTP/1.1`, "Host: x", ...lines.map((line) => line.join(": ")), "", ""].join(
          "\r\n",
        ),
      );
      expect(String((await once(refused, "data"))[0])).toMatch(/^HTTP\/1\.1 502 [\s\S]*"upstream_error"/);
      refused.destroy();
      const member = expectStatus(await box.target.post("/api-tokens", { description: "tcp" }, box.as()), 201);
      const held = await open(3000, { ...box.owner, token: member.token });
      expectStatus(await box.target.delete(`/api-tokens/${member.token}`, { token: box.owner.token }), 204);
      expect((await held.closed).code).toBe(4001);
    });
  });
});
