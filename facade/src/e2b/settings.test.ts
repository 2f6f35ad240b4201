import { expect, test } from "vitest";
import { readFacadeSettings } from "../settings.ts";

const read = (publicUrl: string, domain: string, more: NodeJS.ProcessEnv = {}) =>
  readFacadeSettings({ SANDGATE_PUBLIC_URL: publicUrl, SANDGATE_E2B_DOMAIN: domain, ...more });

test.each(["https://api.example.com", "https://Sandbox.example.com:8443", "https://3000-abc.example.com/v1"])(
  "%s would lead to the routes for E2B's programs instead of the API",
  (publicUrl) => {
    expect(() => read(publicUrl, "example.com:8443")).toThrow("SANDGATE_PUBLIC_URL");
    expect(read(publicUrl, "e2b.example.com").e2bDomain).toBe("e2b.example.com");
  },
);

test("the domain is a host name that previews don't have, and the API may be on any other host below it", () => {
  expect(() => read("https://api.test", "E2B.example.com")).toThrow("host name");
  expect(() => read("https://api.test", "https://example.com")).toThrow("host name");
  const previews = { SANDGATE_PREVIEW_DOMAIN: "previews.test" };
  expect(() => read("https://api.test", "e2b.previews.test", previews)).toThrow("SANDGATE_PREVIEW_DOMAIN");
  for (const publicUrl of ["https://example.com", "https://sandgate.example.com", "https://api.other.example.com"]) {
    expect(read(publicUrl, "example.com").publicUrl).toBe(publicUrl);
  }
});
