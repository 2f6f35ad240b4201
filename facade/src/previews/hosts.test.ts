import { expect, test } from "vitest";
import { createPreviewHosts, isSameSite } from "./hosts.ts";

const local = createPreviewHosts({ domain: "localhost", port: () => 8080 });
const deployed = createPreviewHosts({ domain: "box.example.net", port: () => 8080 });

const label = "abcdefghijklmnopqrstuvwxyz";

test.each([
  [`${label}.localhost:8080`, label],
  [`${label.toUpperCase()}.LocalHost`, label],
  [`${label}.localhost.`, label],
  [`a.${label}.localhost`, undefined],
  ["api.localhost", undefined],
  [".localhost", undefined],
  ["localhost:8080", undefined],
  ["127.0.0.1:8080", undefined],
  [`${label}.localhost.example`, undefined],
  [`${label}localhost`, undefined],
  [undefined, undefined],
])("the host %j has the label %j on this machine", (host, label) => {
  expect(local.labelOf({ headers: { ...(host !== undefined && { host }) } })).toBe(label);
});

test("all of a domain of its own is of previews, and nothing beside it", () => {
  const labelOf = (host: string) => deployed.labelOf({ headers: { host } });
  expect(labelOf("abc.box.example.net")).toBe("abc");
  expect(labelOf("a.b.box.example.net")).toBe("a.b");
  expect(labelOf("box.example.net")).toBe("");
  expect(labelOf("api.example.net")).toBeUndefined();
  expect(labelOf(`${label}.localhost`)).toBeUndefined();
});

test("an origin has the API's port on this machine alone", () => {
  expect(local.originOf("abc")).toBe("http://abc.localhost:8080");
  expect(deployed.originOf("abc")).toBe("https://abc.box.example.net");
});

test.each([
  ["preview.example.com", "api.example.com", true],
  ["example.com", "api.example.com", true],
  ["api.example.com", "api.example.com", true],
  ["preview.api.example.co.uk", "example.co.uk", true],
  ["example.net", "api.example.com", false],
  ["sandgate-previews.example", "api.sandgate.example", false],
  ["one.github.io", "two.github.io", false],
  ["box.internal", "api.internal", false],
  ["box.corp.internal", "api.corp.internal", true],
  ["localhost", "localhost", false],
  ["example.net", "192.0.2.1", false],
])("previews at %s and the API at %s are of one site: %s", (domain, host, isSame) => {
  expect(isSameSite(domain, host)).toBe(isSame);
});
