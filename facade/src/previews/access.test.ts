import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { createClient, createRouterTransport } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { PreviewAccess, PreviewService } from "@sandgate/proto/sandbox/v1/previews";
import { describe, expect, test } from "vitest";
import { createPreviewAccess, type PreviewRequest } from "./access.ts";

const label = "abcdefghijklmnopqrstuvwxyz";
const origin = `http://${label}.localhost:8080`;
const ours = { "x-sandgate-token": "good" };
const byCookie = { cookie: "a=1; __Host-sandgate=good" };

/** What a request is answered: the preview's port, where the browser is sent to, or the reason of the refusal. */
async function ask(request: Partial<PreviewRequest>, o: { public?: boolean; isMember?: boolean } = {}) {
  const asked: unknown[] = [];
  const transport = createRouterTransport((router) =>
    router.service(PreviewService, {
      resolvePreview(shown) {
        asked.push(shown);
        const secret = shown.token || shown.cookie;
        const { GRANTED, MISSING, INVALID } = PreviewAccess;
        const access = o.public || secret === "good" ? GRANTED : secret === "" ? MISSING : INVALID;
        return { preview: { id: newId(), workspaceId: newId(), port: 3000, public: o.public ?? false }, access };
      },
      openPreviewLink: ({ link }) => ({ cookie: `for ${link}`, expiresAt: timestampFromMs(0) }),
    }),
  );
  const access = createPreviewAccess({
    clients: { previews: createClient(PreviewService, transport) },
    scope: { isMember: async () => o.isMember ?? true },
  });
  const common = { label, origin, method: "GET", url: "/a?b=1", headers: {}, isWebSocket: false, requestId: "r" };
  const answer = await access.admit({ ...common, ...request }).catch((error: unknown) => {
    if (error instanceof DomainError) return error.reason;
    throw error;
  });
  if (typeof answer === "string" || "location" in answer) return answer;
  const { preview, ...passedOn } = answer;
  return { port: preview.port, ...passedOn };
}

const admitted = { port: 3000, url: "/a?b=1", cookie: undefined };

test("a private preview opens by its token or its cookie, which go no further", async () => {
  expect(await ask({})).toBe("UNAUTHENTICATED");
  expect(await ask({ headers: { "x-sandgate-token": "bad" } })).toBe("INVALID_TOKEN");
  expect(await ask({ headers: { cookie: "__Host-sandgate=bad" } })).toBe("INVALID_TOKEN");
  expect(await ask({ headers: { cookie: `__Host-sandgate=${"x".repeat(5_000)}` } })).toBe("INVALID_TOKEN");
  expect(await ask({ headers: ours })).toEqual(admitted);
  expect(await ask({ headers: byCookie })).toEqual({ ...admitted, cookie: "a=1" });
  expect(await ask({ headers: { ...byCookie, "x-sandgate-token": "bad" } })).toBe("INVALID_TOKEN");
  expect(await ask({ headers: { authorization: "Bearer good" } })).toBe("UNAUTHENTICATED");
});

test("a public one opens to all, and ours go no further either", async () => {
  const url = "/a?b=1&sandgate_link=x";
  expect(await ask({ url, headers: byCookie }, { public: true })).toEqual({ ...admitted, cookie: "a=1" });
});

test("it ends with its creator's membership, and no label can be what none looks like", async () => {
  expect(await ask({ headers: ours }, { isMember: false })).toBe("NOT_FOUND");
  expect(await ask({ headers: ours, label: "3000-x" })).toBe("NOT_FOUND");
});

describe("a link", () => {
  test("gives the browser a cookie, and sends it to the same path on this host", async () => {
    const sent = await ask({ url: "//evil.example/?b=1&sandgate_link=x" });
    expect(sent).toEqual({ location: `${origin}//evil.example/?b=1`, setCookie: expect.stringContaining("=for x;") });
  });

  test("is spent by a navigation alone", async () => {
    const url = "/?sandgate_link=x";
    expect(await ask({ url, method: "POST" })).toBe("UNAUTHENTICATED");
    expect(await ask({ url, method: "HEAD" })).toBe("UNAUTHENTICATED");
    expect(await ask({ url, isWebSocket: true })).toBe("UNAUTHENTICATED");
    expect(await ask({ url: `/?sandgate_link=${"x".repeat(5_000)}` })).toBe("INVALID_TOKEN");
  });
});

test.each([
  [{ origin: "https://evil.example" }, false],
  [{ origin: "null" }, false],
  [{ origin: `http://${label}.localhost` }, false],
  [{ origin: "https://evil.example", "sec-fetch-site": "same-origin" }, false],
  [{}, false],
  [{ "sec-fetch-site": "same-site" }, false],
  [{ origin }, true],
  [{ "sec-fetch-site": "same-origin" }, true],
])(
  "by cookie, what changes something comes from the preview's own pages: %j is admitted: %s",
  async (headers, isOwn) => {
    const ask2 = (request: Partial<PreviewRequest>) => ask({ ...request, headers: { ...byCookie, ...headers } });
    const answer = isOwn ? { ...admitted, cookie: "a=1" } : "FORBIDDEN";
    for (const method of ["POST", "PUT", "DELETE", "OPTIONS"]) expect(await ask2({ method })).toEqual(answer);
    expect(await ask2({ isWebSocket: true })).toEqual(answer);
    for (const method of ["GET", "HEAD"]) expect(await ask2({ method })).toEqual({ ...admitted, cookie: "a=1" });
    expect(await ask({ method: "POST", headers: { ...ours, ...headers } })).toEqual(admitted);
  },
);
