import { expect, test } from "vitest";
import { deepFreeze, rememberFrozen } from "./freeze.ts";

test("what is made of a frozen object is made once, and is frozen all through", () => {
  let calls = 0;
  const double = rememberFrozen(({ parts }: { parts: { size: number }[] }) => {
    calls++;
    return { parts: parts.map(({ size }) => ({ size: size * 2 })) };
  });
  const source = deepFreeze({ parts: [{ size: 1 }] });
  const made = double(source);
  expect(double(source)).toBe(made);
  expect(calls).toBe(1);
  expect(made).toEqual({ parts: [{ size: 2 }] });
  expect(() => made.parts.push({ size: 3 })).toThrow(TypeError);
  expect(() => Object.assign(made.parts[0] ?? {}, { size: 4 })).toThrow(TypeError);
});

test("an object that may change is read each time", () => {
  const sizeOf = rememberFrozen(({ size }: { size: number }) => ({ size }));
  const source = { size: 1 };
  expect(sizeOf(source)).toEqual({ size: 1 });
  source.size = 2;
  expect(sizeOf(source)).toEqual({ size: 2 });
});
