import { actionTimeoutMs, openBrowser, probeBrowser } from "@sandgate/test-support/browser";
import { findFreePort } from "@sandgate/test-support/process";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import type { Browser, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { findFlaws } from "./flaws.ts";
import { type BrowserPlatform, openBrowserPlatform } from "./platform.ts";

const password = "correct horse battery";
const other = "another horse entirely";

describe.runIf(await requireServer("chromium", probeBrowser))("the pages behind mailed links", () => {
  let browser: Browser;
  let page: Page;
  let platform: BrowserPlatform;
  let removeFolder: () => Promise<void>;
  const seen = new Set<string>();
  let users = 0;
  let username: string;
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
    username = `user${++users}@example.com`;
    problems.length = 0;
    page = await browser.newPage();
    page.setDefaultTimeout(actionTimeoutMs);
    page.on("pageerror", (error) => problems.push(error.message));
  });
  afterEach(async () => {
    await page.close();
    expect(problems).toEqual([]);
  });

  /** The token of the next mail. */
  async function nextToken(): Promise<string> {
    const token = (await platform.mailedTokens(seen.size + 1)).find((each) => !seen.has(each)) ?? "";
    seen.add(token);
    return token;
  }

  async function register(): Promise<string> {
    await platform.call("/auth/register", { username, password });
    return nextToken();
  }

  async function forget(): Promise<string> {
    const token = await register();
    await platform.call("/auth/verify-email", { token, password });
    await platform.call("/auth/password/forgot", { username });
    return nextToken();
  }

  const open = (path: string) => page.goto(`${platform.url}${path}`);
  const submit = () => page.getByRole("button").click();
  const says = (text: string) => page.getByRole("status").filter({ hasText: text }).waitFor();
  const signIn = async (given: string) => (await platform.call("/auth/login", { username, password: given })).status;

  test("a registration's link verifies the address with the password that is typed there, and not by being opened", async () => {
    await open(`/auth/verify-email?token=${await register()}`);
    await submit();
    expect(await page.getByLabel("New password").evaluate((input) => input.matches(":invalid"))).toBe(true);
    expect(await signIn(password)).toBe(403);
    await page.getByLabel("New password").fill(other);
    await submit();
    await says("Your address is verified. You can sign in now.");
    expect(await page.getByRole("button").isVisible()).toBe(false);
    expect([await signIn(password), await signIn(other)]).toEqual([401, 200]);
  });

  test.each([
    ["/auth/verify-email", "Verify your e-mail address"],
    ["/auth/password/reset", "Set a new password"],
  ])(
    "%s asks no other server for anything, can be read by everyone, on a phone too, and leads on",
    async (path, title) => {
      const asked: string[] = [];
      page.on("request", (request) => asked.push(new URL(request.url()).origin));
      await open(`${path}?token=t`);
      await page.getByLabel("New password").waitFor();
      expect(new Set(asked)).toEqual(new Set([new URL(platform.url).origin]));
      expect(await page.title()).toBe(`${title} - Sandgate`);
      expect(await findFlaws(page)).toEqual([]);
      await page.getByRole("link", { name: "Sandgate" }).click();
      await page.waitForURL(`${platform.url}/docs`);
    },
  );

  test("a link sets a new password, once, and not a weak one", async () => {
    const path = `/auth/password/reset?token=${await forget()}`;
    await open(path);
    await page.getByLabel("New password").fill("password12");
    await submit();
    await says("The password is too easy to guess");
    await page.getByLabel("New password").fill(other);
    await submit();
    await says("Your password was changed. You can sign in now.");
    expect([await signIn(password), await signIn(other)]).toEqual([401, 200]);

    await open(path);
    await page.getByLabel("New password").fill(password);
    await submit();
    await says("has already been used or has expired. Ask for another mail where you sign in.");
    expect(await page.getByRole("button").isVisible()).toBe(false);
    expect(await signIn(password)).toBe(401);
  });

  test("a password that is too short isn't sent", async () => {
    await open(`/auth/password/reset?token=${await forget()}`);
    await page.getByLabel("New password").fill("short");
    await submit();
    expect(await page.getByLabel("New password").evaluate((input) => input.matches(":invalid"))).toBe(true);
    expect(await signIn(password)).toBe(200);
  });

  test.each(["/auth/verify-email", "/auth/password/reset"])("%s without a token says what is wrong", async (path) => {
    await open(path);
    await says("The link is not complete. Copy all of it from the mail.");
    expect(await page.getByRole("button").isVisible()).toBe(false);
    expect(await findFlaws(page)).toEqual([]);
  });
});
