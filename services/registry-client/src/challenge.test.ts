import { expect, test } from "vitest";
import { parseChallenge } from "./challenge.ts";

test("a bearer challenge is read with its parameters, commas inside them included", () => {
  const header =
    'Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/alpine:pull,push"';
  expect(parseChallenge(header)).toEqual({
    scheme: "bearer",
    realm: "https://auth.docker.io/token",
    service: "registry.docker.io",
    scope: "repository:library/alpine:pull,push",
  });
});

test("of several challenges the bearer one is met", () => {
  expect(parseChallenge('Basic realm="Registry", Bearer realm="https://a.example/t", error="invalid_token"')).toEqual({
    scheme: "bearer",
    realm: "https://a.example/t",
    service: undefined,
    scope: undefined,
  });
});

test("basic is met whatever its realm", () => {
  expect(parseChallenge('basic realm="Bearer realm of sorts"')).toEqual({ scheme: "basic" });
});

test("anything else is no challenge that can be met", () => {
  for (const header of [undefined, "", "Negotiate", 'Digest realm="x"', "Bearer", 'Bearer service="x"']) {
    expect(parseChallenge(header)).toBeUndefined();
  }
});
