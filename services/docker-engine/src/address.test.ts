import { expect, test } from "vitest";
import { findEngineAddress, parseEngineAddress, runtimeSetting } from "./address.ts";

test.each([
  ["docker:///var/run/docker.sock", { socketPath: "/var/run/docker.sock" }],
  ["unix:///run/user/1000/docker.sock", { socketPath: "/run/user/1000/docker.sock" }],
  ["docker:///a%20folder/docker.sock", { socketPath: "/a folder/docker.sock" }],
  ["docker://engine:2376", { host: "engine", port: 2376 }],
  ["tcp://192.0.2.1", { host: "192.0.2.1", port: 2375 }],
  ["docker:", undefined],
  ["docker:///", undefined],
  ["tcp:///var/run/docker.sock", undefined],
  ["unix://engine", undefined],
  ["ssh://engine", undefined],
  ["/var/run/docker.sock", undefined],
])("parses %s", (address, expected) => {
  expect(parseEngineAddress(address)).toEqual(expected);
});

test("the setting takes an engine's address with the scheme docker: alone", () => {
  expect(runtimeSetting.parse("docker://engine")).toBe("docker://engine");
  expect(runtimeSetting.parse("unix:///var/run/docker.sock")).toBeUndefined();
  expect(runtimeSetting.parse("docker:")).toBeUndefined();
});

test("SANDGATE_RUNTIME goes before DOCKER_HOST, which goes before the usual socket", () => {
  const env = { SANDGATE_RUNTIME: "docker://a", DOCKER_HOST: "tcp://b:1" };
  expect(findEngineAddress(env)).toBe("docker://a");
  expect(findEngineAddress({ ...env, SANDGATE_RUNTIME: "" })).toBe("docker://b:1");
  expect(findEngineAddress({ DOCKER_HOST: "unix:///a.sock" })).toBe("docker:///a.sock");
  expect(findEngineAddress({})).toBe("docker:///var/run/docker.sock");
});
