import { expect, test } from "vitest";
import { readFacadeSettings } from "./settings.ts";
import { openTestPlatform } from "./test-platform.ts";

test("names every bad setting", async () => {
  const env = {
    SANDGATE_TRUSTED_PROXIES: "10.0.0.0/8,all",
    SANDGATE_REDIRECT_URIS: "x",
  };
  await expect(openTestPlatform({ env })).rejects.toThrow(
    /SANDGATE_TRUSTED_PROXIES has "all".*SANDGATE_REDIRECT_URIS has "x"/,
  );
});

test.each([
  [undefined, "http://127.0.0.1:8080"],
  ["https://Sandgate.Example.com:443", "https://sandgate.example.com"],
  ["https://sandgate.example.com/v//", "https://sandgate.example.com/v"],
])("the public address %s is what identity makes of it: %s", (SANDGATE_PUBLIC_URL, publicUrl) => {
  expect(readFacadeSettings({ SANDGATE_PUBLIC_URL }).publicUrl).toBe(publicUrl);
});

test("64: previews are of another site than the API", () => {
  const read = (SANDGATE_PREVIEW_DOMAIN: string, SANDGATE_PUBLIC_URL: string) =>
    readFacadeSettings({ SANDGATE_PREVIEW_DOMAIN, SANDGATE_PUBLIC_URL }).previewDomain;
  expect(read("preview.example.net", "https://api.example.com")).toBe("preview.example.net");
  expect(read("", "https://api.example.com")).toBe("localhost");
  expect(() => read("preview.example.com", "https://api.example.com/v")).toThrow(/another site/);
  for (const name of [
    "Preview.example.net",
    "preview.example.net:8080",
    "https://preview.example.net",
    ".net",
    "a b",
  ]) {
    expect(() => read(name, "https://api.example.com")).toThrow(/must be a domain name/);
  }
});
