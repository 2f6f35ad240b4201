import { serviceNames } from "@sandgate/kit/base/service-names";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { createClient } from "../conformance/client.ts";
import { requireDistributed } from "../platform/distributed/platform.ts";
import type { Part } from "../platform/distributed/replica.ts";
import { createCallers } from "./callers.ts";
import { findForgottenAnswers, findProblems } from "./checker.ts";
import { acknowledgedIn } from "./journal.ts";
import { expectConsistent, type LoggingPlatform, startLoggingPlatform } from "./logging-platform.ts";
import { crash } from "./outages.ts";

vi.setConfig({ testTimeout: 1_500_000 });

/** The least number of requests in all. */
const requests = Number(process.env.SANDGATE_FAULT_REQUESTS ?? 1_000);
const isAvailable = (await requireDistributed()) && (await requireServer("docker", probeEngine));

describe.runIf(isAvailable)("crashes of every process in turn", () => {
  let on: LoggingPlatform;

  beforeAll(async () => {
    on = await startLoggingPlatform(20, { members: 3 });
  });
  afterAll(() => on?.[Symbol.asyncDispose]());

  const crashReplica = (part: Part, index: number) => () => crash(on.platform.replica(part, index), 1_000);
  const crashPrimary = async () => crash(await on.platform.mongo.primary(), 4_000);
  const crashNats = () => crash(on.platform.nats, 1_500);
  const wipeNats = async () => {
    const { nats } = on.platform;
    await nats.kill();
    await nats.wipe();
    await nats.start();
  };

  test("lose no acknowledged write, repeat none, and leak nothing", async () => {
    const facades = [0, 1].map((index) => createClient(on.platform.replica("facade", index).url));
    const { journal, send } = createCallers({ ...on, facades, callers: 6 });
    const faults = [
      ...serviceNames.map((service) => crashReplica(service, 0)),
      crashPrimary,
      crashNats,
      crashReplica("facade", 1),
      crashReplica("sandbox", 1),
      wipeNats,
      crashReplica("image-registry", 1),
      crashPrimary,
      crashReplica("workspace", 1),
      crashNats,
      crashReplica("telemetry", 1),
    ];
    for (const inject of faults) await send(Math.ceil(requests / faults.length), inject());

    expect(journal.requests).toBeGreaterThanOrEqual(requests);
    await expectConsistent(journal, on, 300_000);
    expect(await findForgottenAnswers(journal)).toEqual([]);

    // The checker would find a write that was lost, and its missing event.
    const [image] = acknowledgedIn(journal, "image").filter(({ workspace }) => workspace?.gone === "no");
    const things = image ? [...journal.things, { ...image, name: "lost", id: "lost", gone: "no" as const }] : [];
    const lost = await findProblems({ ...on, journal: { ...journal, things } });
    expect(lost).toEqual([expect.stringContaining("image lost"), expect.stringContaining("image lost")]);
  });
});
