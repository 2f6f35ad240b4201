import { randomBytes } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createSocketServer } from "node:net";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { askSocket } from "@sandgate/kit/process/admin.socket";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import { startGithub, type TestGithub } from "@sandgate/test-support/github";
import { findFreePort } from "@sandgate/test-support/process";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { Secret, TOTP } from "otpauth";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { createCanaries, filesIn, valuesIn } from "./canaries.ts";

const withoutEngine = {
  SANDGATE_LOG_LEVEL: "trace",
  SANDGATE_RUNTIME: "docker:///nowhere.sock",
  SANDGATE_ISOLATION: "off",
};

/** With characters that encodings change. */
const newSecret = (what: string) => `${what} "${randomBytes(9).toString("base64url")}" ö&%`;

test("a canary is found however it is written", () => {
  const canaries = createCanaries();
  const secret = 'canary "ö&%';
  canaries.add("secret", secret, { isPassword: true });
  for (const text of [
    `password=${secret}`,
    JSON.stringify({ password: secret }),
    `?password=${encodeURIComponent(secret)}`,
    ...["", "u:", "us:"].map((user) => Buffer.from(`${user}${secret}!`).toString("base64")),
    Buffer.from(secret).toString("base64url"),
    Buffer.from(secret).toString("hex"),
  ]) {
    expect(canaries.findIn(text), text).toEqual(["secret"]);
  }
  expect(canaries.findIn("canary")).toEqual([]);
  expect(canaries.findIn(secret, ["secret"])).toEqual([]);
});

