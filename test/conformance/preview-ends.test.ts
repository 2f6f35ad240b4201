import { once } from "node:events";
import { openBrowser, probeBrowser } from "@sandgate/test-support/browser";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectStatus, uniqueName } from "./client.ts";
import { createPreviewClient, type PreviewAnswer, type PreviewClient } from "./preview-client.ts";
import { type Box, openBox } from "./sandbox-box.ts";
import { requireSandboxHost } from "./sandbox-host.ts";

/** Pages that say their path and cookies, what never ends, and WebSockets that say one word. */
const answer = String.raw`
read -r method path rest
cookies=
key=
while IFS= read -r line; do
  line="$(printf %s "$line" | tr -d '\r')"
  [ -z "$line" ] && break
  case "$line" in
    [Cc]ookie:*) cookies="$line" ;;
    [Ss]ec-[Ww]eb[Ss]ocket-[Kk]ey:*) key="$(echo "$line" | cut -d' ' -f2)" ;;
  esac
done
case "$path" in
  /endless*) printf 'HTTP/1.1 200 OK\r\n\r\nfirst\n'; exec sleep 1000 ;;
  /socket*)
    accept="$(printf '%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11' "$key" | sha1sum | cut -d' ' -f1 | xxd -r -p | base64)"
    printf 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n'
    printf 'Sec-WebSocket-Accept: %s\r\n\r\n\201\005hello' "$accept"
    exec sleep 1000
    ;;
  *)
    text="<title>page</title>$method $path cookies=[$cookies]"
    printf 'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %s\r\n\r\n%s' "$(printf %s "$text" | wc -c)" "$text"
    ;;
esac
`;
const server = ["nc", "-ll", "-p", "3000", "-e", "/bin/sh", "/answer"];

// biome-ignore lint/suspicious/noExplicitAny: the record is what the test expects it to be
type Preview = any;

const hasBrowser = await requireServer("chromium", probeBrowser);

