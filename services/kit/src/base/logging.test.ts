import { until } from "@sandgate/test-support/until";
import { afterEach, describe, expect, test } from "vitest";
import { createLogger, createStateLog, logConsole } from "./logging.ts";

function collect(level?: string) {
  const lines: string[] = [];
  const logger = createLogger({ service: "test", ...(level && { level }) }, { write: (line) => lines.push(line) });
  return { logger, lines };
}

test("a line is JSON with time, level, service and cause", () => {
  const { logger, lines } = collect();
  logger.error({ err: new Error("outer", { cause: new Error("inner") }) }, "it failed");
  const entry = JSON.parse(lines[0] ?? "");
  expect(entry).toMatchObject({ level: "error", service: "test", msg: "it failed" });
  expect(new Date(entry.time).toISOString()).toBe(entry.time);
  expect(entry.err.stack).toContain("inner");
});

test("secrets are redacted", () => {
  const { logger, lines } = collect();
  logger.info({ authorization: "s3cret", headers: { authorization: "s3cret" }, a: { b: { password: "s3cret" } } }, "x");
  logger.info({ token: "s3cret", body: { refresh_token: "s3cret" } }, "x");
  logger.info({ body: { current_password: "s3cret", recaptchaToken: "s3cret", otp: "s3cret" } }, "x");
  expect(lines.join("")).not.toContain("s3cret");
  expect(lines.join("").match(/\[redacted\]/g)).toHaveLength(8);
});

test("the level holds", () => {
  const { logger, lines } = collect("warn");
  logger.info("quiet");
  expect(lines).toEqual([]);
});

describe("a state", () => {
  test("is logged when it begins, has another reason or comes back, and not when it lasts", () => {
    const { logger, lines } = collect();
    const tell = createStateLog(logger, "it can't be read");
    for (const reason of [undefined, "busy", "busy", "gone", undefined, undefined, "gone"]) tell(reason);
    const entry = (reason: string) => ({ level: "warn", reason, msg: "it can't be read" });
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([entry("busy"), entry("gone"), entry("gone")]);
  });

  test("has the level and details that it is given, and its end where there are words for it", () => {
    const { logger, lines } = collect();
    const tell = createStateLog(logger, "it is measured", { level: "info", over: "it is limited" });
    tell("xfs", { storage: "xfs", bytes: 1 });
    tell(undefined);
    tell(undefined);
    const entries = lines.map((line) => JSON.parse(line));
    expect(entries).toMatchObject([
      { level: "info", storage: "xfs", bytes: 1, msg: "it is measured" },
      { level: "info", msg: "it is limited" },
    ]);
    expect(entries[0]).not.toHaveProperty("reason");
  });
});

describe("what is printed with console, and Node's warnings", () => {
  const { console: printing } = globalThis;
  const before = { ...printing };
  const warningListeners = process.listeners("warning");
  afterEach(() => {
    Object.assign(printing, before);
    process.removeAllListeners("warning");
    for (const listener of warningListeners) process.on("warning", listener);
  });

  test("become lines of the log, with level and cause", async () => {
    const { logger, lines } = collect("debug");
    logConsole(logger);
    const { console } = globalThis;
    console.error("%s failed", "it", new Error("the cause"));
    console.warn({ a: 1 });
    console.log("one\ntwo");
    process.emitWarning("old", "DeprecationWarning");
    await until(() => expect(lines).toHaveLength(4));
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([
      { level: "error", msg: "it failed", err: { message: "the cause" } },
      { level: "warn", msg: "{ a: 1 }" },
      { level: "info", msg: "one\ntwo" },
      { level: "warn", msg: "old", err: { message: "old" } },
    ]);
  });
});