describe.runIf(await requireServer("registry", probeRegistry))("secrets that a platform was given or has made", () => {
  const canaries = createCanaries();
  /** What was answered, and the canaries that were asked for with it. */
  const answers: { to: string; text: string; issued: string[] }[] = [];
  const output: string[] = [];
  const stops: (() => unknown)[] = [];
  let platform: TestPlatform;
  let registry: TestRegistry;
  let github: TestGithub;
  const metrics: string[] = [];
  const files: ReturnType<typeof filesIn> = [];
  const values: ReturnType<typeof valuesIn> = [];

  const secretOf = (name: string, o: { isPassword?: boolean } = { isPassword: true }): string => {
    const secret = newSecret(name);
    canaries.add(name, secret, o);
    return secret;
  };

  const registryPassword = randomBytes(12).toString("base64url");
  const recaptcha = { secret: "", bad: "", down: "" };
  /** Each is accepted once. */
  const goodToken = () => secretOf("good recaptcha token");
  const user = { username: "ann@example.com", password: "" };

  /** Sends a request and keeps the answer. The values of `issue` are the canaries that the answer is meant to hold. */
  async function send(
    method: string,
    path: string,
    o: {
      body?: unknown;
      raw?: string;
      headers?: Record<string, string>;
      issue?(body: never, headers: Headers): Record<string, string>;
    } = {},
  ) {
    const hasBody = o.body !== undefined || o.raw !== undefined;
    const response = await fetch(platform.url + path, {
      method,
      redirect: "manual",
      headers: { ...(hasBody && { "content-type": "application/json" }), ...o.headers },
      ...(hasBody && { body: o.raw ?? JSON.stringify(o.body) }),
      signal: AbortSignal.timeout(60_000),
    });
    const text = `${JSON.stringify([...response.headers])}\n${await response.text()}`;
    const isJson = response.headers.get("content-type")?.includes("json");
    const body = isJson ? JSON.parse(text.slice(text.indexOf("\n") + 1) || "null") : undefined;
    const isGood = response.ok || response.status === 302;
    const issued = isGood && o.issue ? o.issue(body as never, response.headers) : {};
    for (const [name, value] of Object.entries(issued)) canaries.add(name, value);
    answers.push({ to: `${method} ${path.slice(0, 40)} ${response.status}`, text, issued: Object.keys(issued) });
    return { status: response.status, body, headers: response.headers };
  }

  const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
  /** Two that are made in the same second may be the same one. */
  const nameOf = (what: string, token = "") => `${what} …${token.slice(-8)}`;
  const issueTokens = ({ tokens: { access_token, refresh_token } }: { tokens: Record<string, string> }) => ({
    [nameOf("access token", access_token)]: access_token ?? "",
    [nameOf("refresh token", refresh_token)]: refresh_token ?? "",
  });
  const signIn = async (as = user) => {
    const { status, body } = await send("POST", "/auth/login", {
      body: { ...as, recaptchaToken: goodToken() },
      issue: issueTokens,
    });
    expect(status).toBe(200);
    return { access: body.tokens.access_token as string, refresh: body.tokens.refresh_token as string };
  };

  /** The token of the mailed link to a page. */
  async function linkTo(page: string): Promise<string> {
    const token = await until(() => {
      const mails = readdirSync(platform.mailFolder).map((name) =>
        readFileSync(join(platform.mailFolder, name), "utf8"),
      );
      const [found] = mails.flatMap((mail) => new RegExp(`${page}\\?token=([A-Za-z0-9_-]{20,})`).exec(mail)?.[1] ?? []);
      expect(found).toBeDefined();
      return found ?? "";
    });
    canaries.add(`mail link to ${page}`, token);
    return token;
  }

  /** A server of the test's own on the loopback address; returns its port. */
  async function listen(server: ReturnType<typeof createServer | typeof createSocketServer>): Promise<number> {
    const port = await findFreePort();
    await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
    stops.push(() => server.close());
    return port;
  }

  beforeAll(async () => {
    user.password = secretOf("user's password");
    canaries.add("registry password", registryPassword, { isPassword: true });
    for (const name of ["secret", "bad", "down"] as const) recaptcha[name] = secretOf(`recaptcha ${name}`);
    registry = await startRegistry({ users: [{ username: "ann", password: registryPassword }] });
    const provider = createServer((request, response) => {
      let form = "";
      request.on("data", (chunk) => {
        form += chunk;
      });
      request.on("end", () => {
        const token = new URLSearchParams(form).get("response");
        response.writeHead(token === recaptcha.down ? 500 : 200, { "content-type": "application/json" });
        const isGood = token?.startsWith("good") === true;
        const verdict = {
          success: isGood,
          hostname: "127.0.0.1",
          "error-codes": isGood ? [] : ["invalid-input-response"],
        };
        response.end(JSON.stringify(token === recaptcha.down ? { said: form } : verdict));
      });
    });
    const recaptchaUrl = `http://127.0.0.1:${await listen(provider)}`;
    const auditFolder = await createTempFolder();
    stops.push(auditFolder.remove);
    github = await startGithub({ callbackUrl: "http://sandgate.test/auth/sso/github/callback" });
    stops.push(() => github.stop());
    canaries.add("client secret at GitHub", github.clientSecret);
    platform = await startPlatform({
      settings: {
        ...withoutEngine,
        SANDGATE_AUDIT_FILE: join(auditFolder.path, "audit.jsonl"),
        SANDGATE_PUBLIC_URL: "http://sandgate.test",
        SANDGATE_REDIRECT_URIS: "http://app.test/done",
        SANDGATE_SSO_GITHUB_CLIENT_ID: github.clientId,
        SANDGATE_SSO_GITHUB_CLIENT_SECRET: github.clientSecret,
        SANDGATE_SSO_GITHUB_ISSUER: github.url,
        SANDGATE_SSO_GITHUB_API_URL: github.url,
        SANDGATE_REGISTRY_ALLOW: "127.0.0.1",
        SANDGATE_RECAPTCHA_SECRET: recaptcha.secret,
        SANDGATE_RECAPTCHA_URL: recaptchaUrl,
        SANDGATE_RECAPTCHA_HOSTNAMES: "127.0.0.1",
        SANDGATE_MAILBOX_MAILS_PER_HOUR: "0",
        SANDGATE_NETWORK_MAILS_PER_HOUR: "0",
      },
    });
    canaries.add("operator's password", platform.admin.password, { isPassword: true });
    await useAccounts();
    await useSecondFactor();
    await useSingleSignOn();
    await useRegistries();
    await misuseEverything();
    metrics.push(...(await readOperatorsPort(platform)));
    await platform.terminate();
    output.push(platform.process.output());
    files.push(...filesIn(platform.dataFolder));
    values.push(...valuesIn(platform.dataFolder));
    const [auditFile, ...others] = filesIn(auditFolder.path);
    expect([auditFile?.path, others]).toEqual(["audit.jsonl", []]);
    expect(auditFile?.bytes.length).toBeGreaterThan(1_000);
    if (auditFile) files.push(auditFile);
    await mailInVain();
  });
  afterAll(async () => {
    await platform?.stop();
    await registry?.stop();
    for (const stop of stops) await stop();
  });

  async function useAccounts(): Promise<void> {
    const register = (password: string, recaptchaToken = goodToken()) =>
      send("POST", "/auth/register", { body: { username: user.username, password, recaptchaToken } });
    expect((await register(user.password)).status).toBe(201);
    const verification = await linkTo("/auth/verify-email");
    for (const token of [recaptcha.bad, recaptcha.down]) await register(secretOf("refused by recaptcha"), token);
    await register("canary1");
    await register(`${secretOf("long password")}${"x".repeat(300)}`);
    await send("GET", `/auth/verify-email?token=${verification}`);
    await send("POST", "/auth/verify-email", { body: { token: verification, password: "short" } });
    await send("POST", "/auth/verify-email", { body: { token: verification } });
    const link = { token: verification, password: user.password };
    expect((await send("POST", "/auth/verify-email", { body: link })).status).toBe(200);
    await send("POST", "/auth/verify-email", { body: link });

    for (const token of [recaptcha.bad, recaptcha.down]) {
      await send("POST", "/auth/login", { body: { ...user, recaptchaToken: token } });
    }
    const wrong = { username: user.username, password: secretOf("wrong password"), recaptchaToken: goodToken() };
    expect((await send("POST", "/auth/login", { body: wrong })).status).toBe(401);
    await send("POST", "/auth/login", {
      body: { ...wrong, username: secretOf("password typed as a name"), recaptchaToken: goodToken() },
    });
    const session = await signIn();
    const refreshed = await send("POST", "/auth/refresh", {
      body: { refresh_token: session.refresh },
      issue: issueTokens,
    });
    expect(refreshed.status).toBe(200);
    await send("GET", "/auth/sessions", { headers: bearer(refreshed.body.tokens.access_token) });

    await send("POST", "/auth/password", {
      body: { current_password: secretOf("wrong current password"), password: secretOf("new password, refused") },
      headers: bearer(session.access),
    });
    const changed = secretOf("changed password");
    const change = { current_password: user.password, password: changed };
    expect((await send("POST", "/auth/password", { body: change, headers: bearer(session.access) })).status).toBe(200);
    await send("POST", "/auth/password/forgot", { body: { username: user.username } });
    const reset = await linkTo("/auth/password/reset");
    user.password = secretOf("password set by a link");
    await send("GET", `/auth/password/reset?token=${reset}`);
    expect(
      (await send("POST", "/auth/password/reset", { body: { token: reset, password: user.password } })).status,
    ).toBe(200);

    const again = await signIn();
    const issue = ({ token }: { token: string }) => ({ "API token": token });
    const headers = { ...bearer(again.access), "idempotency-key": "once" };
    const create = () => send("POST", "/api-tokens", { body: { description: "ci" }, headers, issue });
    const { body } = await create();
    await create();
    expect((await send("GET", "/workspaces", { headers: bearer(body.token) })).status).toBe(200);
    await send("GET", "/api-tokens", { headers: bearer(again.access) });
    expect((await send("DELETE", `/api-tokens/${body.token}`, { headers: bearer(again.access) })).status).toBe(204);
    await send("GET", "/workspaces", { headers: bearer(body.token) });
    await send("POST", "/auth/logout", { body: { refresh_token: again.refresh } });
    await send("GET", "/workspaces", { headers: bearer(again.access) });
  }

  async function useSecondFactor(): Promise<void> {
    const headers = bearer((await signIn()).access);
    await send("POST", "/auth/second-factor", { body: { password: secretOf("wrong for a second factor") }, headers });
    const { body: made } = await send("POST", "/auth/second-factor", {
      body: { password: user.password },
      headers,
      issue: ({ secret }: { secret: string }) => ({ "TOTP secret": secret }),
    });
    canaries.add("TOTP secret in bytes", new Uint8Array(Secret.fromBase32(made.secret).buffer));
    await send("POST", "/auth/second-factor/confirm", { body: { otp: "wrong!" }, headers });
    const totp = new TOTP({ secret: made.secret });
    const { body: confirmed } = await send("POST", "/auth/second-factor/confirm", {
      body: { otp: totp.generate() },
      headers,
      issue: ({ recovery_codes: codes }: { recovery_codes: string[] }) =>
        Object.fromEntries(codes.map((code, index) => [`recovery code ${index}`, code])),
    });
    const [recoveryCode = ""] = confirmed.recovery_codes;
    for (const code of confirmed.recovery_codes) canaries.add("bare recovery code", code.replaceAll("-", ""));
    await send("POST", "/auth/login", { body: { ...user, recaptchaToken: goodToken() } });
    const withCode = (otp: string) => ({ body: { ...user, recaptchaToken: goodToken(), otp }, issue: issueTokens });
    expect((await send("POST", "/auth/login", withCode(recoveryCode))).status).toBe(200);
    expect((await send("POST", "/auth/login", withCode(recoveryCode))).status).toBe(401);
    const remove = { body: { password: user.password, otp: confirmed.recovery_codes[1] }, headers };
    expect((await send("DELETE", "/auth/second-factor", remove)).status).toBe(204);
  }

  /** At a provider that knows the user, and at one that is down. */
  async function useSingleSignOn(): Promise<void> {
    for (const apiStatus of [undefined, 500]) {
      github.apiStatus = apiStatus;
      const stateOf = (headers: Headers) => new URL(headers.get("location") ?? "").searchParams.get("state") ?? "";
      const cookieOf = (headers: Headers) => /=([^;]+)/.exec(headers.get("set-cookie") ?? "")?.[1] ?? "";
      const { headers } = await send("GET", "/auth/sso/github", {
        issue: (_, given) => ({ [`state ${apiStatus}`]: stateOf(given), [`cookie ${apiStatus}`]: cookieOf(given) }),
      });
      const back = await github.signIn(headers.get("location") ?? "");
      canaries.add(`code ${apiStatus}`, back.searchParams.get("code") ?? "");
      const cookie = headers.get("set-cookie")?.split(";")[0] ?? "";
      const path = back.pathname + back.search;
      await send("GET", path);
      const { status } = await send("GET", path, {
        headers: { cookie },
        issue(_, given) {
          const tokens = Object.fromEntries(new URLSearchParams(new URL(given.get("location") ?? "").hash.slice(1)));
          return tokens.access_token ? issueTokens({ tokens } as never) : {};
        },
      });
      expect(status).toBe(302);
      await send("GET", path, { headers: { cookie } });
    }
  }

  async function useRegistries(): Promise<void> {
    const { access } = await signIn();
    const { body: list } = await send("GET", "/workspaces", { headers: bearer(access) });
    const headers = { ...bearer(access), "x-workspace-id": list.workspaces[0].id, "idempotency-key": "registry" };
    const url = `http://${registry.host}`;
    const credential = { name: "r", url, username: "ann", password: registryPassword };
    const created = await send("POST", "/registries", { body: credential, headers });
    expect(created.status).toBe(201);
    await send("POST", "/registries", { body: credential, headers });
    const { "idempotency-key": _, ...others } = headers;
    const bad = { ...credential, name: "bad", password: secretOf("bad registry password") };
    expect((await send("POST", "/registries", { body: bad, headers: others })).status).toBe(422);
    const closed = `http://127.0.0.1:${await findFreePort()}`;
    await send("POST", "/registries", { body: { ...bad, url: closed }, headers: others });
    await send("POST", "/registries", {
      body: { ...bad, url: `http://ann:${encodeURIComponent(secretOf("password in a URL"))}@${registry.host}` },
      headers: others,
    });
    await send("GET", "/registries", { headers: others });
    await send("PUT", `/registries/${created.body.id}`, {
      body: { username: "bob", password: secretOf("bad new registry password") },
      headers: others,
    });
    const image = { name: "i", image: `${registry.host}/none:1`, memory_mb: 256, registry_id: created.body.id };
    const { body: made } = await send("POST", "/sandbox-images", { body: image, headers: others });
    // The engine can't be reached, so that this fails.
    const env = { TOKEN: secretOf("environment variable") };
    expect((await send("POST", "/sandboxes/provision", { body: { image_id: made.id, env }, headers })).status).toBe(
      201,
    );
    await send("POST", "/sandboxes/provision", {
      body: { image_id: made.id, env: { ...env, "": env.TOKEN } },
      headers: others,
    });
  }

  /**
   * Every operation with secrets where none belong, as one who is signed in, as one who isn't, and as JSON that is
   * none.
   */
  async function misuseEverything(): Promise<void> {
    const { access } = await signIn();
    const operator = await signIn(platform.admin);
    const document = await (await fetch(`${platform.url}/openapi.json`)).json();
    const { paths } = document as { paths: Record<string, Record<string, unknown>> };
    const password = secretOf("misplaced password");
    const token = `sgt_${randomBytes(24).toString("hex")}`;
    canaries.add("misplaced token", token);
    const fields = [
      "password",
      "current_password",
      "token",
      "refresh_token",
      "recaptchaToken",
      "otp",
      "code",
      "secret",
    ];
    const body = Object.fromEntries(fields.map((field) => [field, { nested: password }]));
    const operations = Object.entries(paths).flatMap(([path, methods]) =>
      ["get", "post", "put", "delete"].filter((method) => method in methods).map((method) => ({ path, method })),
    );
    expect(operations.length).toBeGreaterThan(40);
    for (const { path, method } of operations) {
      const target = `${path.replace(/\{\w+\}/g, token)}?cursor=${token}&token=${token}&password=${encodeURIComponent(password)}`;
      const hasBody = method === "post" || method === "put";
      const to = method.toUpperCase();
      for (const given of [bearer(operator.access), bearer(access), bearer(token), bearer(`${access}x`), {}]) {
        // Not those that succeed whatever they are sent, and would end the session.
        const headers = { ...given, "x-workspace-id": token };
        if (to === "DELETE" && path === "/auth/sessions") continue;
        await send(to, target, { headers, ...(hasBody && { body }) });
        if (!hasBody) continue;
        const texts = Object.fromEntries(fields.map((field) => [field, password]));
        await send(to, target, { headers, body: { ...texts, username: password, url: `https://u:${token}@h` } });
        await send(to, target, { headers, raw: `{"password":"${password.replaceAll('"', "'")}` });
        await send(to, target, { headers: { ...headers, "content-type": "text/plain" }, raw: password });
      }
    }
    canaries.add("broken access token", `${access}x`);
  }

  async function readOperatorsPort({ adminUrl, dataFolder }: TestPlatform): Promise<string[]> {
    const shown = ["/metrics", "/readyz"].map(async (path) => (await fetch(adminUrl + path)).text());
    const { body } = await askSocket(join(dataFolder, "admin.sock"), "GET", "/dead-letters");
    return [body, ...(await Promise.all(shown))];
  }

  /** A platform whose mail server refuses its password. */
  async function mailInVain(): Promise<void> {
    const smtpPassword = randomBytes(12).toString("base64url");
    canaries.add("mail server's password", smtpPassword);
    const server = createSocketServer((socket) => {
      socket.write("220 mail.example\r\n");
      socket.on("data", (line) => {
        const isGreeting = /^EHLO/i.test(String(line));
        socket.write(isGreeting ? "250-mail.example\r\n250 AUTH PLAIN\r\n" : "535 5.7.8 refused\r\n");
      });
      socket.on("error", () => {});
    });
    const url = `smtp://mailer:${smtpPassword}@127.0.0.1:${await listen(server)}`;
    const other = await startPlatform({ settings: { ...withoutEngine, SANDGATE_SMTP_URL: url } });
    try {
      canaries.add("other operator's password", other.admin.password, { isPassword: true });
      const body = { username: "bob@example.com", password: secretOf("password of a mail in vain") };
      const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
      expect((await fetch(`${other.url}/auth/register`, options)).status).toBe(201);
      await until(() => expect(other.process.output()).toContain("could not be sent"));
      metrics.push(...(await readOperatorsPort(other)));
      await other.terminate();
      files.push(...filesIn(other.dataFolder));
      values.push(...valuesIn(other.dataFolder));
      output.push(other.process.output());
    } finally {
      await other.stop();
    }
  }

  test("are in no line of the log", () => {
    const lines = output.join("").split("\n");
    expect(lines.length).toBeGreaterThan(500);
    expect(lines.filter((line) => canaries.findIn(line).length > 0)).toEqual([]);
  });

  test("are in no answer but the one that gives them out", () => {
    const leaks = answers.flatMap(({ to, text, issued }) => {
      const found = canaries.findIn(text, issued);
      return found.length > 0 ? [`${to}: ${found.join(", ")}`] : [];
    });
    expect(leaks).toEqual([]);
  });

  test("are in no metric, and nothing else that operators are shown", () => {
    expect(metrics.flatMap((text) => canaries.findIn(text))).toEqual([]);
  });

  test("are in no table in clear, events and the audit log included", () => {
    expect(new Set(values.map(({ column }) => column)).size).toBeGreaterThan(60);
    const leaks = values.flatMap(({ column, value }) => canaries.findIn(value).map((name) => `${column}: ${name}`));
    expect([...new Set(leaks)]).toEqual([]);
  });

  test("are in no file but the mail that they were sent in", () => {
    const leaks = files.flatMap(({ path, bytes }) => {
      const found = canaries
        .findIn(bytes)
        .filter((name) => !(path.startsWith("mail/") && name.startsWith("mail link")));
      return found.map((name) => `${path}: ${name}`);
    });
    expect(leaks).toEqual([]);
  });

  test("are kept with keys that are in the key ring's file alone", async () => {
    const file = join(platform.dataFolder, "keys.json");
    const ring = await openKeyring({ file, create: false });
    const keys = createCanaries();
    const stored = JSON.parse(readFileSync(file, "utf8"));
    for (const [id, key] of Object.entries<string>(stored.keys)) keys.add(`key ${id}`, Buffer.from(key, "base64"));
    const database = new DatabaseSync(join(platform.dataFolder, "identity.sqlite"), { readOnly: true });
    for (const { id, use, sealed } of database.prepare("SELECT id, use, sealed FROM keys").all()) {
      if (!(sealed instanceof Uint8Array)) throw new Error("a key isn't sealed");
      const opened = Buffer.from(ring.open(sealed, { service: "identity", table: "keys", record: String(id) }));
      keys.add(`${use} key`, use === "session" ? String(JSON.parse(opened.toString()).d) : opened);
    }
    database.close();
    const found = filesIn(platform.dataFolder).flatMap(({ path, bytes }) =>
      keys.findIn(bytes).length > 0 ? [path] : [],
    );
    expect(found).toEqual(["keys.json"]);
    expect(keys.findIn([...output, ...metrics, ...answers.map(({ text }) => text)].join("\n"))).toEqual([]);
  });
});
