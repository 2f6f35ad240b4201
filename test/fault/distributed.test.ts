import { setTimeout as delay } from "node:timers/promises";
import { serviceNames } from "@sandgate/kit/base/service-names";
import { buildLoggingImage, openTestEngine, probeEngine, type TestImage } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { createClient } from "../conformance/client.ts";
import { type DistributedPlatform, requireDistributed, startDistributed } from "../platform/distributed/platform.ts";
import type { Part } from "../platform/distributed/replica.ts";
import { type Operator, openOperator } from "../platform/operator.ts";
import { createCallers } from "./callers.ts";
import { findForgottenAnswers, findProblems } from "./checker.ts";

vi.setConfig({ testTimeout: 1_500_000 });

/** The least number of requests in all. */
const requests = Number(process.env.SANDGATE_FAULT_REQUESTS ?? 1_000);
const isAvailable = (await requireDistributed()) && (await requireServer("docker", probeEngine));
const loggedLines = Array.from({ length: 20 }, (_, index) => `line ${index}`);

describe.runIf(isAvailable)("crashes of every process in turn", () => {
  let image: TestImage;
  let platform: DistributedPlatform;
  let operator: Operator;
  let imageId: string;

  beforeAll(async () => {
    image = await buildLoggingImage(openTestEngine(), loggedLines);
    platform = await startDistributed({
      members: 3,
      settings: { SANDGATE_WORKSPACE_MAX_SANDBOXES: "0", SANDGATE_WORKSPACE_MAX_MEMORY_MB: "0" },
    });
    operator = await openOperator(platform);
    imageId = await operator.registerImage(image.reference);
  });
  afterAll(async () => {
    await platform?.stop();
    await image?.remove();
  });

  /** SIGKILL, and a start after a while. */
  const crash = (part: Part, index: number) => async () => {
    const replica = platform.replica(part, index);
    await replica.kill();
    await delay(1_000);
    await replica.start();
  };
  const crashPrimary = async () => {
    const primary = await platform.mongo.primary();
    await primary.kill();
    await delay(4_000);
    await primary.start();
  };
  const crashNats = async () => {
    await platform.nats.kill();
    await delay(1_500);
    await platform.nats.start();
  };
  const wipeNats = async () => {
    await platform.nats.kill();
    await platform.nats.wipe();
    await platform.nats.start();
  };

  test("lose no acknowledged write, repeat none, and leak nothing", async () => {
    const facades = [0, 1].map((index) => createClient(platform.replica("facade", index).url));
    const { journal, send } = createCallers({ facades, operator, imageId, callers: 6 });
    const faults = [
      ...serviceNames.map((service) => crash(service, 0)),
      crashPrimary,
      crashNats,
      crash("facade", 1),
      crash("sandbox", 1),
      wipeNats,
      crash("image-registry", 1),
      crashPrimary,
      crash("workspace", 1),
      crashNats,
      crash("telemetry", 1),
    ];
    for (const inject of faults) await send(Math.ceil(requests / faults.length), inject());

    expect(journal.violations).toEqual([]);
    expect(journal.requests).toBeGreaterThanOrEqual(requests);
    const acknowledged = journal.things.filter(({ id }) => id !== undefined);
    expect(new Set(acknowledged.map(({ kind }) => kind))).toEqual(new Set(["workspace", "image", "token", "sandbox"]));
    await expect
      .poll(() => findProblems({ platform, journal, operator, loggedLines }), { timeout: 300_000, interval: 3_000 })
      .toEqual([]);
    expect(await findForgottenAnswers(journal)).toEqual([]);

    // The checker would find a write that was lost, and its missing event.
    const [image] = acknowledged.filter(({ kind, workspace }) => kind === "image" && workspace?.gone === "no");
    const things = image ? [...journal.things, { ...image, name: "lost", id: "lost", gone: "no" as const }] : [];
    const lost = await findProblems({ platform, journal: { ...journal, things }, operator, loggedLines });
    expect(lost).toEqual([expect.stringContaining("image lost"), expect.stringContaining("image lost")]);
  });
});
