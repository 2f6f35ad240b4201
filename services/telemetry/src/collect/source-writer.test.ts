import { create } from "@bufbuild/protobuf";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { createLogger } from "@sandgate/kit/base/logging";
import { IngestTelemetryResponseSchema } from "@sandgate/proto/telemetry/v1/telemetry";
import pLimit from "p-limit";
import { expect, test } from "vitest";
import { type IngestClient, openSourceWriter } from "./source-writer.ts";

const logger = createLogger({ service: "telemetry", level: "silent" });

test("what the store has no room for is sent again until it has", async () => {
  let isFull = false;
  let refused = 0;
  const stored: string[] = [];
  const client: IngestClient = {
    async ingestTelemetry({ logs = [], toCursor = "" }) {
      if (isFull) {
        refused += 1;
        isFull = refused < 3;
        throw new DomainError("STORAGE_FULL", "less is free than the reserve");
      }
      stored.push(...logs.map(({ log = "" }) => log));
      return create(IngestTelemetryResponseSchema, { accepted: true, storedCursor: toCursor });
    },
  };
  const source = { sandboxId: "s1", workspaceId: "w1", containerId: "c1", kind: "logs" } as const;
  const { signal } = new AbortController();
  const writer = await openSourceWriter({ source, client, limit: pLimit(2), logger, signal });
  isFull = true;
  await writer.write({ logs: [{ timeNs: 1n, stream: "stdout", log: "kept" }] }, "1", false);
  expect([refused, stored, writer.cursor]).toEqual([3, ["kept"], "1"]);
});
