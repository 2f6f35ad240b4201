import { EventEmitter } from "node:events";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { FastifyReply, FastifyRequest } from "fastify";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { createLiveRequests } from "./live-requests.ts";

const user = { id: "u1", credential: "session", credentialId: "s1", operator: false };

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "performance"] });
});
afterEach(() => {
  vi.useRealTimers();
});

/** An open request whose access is checked by `check`. */
async function openLive(check: () => Promise<void>) {
  const live = createLiveRequests({
    slots: { acquire: async () => undefined, release: () => {}, close: async () => {} },
    checkAccess: check,
  });
  const request = { signedIn: { user } } as unknown as FastifyRequest;
  const reply = { raw: Object.assign(new EventEmitter(), { destroyed: false }) } as unknown as FastifyReply;
  return live.open(request, reply);
}

const away = () => Promise.reject(new DomainError("UPSTREAM_ERROR", "identity does not answer"));

test("what is open outlasts half a minute in which access can't be checked, and no more", async () => {
  const opened = await openLive(away);
  await vi.advanceTimersByTimeAsync(30_000);
  expect(opened.signal.aborted).toBe(false);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(opened.signal.aborted).toBe(true);
  expect(opened.endedBy).toMatchObject({ reason: "UPSTREAM_ERROR" });
  opened.close();
});

test("a check that succeeds gives it as long again", async () => {
  let isAway = true;
  const opened = await openLive(async () => {
    if (isAway) await away();
  });
  await vi.advanceTimersByTimeAsync(29_000);
  isAway = false;
  await vi.advanceTimersByTimeAsync(1_000);
  isAway = true;
  await vi.advanceTimersByTimeAsync(30_000);
  expect(opened.signal.aborted).toBe(false);
  await vi.advanceTimersByTimeAsync(1_000);
  expect(opened.signal.aborted).toBe(true);
  opened.close();
});

test("it ends at once when access is refused", async () => {
  const opened = await openLive(() => Promise.reject(new DomainError("INVALID_TOKEN", "The session has ended.")));
  await vi.advanceTimersByTimeAsync(1_000);
  expect(opened.endedBy).toMatchObject({ reason: "INVALID_TOKEN" });
  opened.close();
});
