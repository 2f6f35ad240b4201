import { readSettings } from "@sandgate/kit/base/settings";
import { expect, test } from "vitest";
import { parseSandboxSettings, sandboxSettings } from "./settings.ts";

const parse = (env: NodeJS.ProcessEnv) => parseSandboxSettings(readSettings(sandboxSettings, env));

test("reads the lists of destinations", () => {
  expect(
    parse({
      SANDGATE_SANDBOX_EGRESS_DENY: "203.0.113.0/24, 198.51.100.7:6667",
      SANDGATE_SANDBOX_EGRESS_ALLOW: "10.0.0.5",
    }),
  ).toMatchObject({
    egressDeny: [
      { network: "203.0.113.0/24", port: undefined },
      { network: "198.51.100.7/32", port: 6667 },
    ],
    egressAllow: [{ network: "10.0.0.5/32", port: undefined }],
  });
});

test("takes one to three resolvers that sandboxes can reach, and says which it can't use", () => {
  const parseOf = (value: string) => parse({ SANDGATE_SANDBOX_NAMESERVERS: value });
  expect(parse({}).nameservers).toEqual(["1.1.1.1", "8.8.8.8"]);
  expect(parseOf("10.96.0.10, 1.1.1.1,9.9.9.9").nameservers).toEqual(["10.96.0.10", "1.1.1.1", "9.9.9.9"]);
  for (const bad of ["dns.example.com", "fd00:10:96::a", "127.0.0.53", "10.0.0.1/32"]) {
    expect(() => parseOf(`1.1.1.1,${bad}`)).toThrow(`SANDGATE_SANDBOX_NAMESERVERS: "${bad}" `);
  }
  for (const bad of [",", "1.1.1.1,1.0.0.1,8.8.8.8,8.8.4.4"]) {
    expect(() => parseOf(bad)).toThrow(/NAMESERVERS: .*one to three/);
  }
});

test("names every list that can't be read, and its entry", () => {
  const bad = { SANDGATE_SANDBOX_EGRESS_DENY: "10.0.0.0/33", SANDGATE_SANDBOX_EGRESS_ALLOW: "0.0.0.0/0" };
  expect(() => parse(bad)).toThrow(/EGRESS_DENY: "10\.0\.0\.0\/33" .*EGRESS_ALLOW: "0\.0\.0\.0\/0"/);
});
