import { actionTimeoutMs, openBrowser, probeBrowser } from "@sandgate/test-support/browser";
import { findFreePort } from "@sandgate/test-support/process";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { findFlaws } from "./flaws.ts";
import { type BrowserPlatform, openBrowserPlatform } from "./platform.ts";

/** Scalar's script has all but a tenth of them. */
const maxBytes = 1_600_000;

/** What Scalar itself gets wrong. */
const allowed = [
  {
    rule: "aria-required-attr",
    element: 'aria-label="Enter search query"',
    reason: "Scalar's search says that it is expanded only once something is typed.",
  },
];

describe.runIf(await requireServer("chromium", probeBrowser))("the reference", () => {
  let browser: Browser;
  let page: Page;
  let platform: BrowserPlatform;
  let removeFolder: () => Promise<void>;
  const problems: string[] = [];

  beforeAll(async () => {
    const folder = await createTempFolder();
    removeFolder = folder.remove;
    platform = await openBrowserPlatform({ folder: folder.path, port: await findFreePort() });
    browser = await openBrowser();
  });
  afterAll(async () => {
    await browser.close();
    await platform.close();
    await removeFolder();
  });
  beforeEach(async () => {
    problems.length = 0;
    page = await browser.newPage();
    page.setDefaultTimeout(actionTimeoutMs);
    page.on("pageerror", (error) => problems.push(error.message));
    page.on("console", (message) => message.type() === "error" && problems.push(message.text()));
  });
  afterEach(async () => {
    await page.close();
    expect(problems).toEqual([]);
  });

  test("is where the platform's first page leads, and is light", async () => {
    const session = await page.context().newCDPSession(page);
    await session.send("Network.enable");
    const loading = new Set<string>();
    let bytes = 0;
    session.on("Network.requestWillBeSent", ({ requestId }) => loading.add(requestId));
    session.on("Network.loadingFinished", ({ requestId, encodedDataLength }) => {
      loading.delete(requestId);
      bytes += encodedDataLength;
    });
    await page.goto(platform.url);
    await page.getByRole("heading", { name: "Quick start" }).waitFor();
    await expect.poll(() => [...loading]).toEqual([]);
    expect([page.url(), await page.title()]).toEqual([`${platform.url}/docs`, "Sandgate API"]);
    expect(bytes).toBeGreaterThan(1_000_000);
    expect(bytes).toBeLessThan(maxBytes);
  });

  test("can be read by everyone, on a phone too", async () => {
    await page.goto(`${platform.url}/docs#tag/sandbox-images/PUT/sandbox-images/{image_id}`);
    await page.getByRole("heading", { name: "Change a sandbox image" }).waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await page.keyboard.press("Control+k");
    await page.getByLabel("Enter search query").waitFor();
    expect(await findFlaws(page, { within: "[role=dialog]", allowed })).toEqual([]);
  });

  test("has a page of errors that can be read by everyone, on a phone too, and leads back", async () => {
    await page.goto(`${platform.url}/docs/errors#rate_limited`);
    expect(await findFlaws(page)).toEqual([]);
    expect(await page.title()).toBe("Errors - Sandgate API");
    await page.getByRole("link", { name: "Sandgate API" }).click();
    await page.waitForURL(`${platform.url}/docs`);
  });
});
