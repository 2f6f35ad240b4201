import { create } from "@bufbuild/protobuf";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { createLogger } from "@sandgate/kit/base/logging";
import { IngestTelemetryResponseSchema } from "@sandgate/proto/telemetry/v1/telemetry";
import { until } from "@sandgate/test-support/until";
import pLimit from "p-limit";
import { expect, test, vi } from "vitest";
import { CursorMoved, type IngestClient, openSourceWriter, SourceRefused } from "./source-writer.ts";

const logger = createLogger({ service: "telemetry", level: "silent" });

test("what the store has no space for is sent again until it has", async () => {
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
  const source = { sandboxId: "s1", containerId: "c1", kind: "logs" } as const;
  const { signal } = new AbortController();
  const writer = await openSourceWriter({ source, client, limit: pLimit(2), logger, signal });
  isFull = true;
  await writer.write(() => ({ logs: [{ timeNs: 1n, stream: "stdout", log: "kept" }], toCursor: "1" }));
  expect([refused, stored, writer.cursor]).toEqual([3, ["kept"], "1"]);
});

test("rows are taken once, when their turn has come, and sent again as they were", async () => {
  const sent: string[][] = [];
  const client: IngestClient = {
    async ingestTelemetry({ logs = [], toCursor = "" }) {
      sent.push(logs.map(({ log = "" }) => log));
      if (sent.length === 2) throw new DomainError("STORAGE_FULL", "less is free than the reserve");
      return create(IngestTelemetryResponseSchema, { accepted: true, storedCursor: toCursor });
    },
  };
  const source = { sandboxId: "s1", containerId: "c1", kind: "logs" } as const;
  const { signal } = new AbortController();
  const limit = pLimit(1);
  const writer = await openSourceWriter({ source, client, limit, logger, signal });
  const others = Promise.withResolvers<void>();
  void limit(() => others.promise);
  const waiting = ["1"];
  const take = vi.fn(() => ({
    logs: waiting.map((log) => ({ timeNs: 1n, stream: "stdout" as const, log })),
    toCursor: `${waiting.length}`,
  }));
  const written = writer.write(take);
  waiting.push("2");
  others.resolve();
  await until(() => expect(sent).toHaveLength(2));
  waiting.push("3");
  await written;
  expect([sent, take.mock.calls.length, writer.cursor]).toEqual([[[], ["1", "2"], ["1", "2"]], 1, "2"]);
});

test("the cursor moves once the store has answered, to what the store says", async () => {
  const answers: { accepted: boolean; storedCursor: string }[] = [{ accepted: true, storedCursor: "5" }];
  const seen: (string | undefined)[] = [];
  let cursor = () => "";
  const client: IngestClient = {
    async ingestTelemetry({ fromCursor }) {
      seen.push(fromCursor, cursor());
      const answer = answers.shift();
      if (!answer) throw new DomainError("CONFLICT", "nothing more");
      return create(IngestTelemetryResponseSchema, answer);
    },
  };
  const source = { sandboxId: "s1", containerId: "c1", kind: "logs" } as const;
  const { signal } = new AbortController();
  const writer = await openSourceWriter({ source, client, limit: pLimit(2), logger, signal });
  cursor = () => writer.cursor;
  const write = (toCursor: string) => writer.write(() => ({ toCursor }));

  answers.push({ accepted: true, storedCursor: "7" });
  await write("7");
  // An earlier attempt stored it, and its answer was lost.
  answers.push({ accepted: false, storedCursor: "9" });
  await write("9");
  answers.push({ accepted: false, storedCursor: "20" });
  await expect(write("11")).rejects.toBeInstanceOf(CursorMoved);
  expect(writer.cursor).toBe("20");
  await expect(write("21")).rejects.toBeInstanceOf(SourceRefused);
  expect(writer.cursor).toBe("20");
  expect(seen.slice(2)).toEqual(["5", "5", "7", "7", "9", "9", "20", "20"]);
});

test.each(["SANDBOX_NOT_FOUND", "WORKSPACE_NOT_FOUND"] as const)(
  "a source that ends in %s is not sent again",
  async (reason) => {
    let sent = 0;
    const client: IngestClient = {
      async ingestTelemetry() {
        sent += 1;
        throw new DomainError(reason, "gone");
      },
    };
    const source = { sandboxId: "s1", containerId: "c1", kind: "logs" } as const;
    const { signal } = new AbortController();
    await expect(openSourceWriter({ source, client, limit: pLimit(2), logger, signal })).rejects.toThrow(SourceRefused);
    expect(sent).toBe(1);
  },
);
