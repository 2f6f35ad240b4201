import { once } from "node:events";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { callOf } from "@sandgate/kit/rpc/context";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { openTestPlatform, sandboxMessage, type TestPlatform, userId, workspaceId } from "../../test-platform.ts";

let platform: TestPlatform;
/** Runs while a wait is open. */
let duringWait: (signal: AbortSignal) => Promise<unknown>;
/** Whether the session lives. */
let isLive: boolean;
/** Whose session was asked about. */
let asked: (string | undefined)[];

beforeEach(async () => {
  vi.useFakeTimers({ toFake: ["Date"] });
  isLive = true;
  asked = [];
  platform = await openTestPlatform({
    handlers: {
      identity: {
        getSession(_request, context) {
          const { user } = callOf(context);
          asked.push(`${user?.id} ${user?.credentialId}`);
          if (!isLive) throw new DomainError("INVALID_TOKEN", "The session has ended.");
          return { expiresInMs: 600_000 };
        },
      },
      sandbox: {
        async waitSandboxes(_request, { signal }) {
          await duringWait(signal);
          return { sandboxes: [sandboxMessage()] };
        },
      },
    },
  });
});

afterEach(async () => {
  vi.useRealTimers();
  await platform.close();
});

async function wait() {
  const authorization = `Bearer ${await platform.signAccessToken({ sid: "s7" })}`;
  return platform.app.inject({
    method: "POST",
    url: "/sandboxes/wait",
    headers: { authorization, "x-workspace-id": workspaceId },
    payload: { sandbox_id: "box", timeout_seconds: 240 },
  });
}

test("an open request outlives its access token, but not its session", async () => {
  duringWait = async (signal) => {
    vi.setSystemTime(Date.now() + 301_000);
    await vi.waitFor(() => expect(asked).toEqual([`${userId} s7`]), { timeout: 10_000 });
    vi.setSystemTime(Date.now() + 601_000);
    isLive = false;
    await once(signal, "abort");
  };
  expect((await wait()).json().error.code).toBe("invalid_token");
  expect(asked).toHaveLength(2);
});
