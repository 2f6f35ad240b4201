import { Writable } from "node:stream";
import { expect, test } from "vitest";
import { createLogger } from "./logging.ts";
import { counter, createMetrics, gauge, printMetrics } from "./metrics.ts";

test("a metric that can't be read is left out and logged, and all others are printed", async () => {
  const lines: string[] = [];
  const destination = new Writable({
    write(line, _encoding, done) {
      lines.push(String(line));
      done();
    },
  });
  const logger = createLogger({ service: "test" }, destination);
  const [one, other] = [createMetrics(), createMetrics()];
  counter(one, { name: "sandgate_things_total", help: "Things" }).inc(2);
  gauge(one, { name: "sandgate_failing", help: "Fails", collect: () => Promise.reject(new Error("the disk is gone")) });
  gauge(one, { name: "sandgate_silent", help: "Never comes", collect: () => new Promise(() => {}) });
  gauge(one, { name: "sandgate_shared", help: "In both", collect: () => Promise.reject(new Error("not here")) });
  gauge(other, { name: "sandgate_shared", help: "In both" }).set(3);

  const text = await printMetrics([one, other], logger);
  const series = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  expect(series).toEqual(["sandgate_things_total 2", "sandgate_shared 3"]);
  const failures = lines.map((line) => JSON.parse(line));
  expect(failures.map(({ metric, err }) => `${metric}: ${err.message}`)).toEqual([
    "sandgate_failing: the disk is gone",
    "sandgate_shared: not here",
    "sandgate_silent: The operation was aborted due to timeout",
  ]);
});
