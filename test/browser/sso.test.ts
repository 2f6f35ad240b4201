import { actionTimeoutMs, openBrowser, probeBrowser } from "@sandgate/test-support/browser";
import { startGithub, type TestGithub } from "@sandgate/test-support/github";
import { startOpenIdProvider, type TestOpenIdProvider } from "@sandgate/test-support/open-id-provider";
import { findFreePort } from "@sandgate/test-support/process";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { findFlaws } from "./flaws.ts";
import { type BrowserPlatform, openBrowserPlatform } from "./platform.ts";

describe.runIf(await requireServer("chromium", probeBrowser))("single sign-on in a browser", () => {
  let browser: Browser;
  let context: BrowserContext;
  let page: Page;
  let openId: TestOpenIdProvider;
  let github: TestGithub;
  let platform: BrowserPlatform;
  let removeFolder: () => Promise<void>;

  beforeAll(async () => {
    const folder = await createTempFolder();
    removeFolder = folder.remove;
    const port = await findFreePort();
    const callbackUrl = (provider: string) => `http://127.0.0.1:${port}/auth/sso/${provider}/callback`;
    openId = await startOpenIdProvider({ callbackUrl: callbackUrl("google") });
    github = await startGithub({ callbackUrl: callbackUrl("github") });
    platform = await openBrowserPlatform({
      folder: folder.path,
      port,
      links: ["/auth/sso/google", "/auth/sso/github"],
      settings: {
        SANDGATE_SSO_GOOGLE_CLIENT_ID: openId.clientId,
        SANDGATE_SSO_GOOGLE_CLIENT_SECRET: openId.clientSecret,
        SANDGATE_SSO_GOOGLE_ISSUER: openId.issuer,
        SANDGATE_SSO_GITHUB_CLIENT_ID: github.clientId,
        SANDGATE_SSO_GITHUB_CLIENT_SECRET: github.clientSecret,
        SANDGATE_SSO_GITHUB_ISSUER: github.url,
        SANDGATE_SSO_GITHUB_API_URL: github.url,
      },
    });
    browser = await openBrowser();
  });
  afterAll(async () => {
    await browser.close();
    await platform.close();
    await openId.stop();
    await github.stop();
    await removeFolder();
  });
  beforeEach(async () => {
    context = await browser.newContext();
    context.setDefaultTimeout(actionTimeoutMs);
    page = await context.newPage();
  });
  afterEach(() => context.close());

  /** What the application finds in its address, once the browser is there. */
  async function readFragment(at = page): Promise<Record<string, string>> {
    await at.waitForURL(`${platform.appUrl}/done#*`);
    return Object.fromEntries(new URLSearchParams((await at.locator("output").textContent())?.slice(1)));
  }

  /** From the application's link to the provider's page. */
  async function leave(at = page): Promise<void> {
    await at.goto(platform.appUrl);
    await at.getByRole("link", { name: "google" }).click();
    await at.getByRole("heading", { name: "Provider" }).waitFor();
  }

  /** Those of the platform that the callback would get. The provider's are on the same host. */
  const ownCookies = async () =>
    (await context.cookies(`${platform.url}/auth/sso/google/callback`)).filter(({ name }) =>
      name.startsWith("sandgate"),
    );

  const askSessions = (accessToken: string) =>
    page.evaluate(
      async ([url, token]) => {
        const answer = await fetch(`${url}/auth/sessions`, { headers: { authorization: `Bearer ${token}` } });
        return { status: answer.status, body: await answer.json() };
      },
      [platform.url, accessToken],
    );

  test("leads from a link to the tokens in the fragment, which the application can use", async () => {
    await leave();
    await page.getByRole("button", { name: "Sign in" }).click();
    const fragment = await readFragment();
    expect(fragment).toMatchObject({ token_type: "Bearer", expires_in: "300", refresh_expires_in: "1800" });
    expect(await askSessions(fragment.access_token ?? "")).toMatchObject({
      status: 200,
      body: { sessions: [{ current: true }] },
    });
    expect(await ownCookies()).toEqual([]);
    const refreshed = await platform.call("/auth/refresh", { refresh_token: fragment.refresh_token });
    expect(refreshed.status).toBe(200);
  });

  test("leads to GitHub and back", async () => {
    await page.goto(platform.appUrl);
    await page.getByRole("link", { name: "github" }).click();
    expect(await readFragment()).toMatchObject({ token_type: "Bearer" });
  });

  test("is named by the page that sets a new password", async () => {
    await leave();
    await page.getByRole("button", { name: "Sign in" }).click();
    await readFragment();
    await platform.call("/auth/password/forgot", { username: "ann@example.com" });
    const token = (await platform.mailedTokens(1)).at(-1);
    await page.goto(`${platform.url}/auth/password/reset?token=${token}`);
    const link = page.getByRole("listitem").filter({ hasText: /^google: ann@example.com$/ });
    expect(await link.count()).toBe(0);
    await page.getByLabel("New password").fill("another horse entirely");
    await page.getByRole("button").click();
    await link.waitFor();
    expect(await findFlaws(page)).toEqual([]);
  });

  test("tells the application of a user who cancels", async () => {
    await leave();
    await page.getByRole("button", { name: "Cancel" }).click();
    expect(await readFragment()).toEqual({ error: "forbidden", request_id: expect.stringMatching(/./) });
  });

  test("works in two tabs at once", async () => {
    const other = await context.newPage();
    await leave();
    await leave(other);
    for (const at of [page, other]) {
      await at.getByRole("button", { name: "Sign in" }).click();
      expect(await readFragment(at)).toMatchObject({ token_type: "Bearer" });
    }
  });

  test("goes no further in another browser than the one that began it", async () => {
    const sent = page.waitForRequest((request) => request.url().startsWith(`${openId.issuer}/auth?`));
    await leave();
    const { href } = await openId.signIn((await sent).url());
    const stranger = await browser.newContext();
    const elsewhere = await stranger.newPage();
    const refused = await elsewhere.goto(href);
    expect([refused?.status(), elsewhere.url()]).toEqual([401, href]);
    await stranger.close();
    await page.goto(href);
    expect(await readFragment()).toMatchObject({ token_type: "Bearer" });
  });

  test("shows no page's script the cookie that binds it", async () => {
    await leave();
    const callbackUrl = `${platform.url}/auth/sso/google/callback`;
    expect(await ownCookies()).toMatchObject([
      { httpOnly: true, sameSite: "Lax", path: "/auth/sso/google/callback", secure: false },
    ]);
    await page.goto(callbackUrl);
    expect(await page.evaluate("document.cookie")).toBe("");
  });
});
