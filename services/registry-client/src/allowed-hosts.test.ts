import { expect, test } from "vitest";
import { isPrivateHost, readAllowedHosts } from "./allowed-hosts.ts";

test.each([
  "127.0.0.1",
  "127.0.0.1:5000",
  "10.1.2.3",
  "172.16.0.1",
  "192.168.1.1:443",
  "169.254.169.254",
  "100.64.0.1",
  "0.0.0.0",
  "[::1]:5000",
  "[fd00::1]",
  "[fe80::1]",
  "[::ffff:10.0.0.1]",
  "[64:ff9b::a00:1]",
  "[::7f00:1]",
  "[4000::1]",
  "2130706433",
  "0x7f.1",
  "localhost",
  "LOCALHOST:5000",
  "registry.localhost",
])("%s is private", (host) => {
  expect(isPrivateHost(host)).toBe(true);
});

test.each(["docker.io", "8.8.8.8", "[2606:4700::1111]:443", "[64:ff9b::8c52:7922]", "registry.example.com:5000"])(
  "%s is not",
  (host) => {
    expect(isPrivateHost(host)).toBe(false);
  },
);

test("an entry without a port means every port, one with a port that port alone", () => {
  const allowed = readAllowedHosts(["registry.internal", "127.0.0.1:5000", "[::1]:5000"]);
  expect(allowed.names("registry.internal:8443")).toBe(true);
  expect(allowed.names("REGISTRY.internal")).toBe(true);
  expect(allowed.names("127.0.0.1:5000")).toBe(true);
  expect(allowed.names("127.0.0.1:5001")).toBe(false);
  expect(allowed.names("127.0.0.1")).toBe(false);
  expect(allowed.names("[::1]:5000")).toBe(true);
  expect(allowed.names("other.internal")).toBe(false);
});

test("a network permits the addresses in it, whatever the name", () => {
  const allowed = readAllowedHosts(["10.0.0.0/8", "fd00::/8"]);
  expect(allowed.names("10.2.3.4:5000")).toBe(true);
  expect(allowed.permits("registry.internal:5000", "10.2.3.4")).toBe(true);
  expect(allowed.permits("registry.internal:5000", "::ffff:10.2.3.4")).toBe(true);
  expect(allowed.permits("registry.internal:5000", "fd00::7")).toBe(true);
  expect(allowed.permits("registry.internal:5000", "192.168.0.1")).toBe(false);
});

test("a host that is not named is permitted at public addresses only", () => {
  const allowed = readAllowedHosts(["registry.internal:5000"]);
  expect(allowed.permits("evil.example", "8.8.8.8")).toBe(true);
  expect(allowed.permits("evil.example", "127.0.0.1")).toBe(false);
  expect(allowed.permits("evil.example", "64:ff9b::8.8.8.8")).toBe(true);
  expect(allowed.permits("evil.example", "64:ff9b::127.0.0.1")).toBe(false);
  expect(allowed.permits("evil.example", "64:ff9b:1::8.8.8.8")).toBe(false);
  expect(allowed.permits("registry.internal:5000", "127.0.0.1")).toBe(true);
});

test("an entry that is no host is refused", () => {
  expect(() => readAllowedHosts(["http://registry.internal"])).toThrow(/not a host/);
});