describe.runIf(await requireSandboxHost())("what opens and ends previews", () => {
  let box: Box;

  beforeAll(async () => {
    box = await openBox({ files: { "/answer": answer } });
    await box.start(server);
  });
  afterAll(() => box?.close());

  const make = async (body: object = {}, as = box.as(), sandbox = box.id): Promise<Preview> =>
    expectStatus(await box.target.post(`/sandboxes/${sandbox}/ports`, { port: 3000, ...body }, as), 201);
  const clientOf = ({ url }: Preview, headers: Record<string, string> = {}) =>
    createPreviewClient({ via: box.target.url, url, headers });
  const byToken = (preview: Preview) => clientOf(preview, { "x-sandgate-token": preview.token });
  const link = async ({ id }: Preview): Promise<string> =>
    new URL(expectStatus(await box.target.post(box.path(`ports/${id}/links`), {}, box.as()), 201).url).search;
  const codeOf = ({ text }: PreviewAnswer) => JSON.parse(text).error.code;

  /** A WebSocket and a body that are open, and what settles once both were cut. */
  async function openBoth(client: PreviewClient): Promise<{ cut: Promise<unknown>; isOpen(): boolean }> {
    const { socket, answer: first } = await until(() => client.upgrade("/socket"));
    expect(first).toMatch(/^HTTP\/1\.1 101 /);
    socket.on("error", () => {}).resume();
    const body = await client.open("GET", "/endless");
    const broken = once(body, "error");
    const closed = once(socket, "close");
    body.resume();
    return { cut: Promise.all([broken, closed]), isOpen: () => !socket.destroyed && !body.destroyed };
  }

  test("51: one that never was, was revoked or has expired, and an ended sandbox's get the same answer", async () => {
    const expires = await make({ ttl_seconds: 60 });
    const open = await openBoth(byToken(expires));
    const revoked = await make();
    expectStatus(await box.target.delete(box.path(`ports/${revoked.id}`), box.as()), 204);
    const id = await box.provision();
    const ended = await make({ public: true }, box.as(), id);
    expectStatus(await box.target.delete(`/sandboxes/${id}`, box.as()), 204);
    const never = { ...revoked, url: revoked.url.replace(/[a-z2-7]{26}/, "a".repeat(26)) };

    const said = async (preview: Preview) => {
      const got = await byToken(preview).get();
      const { error, detail } = JSON.parse(got.text);
      return { status: got.status, headers: Object.keys(got.headers), ...error, request_id: "", detail };
    };
    const expected = await said(never);
    expect(expected).toMatchObject({ status: 404, code: "not_found" });
    await until(async () => expect(await said(revoked)).toEqual(expected));
    await until(async () => expect(await said(ended)).toEqual(expected));
    // 63: what is open of it is cut at its end.
    expect(open.isOpen()).toBe(true);
    await open.cut;
    expect(Date.now()).toBeGreaterThanOrEqual(Date.parse(expires.expires_at) - 1_000);
    expect(await said(expires)).toEqual(expected);
  });

  test("53: of those who open a link at once one gets the cookie, which opens that preview alone", async () => {
    const [preview, other] = [await make(), await make()];
    const search = await link(preview);
    expect(codeOf(await clientOf(other).get(`/${search}`))).toBe("invalid_token");
    const ofAnother = await link(preview);
    const answers = await Promise.all(Array.from({ length: 8 }, () => clientOf(preview).get(`/deep${ofAnother}`)));
    expect(answers.map(({ status }) => status).sort()).toEqual([302, ...Array(7).fill(401)]);
    const cookie = answers.flatMap(({ headers }) => headers["set-cookie"] ?? [])[0]?.split(";")[0] ?? "";
    for (const path of ["/deep", "/deeper?a=1"]) {
      expect((await clientOf(preview, { cookie }).get(path)).text).toContain(`GET ${path} cookies=[]`);
    }
    expect(codeOf(await clientOf(other, { cookie }).get())).toBe("invalid_token");
    expect(codeOf(await clientOf(preview, { cookie: "__Host-sandgate=x" }).get())).toBe("invalid_token");
  });

  test("56: by cookie, a page of another site opens no WebSocket and changes nothing", async () => {
    const preview = await make();
    const [set = ""] = (await clientOf(preview).get(`/${await link(preview)}`)).headers["set-cookie"] ?? [];
    const client = clientOf(preview, { cookie: set.split(";")[0] ?? "" });
    const { origin } = new URL(preview.url);
    const evil = [{ origin: "https://evil.example" }, { origin: "null" }, {}, { "sec-fetch-site": "same-site" }];
    for (const headers of evil as Record<string, string>[]) {
      const { socket, answer: refusal } = await client.upgrade("/socket", headers);
      socket.destroy();
      expect(refusal).toMatch(/^HTTP\/1\.1 403 [\s\S]*"forbidden"/);
      for (const method of ["POST", "PUT", "PATCH", "DELETE"]) {
        expect(codeOf(await client.send(method, "/", headers))).toBe("forbidden");
      }
      const read = await client.get("/", headers);
      expect(read.status).toBe(200);
      expect(Object.keys(read.headers).filter((name) => name.startsWith("access-control-"))).toEqual([]);
    }
    for (const headers of [{ origin }, { "sec-fetch-site": "same-origin" }] as Record<string, string>[]) {
      expect((await client.send("POST", "/", headers)).status).toBe(200);
    }
    const { socket, answer: opened } = await client.upgrade("/socket", { origin });
    socket.destroy();
    expect(opened).toMatch(/^HTTP\/1\.1 101 /);
  });

  test("63: what is open ends with the sandbox, and that of another goes on", async () => {
    const id = await box.provision();
    await until(async () => {
      const body = { command: server };
      expectStatus(await box.target.post(`/sandboxes/${id}/processes`, body, box.as()), 201);
    });
    const own = await openBoth(byToken(await make({}, box.as(), id)));
    const other = await openBoth(byToken(await make()));
    expectStatus(await box.target.delete(`/sandboxes/${id}`, box.as()), 204);
    await own.cut;
    expect(other.isOpen()).toBe(true);
  });

  test("63: it ends with its creator's membership, and not with the token that made it", async () => {
    const { target, owner } = box;
    const member = await target.newTenant();
    const members = `/workspaces/${owner.workspace}/members`;
    const body = { username: member.username, role: "member" };
    const { user_id } = expectStatus(await target.post(members, body, box.as()), 201);
    const made = await target.post("/api-tokens", { description: uniqueName("token") }, { token: member.token });
    const { id: tokenId, token } = expectStatus(made, 201);
    const preview = await make({}, { token, workspace: owner.workspace });
    const open = await openBoth(byToken(preview));
    expectStatus(await target.delete(`/api-tokens/${tokenId}`, { token: member.token }), 204);
    await expect(target.get("/workspaces", { token })).resolves.toMatchObject({ status: 401 });
    expect((await byToken(preview).get()).status).toBe(200);
    expect(open.isOpen()).toBe(true);
    expectStatus(await target.delete(`${members}/${user_id}`, box.as()), 204);
    await open.cut;
    await until(async () => expect((await byToken(preview).get()).status).toBe(404));
  });

  describe.runIf(hasBrowser)("in a browser", () => {
    test("53: a link opens the preview, and reload, deep links and WebSockets work from then on", async ({ skip }) => {
      const preview = await make();
      const { hostname, port } = new URL(preview.url);
      skip(!hostname.endsWith(".localhost") || port !== new URL(box.target.url).port, "its name leads elsewhere");
      const browser = await openBrowser();
      try {
        const page = await browser.newPage();
        await page.goto(`${preview.url}a/page${await link(preview)}`);
        expect(page.url()).toBe(`${preview.url}a/page`);
        await page.reload();
        expect(await page.content()).toContain("GET /a/page cookies=[]");
        await page.goto(`${preview.url}another`);
        expect(await page.content()).toContain("GET /another cookies=[]");
        const opened = await page.evaluate(
          (url) =>
            new Promise((resolve) => {
              const socket = new WebSocket(url);
              socket.onmessage = ({ data }) => resolve(data);
              socket.onerror = () => resolve("refused");
            }),
          `${preview.url.replace("http", "ws")}socket`,
        );
        expect(opened).toBe("hello");
        const stranger = await (await browser.newContext()).newPage();
        expect((await stranger.goto(preview.url))?.status()).toBe(401);
      } finally {
        await browser.close();
      }
    });
  });
});
