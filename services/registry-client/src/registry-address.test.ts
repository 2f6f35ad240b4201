import { expect, test } from "vitest";
import { readAllowedHosts } from "./allowed-hosts.ts";
import { canonicalHost, findHostIssue, findUrlIssue, isAtRegistry, parseRegistryUrl } from "./registry-address.ts";

test.each([
  ["ghcr.io", "ghcr.io", undefined],
  ["https://GHCR.io", "ghcr.io", "https"],
  ["https://registry.example.com:443", "registry.example.com", "https"],
  ["http://registry.internal:80", "registry.internal", "http"],
  ["http://registry.internal:443", "registry.internal:443", "http"],
  ["127.0.0.1:5000", "127.0.0.1:5000", undefined],
  ["http://[::1]:5000", "[::1]:5000", "http"],
  ["[::1]", "[::1]", undefined],
  ["https://registry-1.docker.io", "docker.io", "https"],
  ["index.docker.io", "docker.io", undefined],
])("%s is the registry %s", (url, host, scheme) => {
  expect(parseRegistryUrl(url)).toEqual({ host, scheme });
});

test.each([
  "",
  "ftp://ghcr.io",
  "https://",
  "https://ghcr.io/",
  "https://ghcr.io/path",
  "https://user:password@ghcr.io",
  "ghcr.io?x",
  "ghcr.io:0",
  "ghcr.io:65536",
  "[1:2]",
  "[1:2]:443",
  "1.2.3.400",
  "ghcr.io:port",
  "-ghcr.io",
  "gh cr.io",
])("%j is no registry URL", (url) => {
  expect(parseRegistryUrl(url)).toBeUndefined();
});

test("http and private addresses are for hosts that an operator named", () => {
  const allowed = readAllowedHosts(["registry.internal", "127.0.0.1:5000", "10.0.0.0/8"]);
  const issue = (url: string) => {
    const address = parseRegistryUrl(url);
    return address && findUrlIssue(address, allowed);
  };
  expect(issue("http://registry.internal:8080")).toBeUndefined();
  expect(issue("http://127.0.0.1:5000")).toBeUndefined();
  expect(issue("10.0.0.7")).toBeUndefined();
  expect(issue("https://ghcr.io")).toBeUndefined();
  expect(issue("http://ghcr.io")).toMatch(/https/);
  expect(issue("127.0.0.1:5001")).toMatch(/private/);
  expect(issue("https://localhost")).toMatch(/private/);
  expect(issue("https://169.254.169.254")).toMatch(/private/);
  expect(findHostIssue("127.0.0.1:5000", allowed)).toBeUndefined();
  expect(findHostIssue("localhost:5000", allowed)).toMatch(/localhost:5000.+private/);
  expect(findHostIssue("127.0.0.1", allowed)).toMatch(/127\.0\.0\.1:443.+private/);
  expect(findHostIssue("docker.io", allowed)).toBeUndefined();
});

test.each(["ghcr.io:0", "ghcr.io:00", "ghcr.io:65536", "ghcr.io:100000", "[1:2]", "[::1]:0", "1.2.3.400"])(
  "no image is at %s",
  (host) => {
    expect(findHostIssue(host, readAllowedHosts(["ghcr.io"]))).toMatch(/can't be/);
  },
);

test("an image may be at any port that there is", () => {
  for (const host of ["ghcr.io:1", "ghcr.io:65535", "[2001:4860::1]:443", "[2001:4860::1]"]) {
    expect(findHostIssue(host, readAllowedHosts([]))).toBeUndefined();
  }
});

test("hosts compare in one form", () => {
  expect(canonicalHost("GHCR.io:443")).toBe("ghcr.io");
  expect(canonicalHost("registry-1.docker.io")).toBe("docker.io");
});

test("an image is at a registry with or without the default port of its scheme", () => {
  const isAt = (host: string, url: string) => {
    const address = parseRegistryUrl(url);
    return address && isAtRegistry(host, address);
  };
  for (const url of ["http://a.example", "http://a.example:80"]) {
    expect([isAt("a.example", url), isAt("a.example:80", url)]).toEqual([true, true]);
  }
  for (const url of ["a.example", "https://a.example", "https://a.example:443"]) {
    expect([isAt("a.example", url), isAt("A.example:443", url)]).toEqual([true, true]);
    expect([isAt("a.example:80", url), isAt("b.example", url)]).toEqual([false, false]);
  }
  expect([isAt("a.example:443", "http://a.example:443"), isAt("a.example", "http://a.example:443")]).toEqual([
    true,
    false,
  ]);
});
