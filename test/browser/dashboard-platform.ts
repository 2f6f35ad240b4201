import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { actionTimeoutMs, openBrowser } from "@sandgate/test-support/browser";
import type { Browser, BrowserContext, Page } from "playwright-core";
import { startPlatform, type TestPlatform } from "../platform/local.ts";

const root = join(import.meta.dirname, "../..");

/** A platform with the dashboard, and a browser with somebody in it. */
export interface DashboardPlatform {
  platform: TestPlatform;
  browser: Browser;
  /** What scripts of any page complained of, and what was asked of other servers. Nothing, it is hoped. */
  problems: string[];
  /** A browser of somebody new, whose pages are watched. */
  newContext(): Promise<BrowserContext>;
  open(page: Page, path: string): Promise<void>;
  signIn(page: Page, who?: { username: string; password: string }): Promise<void>;
  /** Calls the API as the operator, in the personal workspace. */
  call<T = unknown>(method: string, path: string, body?: object): Promise<T>;
  close(): Promise<void>;
}

/** Builds the dashboard, unless it is built already. */
export async function buildDashboard(): Promise<void> {
  await promisify(execFile)(process.execPath, [join(root, "dashboard/build.ts")], { cwd: root });
}

export async function openDashboardPlatform(settings: Record<string, string> = {}): Promise<DashboardPlatform> {
  await buildDashboard();
  const platform = await startPlatform({ settings: { SANDGATE_LOG_LEVEL: "warn", ...settings } });
  const browser = await openBrowser();
  const problems: string[] = [];
  const { origin } = new URL(platform.url);
  const headers = await credentialsOf(platform);

  const self: DashboardPlatform = {
    platform,
    browser,
    problems,
    async newContext() {
      const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
      context.setDefaultTimeout(actionTimeoutMs);
      context.on("page", (page) => {
        page.on("pageerror", (error) => problems.push(error.message));
        // A refused request is an error in the console too.
        page.on("console", (message) => {
          const isRefusal = message.text().startsWith("Failed to load resource");
          if (message.type() === "error" && !isRefusal) problems.push(message.text());
        });
        page.on("request", (request) => {
          const url = new URL(request.url());
          if (/^(http|ws)/.test(url.protocol) && url.host !== new URL(origin).host) problems.push(`asked ${url}`);
        });
      });
      return context;
    },
    async open(page, path) {
      await page.goto(`${platform.url}/dashboard${path}`);
    },
    async signIn(page, { username, password } = platform.admin) {
      await page.getByLabel("Email").fill(username);
      await page.getByLabel("Password").fill(password);
      await page.getByRole("button", { name: "Sign in", exact: true }).click();
      await page.getByRole("button", { name: "Sign out" }).waitFor();
    },
    async call<T>(method: string, path: string, body?: object) {
      return request<T>(platform.url, { method, path, body, headers });
    },
    async close() {
      await browser.close();
      await platform.stop();
    },
  };
  return self;
}

/** An API token of the operator, and the workspace. */
async function credentialsOf({ url, admin }: TestPlatform): Promise<Record<string, string>> {
  const { tokens } = await request<{ tokens: { access_token: string } }>(url, {
    method: "POST",
    path: "/auth/login",
    body: admin,
  });
  const session = { authorization: `Bearer ${tokens.access_token}` };
  const { token } = await request<{ token: string }>(url, {
    method: "POST",
    path: "/api-tokens",
    body: { description: "of the test" },
    headers: session,
  });
  const { workspaces } = await request<{ workspaces: { id: string }[] }>(url, {
    method: "GET",
    path: "/workspaces",
    headers: session,
  });
  return { authorization: `Bearer ${token}`, "x-workspace-id": workspaces.at(-1)?.id ?? "" };
}

async function request<T>(
  url: string,
  o: { method: string; path: string; body?: object | undefined; headers?: Record<string, string> },
): Promise<T> {
  const answer = await fetch(`${url}${o.path}`, {
    method: o.method,
    headers: { ...(o.body && { "content-type": "application/json" }), ...o.headers },
    ...(o.body && { body: JSON.stringify(o.body) }),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${o.method} ${o.path}: ${answer.status} ${text}`);
  return (text === "" ? undefined : JSON.parse(text)) as T;
}
