import { expect, test } from "vitest";
import { createContentCache } from "./content-cache.ts";

test("contents are known for their host alone, and go by when they were last used", () => {
  const cache = createContentCache(10);
  const content = (text: string) => Buffer.from(text);
  cache.set("a.example", "sha256:1", content("1111"));
  cache.set("a.example", "sha256:2", content("2222"));
  expect(cache.get("b.example", "sha256:1")).toBeUndefined();
  expect(cache.get("a.example", "sha256:1")).toEqual(content("1111"));
  cache.set("a.example", "sha256:3", content("3333"));
  expect(cache.get("a.example", "sha256:2")).toBeUndefined();
  expect(cache.get("a.example", "sha256:1")).toEqual(content("1111"));
  cache.set("a.example", "sha256:4", content("longer than all"));
  expect(cache.get("a.example", "sha256:4")).toBeUndefined();
});
