import fc from "fast-check";
import { expect, test } from "vitest";
import { formatReference, isTag, parseReference } from "./reference.ts";

const sha256 = `sha256:${"0123456789abcdef".repeat(4)}`;

// Cases of github.com/distribution/reference's own tests among them.
test.each([
  ["alpine", "docker.io/library/alpine:latest"],
  ["alpine:3.20", "docker.io/library/alpine:3.20"],
  ["docker.io/alpine", "docker.io/library/alpine:latest"],
  ["index.docker.io/alpine", "docker.io/library/alpine:latest"],
  ["library/alpine", "docker.io/library/alpine:latest"],
  ["user/tool:v1", "docker.io/user/tool:v1"],
  ["test.com/repo:tag", "test.com/repo:tag"],
  ["test:5000/repo", "test:5000/repo:latest"],
  ["localhost/repo", "localhost/repo:latest"],
  ["localhost:8080/a/b/c", "localhost:8080/a/b/c:latest"],
  ["127.0.0.1:5000/tool", "127.0.0.1:5000/tool:latest"],
  ["[2001:db8::1]:5000/tool", "[2001:db8::1]:5000/tool:latest"],
  ["Uppercase.Example/tool", "uppercase.example/tool:latest"],
  ["Localhost/tool", "localhost/tool:latest"],
  ["MyRegistry/team/tool", "myregistry:443/team/tool:latest"],
  ["b.gcr.io/test.example.com/my-app:test.example.com", "b.gcr.io/test.example.com/my-app:test.example.com"],
  [`ghcr.io/a/b:1@${sha256}`, `ghcr.io/a/b@${sha256}`],
  ["foo_bar.com:8080", "docker.io/library/foo_bar.com:8080"],
  ["a__b/c--d/e.f", "docker.io/a__b/c--d/e.f:latest"],
])("%s is %s", (text, full) => {
  const reference = parseReference(text);
  expect(reference && formatReference(reference)).toBe(full);
});

test.each([
  "",
  ":tag",
  "Upper",
  "repo:",
  "repo:-tag",
  `repo:${"t".repeat(129)}`,
  "repo@sha256:short",
  `repo@sha256:${"Z".repeat(64)}`,
  "a//b",
  "a/",
  "/a",
  "-a/b",
  "a_/b",
  "a...b",
  "a b",
  "https://test.com/repo",
  "xn--n3h.com/☃",
  "0123456789abcdef".repeat(4),
  "user:pass@host/repo",
  "host:port/repo",
  "TEST.com/Repo",
  "a".repeat(238),
  `Host/${"a".repeat(247)}`,
])("%j is no reference", (text) => {
  expect(parseReference(text)).toBeUndefined();
});

test("what was formatted, with any tag or digest, parses to the same", () => {
  const host = fc.constantFrom("", "ghcr.io/", "localhost:5000/", "Localhost/", "MyHost/", "10.0.0.1/", "[::1]:5000/");
  const repository = fc.stringMatching(/^[a-z0-9]{1,80}(\/[a-z0-9]{1,80}){0,3}$/);
  const tag = fc.stringMatching(/^[\w][\w.-]{0,127}$/).filter(isTag);
  fc.assert(
    fc.property(host, repository, tag, fc.option(fc.constant(sha256)), (host, repository, tag, digest) => {
      const named = parseReference(`${host}${repository}`);
      fc.pre(named !== undefined);
      const full = formatReference({ ...named, tag, digest: digest ?? undefined });
      const parsed = parseReference(full);
      expect(parsed).toMatchObject({ host: named.host, repository: named.repository });
      expect(parsed && formatReference(parsed)).toBe(full);
    }),
  );
});

test("a long hostile text is refused without delay", () => {
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom("a", "-", ".", "_", "/", ":"), maxLength: 255 }), (text) => {
      parseReference(text);
    }),
  );
});
