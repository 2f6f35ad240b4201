import { expect, test } from "vitest";
import { createMemory } from "./sqlite-memory.ts";

test("what was found is remembered until a write begins, and not before it is answered", async () => {
  const memory = createMemory();
  let stored = 1;
  const find = memory.remember((key) => `${key} ${stored}`);
  expect(find("a")).toBe("a 1");
  stored = 2;
  expect([find("a"), find("b")]).toEqual(["a 1", "b 2"]);

  const first = Promise.withResolvers<string>();
  const second = Promise.withResolvers<string>();
  const writes = [memory.during(() => first.promise), memory.during(() => second.promise)];
  // A write that is under way may be seen already, or be undone.
  for (stored of [3, 4]) expect(find("a")).toBe(`a ${stored}`);
  first.resolve("done");
  expect(await writes[0]).toBe("done");
  for (stored of [5, 6]) expect(find("a")).toBe(`a ${stored}`);
  second.reject(new Error("refused"));
  await expect(writes[1]).rejects.toThrow("refused");
  for (stored of [7, 8]) expect(find("a")).toBe("a 7");
});

test("what isn't there is looked for each time", () => {
  let reads = 0;
  const find = createMemory().remember(() => {
    reads++;
    return undefined;
  });
  find("a");
  find("a");
  expect(reads).toBe(2);
});
