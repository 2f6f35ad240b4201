import { expect, test } from "vitest";
import { openTestPlatform } from "./test-platform.ts";

test("names every bad setting", async () => {
  const env = {
    SANDGATE_PUBLIC_URL: "ftp://x",
    SANDGATE_TRUSTED_PROXIES: "10.0.0.0/8,all",
    SANDGATE_REDIRECT_URIS: "x",
  };
  await expect(openTestPlatform({ env })).rejects.toThrow(
    /SANDGATE_PUBLIC_URL.*SANDGATE_TRUSTED_PROXIES has "all".*SANDGATE_REDIRECT_URIS has "x"/,
  );
});
