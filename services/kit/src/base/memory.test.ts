import { expect, test } from "vitest";
import { free } from "./memory.ts";

test("bytes that have their memory to themselves are freed at once", () => {
  const bytes = Buffer.allocUnsafeSlow(65_536);

  free(bytes);

  expect(bytes.buffer).toMatchObject({ detached: true, byteLength: 0 });
});

test("bytes that share their memory stay, with all of it", () => {
  const whole = Buffer.from("all of it, and more".repeat(1000));
  const pooled = Buffer.from("one of the pool");
  const shared = new Uint8Array(new SharedArrayBuffer(8)).fill(1);

  free(whole.subarray(1));
  free(whole.subarray(0, -1));
  free(pooled);
  free(shared);

  expect(whole.toString()).toBe("all of it, and more".repeat(1000));
  expect(pooled.toString()).toBe("one of the pool");
  expect([...shared]).toEqual(Array(8).fill(1));
});
