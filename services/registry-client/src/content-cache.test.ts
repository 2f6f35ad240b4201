import { expect, test } from "vitest";
import { createContentCache } from "./content-cache.ts";

test("contents are known for their host alone, and go by when they were last used", () => {
  const cache = createContentCache(1_050);
  const content = (text: string) => Buffer.from(text);
  cache.set("a.example", "sha256:1", content("1111"));
  cache.set("a.example", "sha256:2", content("2222"));
  expect(cache.get("b.example", "sha256:1")).toBeUndefined();
  expect(cache.get("a.example", "sha256:1")).toEqual(content("1111"));
  cache.set("a.example", "sha256:3", content("3333"));
  expect(cache.get("a.example", "sha256:2")).toBeUndefined();
  expect(cache.get("a.example", "sha256:1")).toEqual(content("1111"));
  cache.set("a.example", "sha256:4", content("longer than all".repeat(100)));
  expect(cache.get("a.example", "sha256:4")).toBeUndefined();
});

test("contents of a few bytes don't become too many", () => {
  const cache = createContentCache(10_000);
  for (let each = 0; each < 1_000; each++) cache.set("a.example", `sha256:${each}`, Buffer.from("1"));
  const kept = Array.from({ length: 1_000 }, (_, each) => cache.get("a.example", `sha256:${each}`)).filter(Boolean);
  expect(kept.length).toBeLessThan(20);
});
