import { mebibyte } from "@sandgate/kit/base/sizes";
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

test("a challenge with a token68, or spaces, keeps none of the others from being met", () => {
  expect(parseChallenge('Negotiate YWJj==, Basic realm="Registry"')).toEqual({ scheme: "basic" });
  expect(parseChallenge('Bearer  realm=https://a.example/t ,\tservice="a \\"b\\""')).toEqual({
    scheme: "bearer",
    realm: "https://a.example/t",
    service: 'a "b"',
    scope: undefined,
  });
});

test.each(["a", "=", '"', ",", " ", "\\", "Bearer ", "Basic=", 'Bearer a="', 'a="\\"', "a= ", "Bearer realm,"])(
  "nothing but %j is read in linear time",
  (unit) => {
    // No header is as long. In quadratic time this takes minutes.
    expect(parseChallenge(unit.repeat(mebibyte / unit.length))).toBeOneOf([undefined, { scheme: "basic" }]);
  },
);

test("anything else is no challenge that can be met", () => {
  for (const header of [undefined, "", "Negotiate", 'Digest realm="x"', "Bearer", 'Bearer service="x"']) {
    expect(parseChallenge(header)).toBeUndefined();
  }
});
