import { setTimeout as delay } from "node:timers/promises";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { type Client, createClient } from "../conformance/client.ts";
import { createCallers } from "../fault/callers.ts";
import { expectConsistent, type LoggingPlatform, startLoggingPlatform } from "../fault/logging-platform.ts";
import { requireDistributed } from "../platform/distributed/platform.ts";
import { parts } from "../platform/distributed/replica.ts";
import { type EarlierCode, probeEarlier, thisCode, unpackEarlier } from "../platform/earlier.ts";
import { unlimitedSandboxes } from "../platform/limits.ts";

vi.setConfig({ testTimeout: 900_000 });

const isAvailable =
  (await requireDistributed()) &&
  (await requireServer("docker", probeEngine)) &&
  (await requireServer("history", probeEarlier));
const requests = 150;
/** Callers wait no longer for one answer. */
const longestCallMs = 4_000;

describe.runIf(isAvailable)("the oldest version that can be upgraded, and this one", () => {
  let earlier: EarlierCode;
  let on: LoggingPlatform;

  beforeAll(async () => {
    earlier = await unpackEarlier();
    on = await startLoggingPlatform(3, {
      // The earlier version takes the default image's name for that of a registry.
      settings: { ...unlimitedSandboxes, SANDGATE_REGISTRY_ALLOW: "localhost" },
      codeRoot: (_part, index) => (index === 0 ? earlier.root : thisCode),
    });
  });
  afterAll(async () => {
    await on?.[Symbol.asyncDispose]();
    await earlier?.remove();
  });

  test("run side by side, are upgraded and downgraded, and no request fails", async () => {
    const { platform } = on;
    const facades: Client[] = platform.urls.map((url) => createClient(url));
    const { journal, send } = createCallers({ ...on, facades, callers: 4 });

    /** As a rolling update does: no request is sent to a replica that is being replaced. */
    async function replace(index: number, codeRoot: string): Promise<void> {
      for (const part of parts) {
        const replica = platform.replica(part, index);
        const removed = part === "facade" ? facades.splice(index, 1) : [];
        if (part === "facade") await delay(longestCallMs);
        expect(await replica.terminate(), replica.process.output().slice(-2_000)).toBe(0);
        await replica.start({}, codeRoot);
        facades.splice(index, 0, ...removed);
      }
    }
    await send(requests);
    await send(0, replace(0, thisCode));
    await send(0, replace(1, earlier.root));
    await send(requests);

    expect(journal.unknown).toBe(0);
    await expectConsistent(journal, on, 180_000);
  });
});
