import { expect, test } from "vitest";
import { parseAllowedDestination, parseDestination } from "./egress.ts";

test("reads addresses and networks, with a port or without", () => {
  expect(["10.0.0.5", "10.1.0.0/16", "10.0.0.5:5432", "10.1.0.0/16:443"].map(parseDestination)).toEqual([
    { network: "10.0.0.5/32", port: undefined },
    { network: "10.1.0.0/16", port: undefined },
    { network: "10.0.0.5/32", port: 5432 },
    { network: "10.1.0.0/16", port: 443 },
  ]);
});

test.each([
  "",
  "db.internal",
  "fd00::/8",
  "10.0.0",
  "10.0.0.256",
  "10.0.0.0/33",
  "10.0.0.5:0",
  "10.0.0.5:65536",
  "10.0.0.5 -j ACCEPT",
])("refuses %j and says so", (text) => {
  expect(() => parseDestination(text)).toThrow(`"${text}"`);
});

test("refuses to open everything", () => {
  expect(() => parseAllowedDestination("0.0.0.0/0")).toThrow("too wide");
  expect(parseAllowedDestination("10.0.0.0/8")).toEqual({ network: "10.0.0.0/8", port: undefined });
});
