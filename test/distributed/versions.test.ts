import { setTimeout as delay } from "node:timers/promises";
import { buildLoggingImage, openTestEngine, probeEngine, type TestImage } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { type Client, createClient } from "../conformance/client.ts";
import { createCallers } from "../fault/callers.ts";
import { findProblems } from "../fault/checker.ts";
import { type DistributedPlatform, requireDistributed, startDistributed } from "../platform/distributed/platform.ts";
import { parts } from "../platform/distributed/replica.ts";
import { type EarlierCode, probeEarlier, thisCode, unpackEarlier } from "../platform/earlier.ts";
import { type Operator, openOperator } from "../platform/operator.ts";

vi.setConfig({ testTimeout: 900_000 });

const isAvailable =
  (await requireDistributed()) &&
  (await requireServer("docker", probeEngine)) &&
  (await requireServer("history", probeEarlier));
const loggedLines = ["line 0", "line 1", "line 2"];
const requests = 150;
/** Callers wait no longer for one answer. */
const longestCallMs = 4_000;

describe.runIf(isAvailable)("the oldest version that can be upgraded, and this one", () => {
  let earlier: EarlierCode;
  let image: TestImage;
  let platform: DistributedPlatform;
  let operator: Operator;
  let imageId: string;

  beforeAll(async () => {
    earlier = await unpackEarlier();
    image = await buildLoggingImage(openTestEngine(), loggedLines);
    platform = await startDistributed({
      codeRoot: (_part, index) => (index === 0 ? earlier.root : thisCode),
      settings: { SANDGATE_WORKSPACE_MAX_SANDBOXES: "0", SANDGATE_WORKSPACE_MAX_MEMORY_MB: "0" },
    });
    operator = await openOperator(platform);
    imageId = await operator.registerImage(image.reference);
  });
  afterAll(async () => {
    await platform?.stop();
    await image?.remove();
    await earlier?.remove();
  });

  test("run side by side, are upgraded and downgraded, and no request fails", async () => {
    const facades: Client[] = platform.urls.map((url) => createClient(url));
    const { journal, send } = createCallers({ facades, operator, imageId, callers: 4 });

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
    await send(requests, Promise.resolve());
    await send(0, replace(0, thisCode));
    await send(0, replace(1, earlier.root));
    await send(requests, Promise.resolve());

    expect(journal.violations).toEqual([]);
    expect(journal.unknown).toBe(0);
    const kinds = new Set(journal.things.filter(({ id }) => id !== undefined).map(({ kind }) => kind));
    expect(kinds).toEqual(new Set(["workspace", "image", "token", "sandbox"]));
    await expect
      .poll(() => findProblems({ platform, journal, operator, loggedLines }), { timeout: 180_000, interval: 3_000 })
      .toEqual([]);
  });
});
