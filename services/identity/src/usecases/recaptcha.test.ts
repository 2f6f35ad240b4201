import { once } from "node:events";
import { createServer } from "node:http";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { createLogger } from "@sandgate/kit/base/logging";
import { test as base } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { openSqliteStore } from "../store/store.sqlite.ts";
import { createRecaptcha, type RecaptchaSettings } from "./recaptcha.ts";

const good = { success: true, hostname: "app.example.com" };
const badToken = { reason: "VALIDATION_ERROR", violations: [{ field: "recaptcha_token" }] };

const test = base.extend("provider", async ({ folder }, { onCleanup }) => {
  const opened = await startProvider(folder);
  onCleanup(opened.close);
  return opened;
});

/** A provider that answers what `answer` says. */
async function startProvider(folder: string) {
  const state = {
    answer: good as unknown,
    status: 200,
    silent: false,
    /** The forms that it was sent. */
    asked: [] as Record<string, string>[],
  };
  const server = createServer(async (request, response) => {
    state.asked.push(Object.fromEntries(new URLSearchParams(await text(request))));
    if (state.silent) return;
    const body = typeof state.answer === "string" ? state.answer : JSON.stringify(state.answer);
    if (request.url === "/elsewhere") response.end(JSON.stringify(good));
    else response.writeHead(state.status, { location: "/elsewhere" }).end(body);
  });
  const listening = server.listen(0, "127.0.0.1");
  await once(listening, "listening");
  const address = listening.address();
  if (address === null || typeof address === "string") throw new Error("The server has no port.");
  const logger = createLogger({ service: "identity", level: "silent" });
  const store = await openSqliteStore({ file: join(folder, "identity.sqlite"), logger });
  const stop = () => {
    server.closeAllConnections();
    server.close();
  };
  return {
    state,
    stop,
    open(more: Partial<RecaptchaSettings> & { timeoutMs?: number } = {}) {
      const { timeoutMs, ...settings } = more;
      return createRecaptcha({
        settings: {
          secret: "shh",
          url: `http://127.0.0.1:${address.port}/siteverify`,
          minScore: 0.5,
          hostnames: ["app.example.com"],
          actions: [],
          ...settings,
        },
        store,
        now: () => new Date(),
        ...(timeoutMs !== undefined && { timeoutMs }),
      });
    },
    async close() {
      stop();
      await store.close();
    },
  };
}

test("a token is checked at the provider, with the secret and the client's address", async ({ provider }) => {
  await provider.open().require("token 1", "192.0.2.1");
  expect(provider.state.asked).toEqual([{ secret: "shh", response: "token 1", remoteip: "192.0.2.1" }]);
});

test("without a secret none is checked, and with one none may be missing", async ({ provider }) => {
  await provider.open({ secret: undefined }).require("", "192.0.2.1");
  await expect(provider.open().require("", "192.0.2.1")).rejects.toMatchObject(badToken);
  expect(provider.state.asked).toEqual([]);
});

test.for([
  ["is refused", { success: false, "error-codes": ["invalid-input-response"] }],
  ["was seen or has expired", { success: false, "error-codes": ["timeout-or-duplicate"] }],
  ["is of another site", { ...good, hostname: "app.example.com.evil.example" }],
  ["is of no site", { success: true }],
  ["has too low a score", { ...good, score: 0.49 }],
  ["is of another action", { ...good, score: 0.9, action: "comment" }],
] as const)("one that %s is a bad field", async ([, answer], { provider }) => {
  provider.state.answer = answer;
  const recaptcha = provider.open({ actions: ["login"] });
  await expect(recaptcha.require("token", undefined)).rejects.toMatchObject(badToken);
});

test.for([
  ["v2, which has neither score nor action", good],
  ["v3", { ...good, hostname: "APP.example.com", score: 0.5, action: "login" }],
] as const)("one of %s is accepted", async ([, answer], { provider }) => {
  provider.state.answer = answer;
  await provider.open({ actions: ["login"] }).require("token", undefined);
});

test("any action is accepted unless some are named", async ({ provider }) => {
  provider.state.answer = { ...good, score: 1, action: "comment" };
  await provider.open().require("token", undefined);
});

test("one is good once, although the provider accepts it again", async ({ provider }) => {
  const recaptcha = provider.open();
  const outcomes = await Promise.allSettled([1, 2, 3].map(() => recaptcha.require("token", undefined)));
  expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  await expect(recaptcha.require("token", undefined)).rejects.toMatchObject(badToken);
  await recaptcha.require("another", undefined);
});

test.for([
  ["an error of its own", { status: 503, answer: "" }],
  ["a redirect", { status: 302, answer: "" }],
  ["no JSON", { answer: "<html>" }],
  ["no verdict", { answer: ["success"] }],
  ["much too much", { answer: { ...good, padding: "x".repeat(100_000) } }],
  ["a refusal of the secret", { answer: { success: false, "error-codes": ["invalid-input-secret"] } }],
  ["nothing in time", { silent: true }],
] as const)(
  "a provider that answers %s fails the request, and the token stays good",
  async ([, failure], { provider }) => {
    Object.assign(provider.state, failure);
    const failing = provider.open({ timeoutMs: "silent" in failure ? 50 : 5_000 });
    await expect(failing.require("token", undefined)).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
    Object.assign(provider.state, { status: 200, answer: good, silent: false });
    await provider.open().require("token", undefined);
  },
);

test("a provider that is down fails the request", async ({ provider }) => {
  provider.stop();
  await expect(provider.open().require("token", undefined)).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
});
