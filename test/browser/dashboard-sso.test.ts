import { probeBrowser } from "@sandgate/test-support/browser";
import { probeEngine } from "@sandgate/test-support/images";
import { startOpenIdProvider, type TestOpenIdProvider } from "@sandgate/test-support/open-id-provider";
import { findFreePort } from "@sandgate/test-support/process";
import { requireServer } from "@sandgate/test-support/require";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type DashboardPlatform, openDashboardPlatform } from "./dashboard-platform.ts";
import { findFlaws } from "./flaws.ts";

const isAvailable = (await requireServer("chromium", probeBrowser)) && (await requireServer("docker", probeEngine));

describe.runIf(isAvailable)("the dashboard's single sign-on", () => {
  let openId: TestOpenIdProvider;
  let dashboard: DashboardPlatform;
  let context: BrowserContext;
  let page: Page;
  const ann = { sub: "ann", email: "ann@example.com", email_verified: true };

  beforeAll(async () => {
    const port = await findFreePort();
    const url = `http://127.0.0.1:${port}`;
    openId = await startOpenIdProvider({ callbackUrl: `${url}/auth/sso/google/callback` });
    dashboard = await openDashboardPlatform({
      SANDGATE_PORT: String(port),
      SANDGATE_SSO_GOOGLE_CLIENT_ID: openId.clientId,
      SANDGATE_SSO_GOOGLE_CLIENT_SECRET: openId.clientSecret,
      SANDGATE_SSO_GOOGLE_ISSUER: openId.issuer,
      SANDGATE_SSO_MICROSOFT_CLIENT_ID: "of a provider that is away",
      SANDGATE_SSO_MICROSOFT_CLIENT_SECRET: "of a provider that is away",
      SANDGATE_SSO_MICROSOFT_ISSUER: `http://127.0.0.1:${await findFreePort()}`,
    });
  });
  afterAll(async () => {
    await dashboard.close();
    await openId.stop();
  });
  beforeEach(async () => {
    openId.account = ann;
    context = await dashboard.newContext();
    page = await context.newPage();
  });
  afterEach(async () => {
    await context.close();
    const isOwn = (problem: string) => !problem.startsWith(`asked ${openId.issuer}/`);
    expect(dashboard.problems.splice(0).filter(isOwn)).toEqual([]);
  });

  const button = (name: string) => page.getByRole("button", { name, exact: true });
  const widen = () => page.setViewportSize({ width: 1280, height: 800 });
  const heading = (name: string) => page.getByRole("heading", { name, exact: true });

  /** From the sign-in to the provider's page, and its button. */
  async function choose(choice: "Sign in" | "Cancel"): Promise<void> {
    await dashboard.open(page, "/");
    await button("Sign in with Google").click();
    await heading("Provider").waitFor();
    await button(choice).click();
  }

  /** What the page that the browser comes back to says. */
  async function readProblem(): Promise<string | null> {
    const alert = page.getByRole("alert");
    await alert.waitFor();
    await heading("Sign in").waitFor();
    expect(new URL(page.url()).hash).toBe("");
    expect(await findFlaws(page)).toEqual([]);
    return alert.textContent();
  }

  test("leads to the provider and back, with a session that a reload keeps and no token in the address", async () => {
    await dashboard.open(page, "/");
    await button("Sign in with Google").waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await choose("Sign in");
    await heading("Sandboxes").waitFor();
    expect(new URL(page.url()).hash).toBe("");
    await dashboard.open(page, "/settings");
    await page.getByText(ann.email).first().waitFor();
    await page.reload();
    await heading("Settings").waitFor();
    await button("Sign out").click();
    await heading("Sign in").waitFor();
    expect(await page.getByRole("alert").count()).toBe(0);
  });

  test("takes other tabs along, where somebody else has signed in meanwhile", async () => {
    await dashboard.open(page, "/");
    await button("Sign in with Google").click();
    await heading("Provider").waitFor();
    const other = await context.newPage();
    await dashboard.open(other, "/");
    await dashboard.signIn(other);
    await other.evaluate("globalThis.isOfBefore = true");
    await button("Sign in").click();
    await heading("Sandboxes").waitFor();
    await expect.poll(() => other.locator(".who").first().textContent()).toBe(ann.email);
    expect(await other.evaluate("globalThis.isOfBefore")).toBeUndefined();
  });

  test("says that somebody has cancelled, and takes them by the next try", async () => {
    await choose("Cancel");
    expect(await readProblem()).toMatch(
      /cancelled at the provider\.Sign in again, or in another way\.Request [0-9a-f-]{36}/,
    );
    await widen();
    await button("Sign in with Google").click();
    await button("Sign in").click();
    await heading("Sandboxes").waitFor();
  });

  test("says what to do about an account that the provider has not verified", async () => {
    openId.account = { sub: "bob", email: "bob@example.com", email_verified: false };
    await choose("Sign in");
    expect(await readProblem()).toMatch(
      /\(email_not_verified\)\.Confirm the address at the provider, then sign in again\.Request [0-9a-f-]{36}/,
    );
  });

  test("says what to do about a provider that doesn't answer", async () => {
    await dashboard.open(page, "/");
    await button("Sign in with Microsoft").click();
    expect(await readProblem()).toMatch(/\(upstream_error\)\.Try again\. .*Request [0-9a-f-]{36}/);
  });

  test("takes no result of a sign-in that the tab has not begun", async () => {
    await dashboard.open(page, "/sign-in#error=forbidden&hint=Call+this+number");
    await heading("Sign in").waitFor();
    expect(await page.getByRole("alert").count()).toBe(0);
    expect(new URL(page.url()).hash).toBe("");
  });
});
