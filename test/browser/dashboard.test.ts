import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { probeBrowser } from "@sandgate/test-support/browser";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type DashboardPlatform, openDashboardPlatform } from "./dashboard-platform.ts";
import { findFlaws } from "./flaws.ts";

const dist = join(import.meta.dirname, "../../dashboard/dist");
const maxFirstLoadBytes = 200 * 1000;

const isAvailable = (await requireServer("chromium", probeBrowser)) && (await requireServer("docker", probeEngine));

describe.runIf(isAvailable)("the dashboard", () => {
  let dashboard: DashboardPlatform;
  let context: BrowserContext;
  let page: Page;

  beforeAll(async () => {
    dashboard = await openDashboardPlatform();
  });
  afterAll(() => dashboard.close());
  beforeEach(async () => {
    context = await dashboard.newContext();
    page = await context.newPage();
  });
  afterEach(async () => {
    await context.close();
    expect(dashboard.problems.splice(0)).toEqual([]);
  });

  const signInAt = async (path: string) => {
    await dashboard.open(page, path);
    await dashboard.signIn(page);
  };
  const heading = (name: string, at = page) => at.getByRole("heading", { name, exact: true });

  test("is where the platform's first page leads browsers, and asks them to sign in", async () => {
    await page.goto(dashboard.platform.url);
    await heading("Sign in").waitFor();
    expect([new URL(page.url()).pathname, await page.title()]).toEqual(["/dashboard/sign-in", "Sign in - Sandgate"]);
    expect(await findFlaws(page)).toEqual([]);
  });

  test("says what is wrong with a sign-in, with the request's id", async () => {
    await dashboard.open(page, "/");
    await page.getByLabel("Email").fill(dashboard.platform.admin.username);
    await page.getByLabel("Password").fill("not the password");
    await page.getByRole("button", { name: "Sign in" }).click();
    const alert = page.getByRole("alert");
    await alert.waitFor();
    expect(await alert.textContent()).toMatch(/Request [0-9a-f-]{36}/);
    expect(await findFlaws(page)).toEqual([]);
  });

  test("leads on to the page that was asked for", async () => {
    await dashboard.open(page, "/sandboxes?state=failed&name=none-");
    await dashboard.signIn(page);
    await heading("No sandbox fits").waitFor();
    await expect.poll(() => new URL(page.url()).search).toMatch(/^\?workspace=[0-9a-f-]{36}&state=failed&name=none-$/);
  });

  test("keeps the session over a reload, and no token where other scripts find it", async () => {
    await signInAt("/");
    await page.reload();
    await heading("Sandboxes").waitFor();
    const stored = await page.evaluate("JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])");
    expect(stored).not.toMatch(/eyJ|token|session/i);
    expect(await context.cookies()).toMatchObject([
      { name: "__Host-sandgate-session", httpOnly: true, secure: true, sameSite: "Strict", path: "/" },
    ]);
  });

  test("has one session in two tabs, which refresh it at once and end together", async () => {
    await signInAt("/");
    const other = await context.newPage();
    await dashboard.open(other, "/");
    await heading("Sandboxes", other).waitFor();
    for (let i = 0; i < 3; i++) {
      await Promise.all([page.reload(), other.reload()]);
      await Promise.all([heading("Sandboxes").waitFor(), heading("Sandboxes", other).waitFor()]);
    }
    await page.getByRole("button", { name: "Sign out" }).click();
    await Promise.all([heading("Sign in").waitFor(), heading("Sign in", other).waitFor()]);
    expect(await context.cookies()).toEqual([]);
    await other.reload();
    await heading("Sign in", other).waitFor();
    // The same page serves the next one.
    for (const at of [page, other]) {
      await dashboard.signIn(at);
      await heading("Sandboxes", at).waitFor();
      await at.getByRole("button", { name: "Sign out" }).click();
      await heading("Sign in", at).waitFor();
    }
  });

  test("tries again what failed, once the server answers", async () => {
    await signInAt("/images");
    await page.route("**/workspaces?*", (route) => route.fulfill({ status: 404, body: "{}" }));
    await page.reload();
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByRole("alert").waitFor();
    await page.unrouteAll();
    await page.getByRole("button", { name: "Try again" }).click();
    await heading("Images").waitFor();
    expect(dashboard.problems.splice(0)).toEqual(Array(2).fill(expect.stringContaining("The server answered 404")));
  });

  test("skips to the content of the page that is shown", async () => {
    await signInAt("/images");
    await heading("Images").waitFor();
    await page.getByRole("link", { name: "Skip to the content" }).focus();
    await page.keyboard.press("Enter");
    expect(await page.evaluate("document.activeElement.id")).toBe("main");
    expect(await heading("Images").count()).toBe(1);
  });

  test("keeps to its workspace when another tab chooses another", async () => {
    const { name } = await dashboard.call<{ name: string }>("POST", "/workspaces", { name: "Elsewhere" });
    await signInAt("/members");
    await heading("Members").waitFor();
    const chosen = await page.getByLabel("Workspace").inputValue();
    const other = await context.newPage();
    await dashboard.open(other, "/");
    await other.getByLabel("Workspace").selectOption(name);
    await heading("No sandboxes yet", other).waitFor();
    await page.reload();
    await heading("Members").waitFor();
    expect(await page.getByLabel("Workspace").inputValue()).toBe(chosen);
    await other.goBack();
    await expect.poll(() => other.getByLabel("Workspace").inputValue()).toBe(chosen);
  });

  test("what is typed stays when a page that a link leads to was replaced by an upgrade, which it then loads anew", async () => {
    await signInAt("/sandboxes/new");
    await page.getByLabel("Name").fill("typed");
    let requests = 0;
    await page.route("**/assets/audit-log-*.js", (route) => {
      requests++;
      return requests === 1 ? route.fulfill({ status: 404, body: "" }) : route.fallback();
    });
    await page.getByRole("link", { name: "Audit log" }).hover();
    await expect.poll(() => requests).toBe(1);
    expect(await page.getByLabel("Name").inputValue()).toBe("typed");
    await page.getByRole("link", { name: "Audit log" }).click();
    await heading("Audit log").waitFor();
  });

  test("is loaded again when a server of another version lacks its script or style, and says so", async () => {
    for (const type of ["js", "css"]) {
      let requests = 0;
      await page.route(`**/assets/index-*.${type}`, (route) =>
        requests++ === 0 ? route.fulfill({ status: 404, body: "" }) : route.fallback(),
      );
      await dashboard.open(page, "/");
      await page.getByRole("alert").filter({ hasText: "upgraded" }).waitFor();
      await heading("Sign in").waitFor();
      expect(requests).toBe(2);
    }
  });

  test("says what to do first in an empty workspace", async () => {
    await dashboard.call("POST", "/workspaces", { name: "Empty" });
    await signInAt("/");
    await page.getByLabel("Workspace").selectOption("Empty");
    await heading("No sandboxes yet").waitFor();
    expect(await page.getByText("curl ").textContent()).toContain("/sandboxes/provision");
    expect(await findFlaws(page)).toEqual([]);
  });

  test("makes a sandbox, shows how it comes to be, extends it and stops it", async () => {
    await signInAt("/sandboxes/new");
    await page.getByLabel("Name").fill("made-by-hand");
    await page.getByLabel("Labels").fill("team=web purpose=test");
    await page.getByLabel("Time to live").fill("600");
    expect(await findFlaws(page)).toEqual([]);
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.getByRole("button", { name: "Create sandbox" }).click();
    await heading("made-by-hand ready").waitFor();
    const phases = page.getByRole("list", { name: "Phases" }).getByRole("listitem");
    expect(await phases.count()).toBe(5);
    expect(await phases.filter({ hasText: "done" }).count()).toBe(5);
    await page.getByText("team=web").waitFor();
    await page.getByRole("meter", { name: "Memory in use" }).waitFor();
    expect(await findFlaws(page)).toEqual([]);

    await page.setViewportSize({ width: 1280, height: 800 });
    const before = await readSandbox("made-by-hand");
    await page.getByRole("button", { name: "Extend" }).click();
    await page.getByLabel("Ends in").fill("1800");
    await page.getByRole("button", { name: "Save" }).click();
    await expect.poll(async () => Date.parse(await readSandbox("made-by-hand"))).toBeGreaterThan(Date.parse(before));

    await page.getByRole("button", { name: "Stop" }).click();
    await page.getByRole("button", { name: "Stop sandbox" }).click();
    await heading("made-by-hand stopped").waitFor();
    expect(await page.getByRole("button", { name: "Extend" }).count()).toBe(0);
  });

  const readSandbox = async (name: string) =>
    (await dashboard.call<{ expires_at: string }>("GET", `/sandboxes/${name}`)).expires_at;

  test("shows why a sandbox failed and what helps, and starts again with what was asked for", async () => {
    const labels = { team: "web", purpose: 'the "first" run, really', "two words": "" };
    const command = ["/no/such/program", "it's\n=1"];
    await dashboard.call("POST", "/sandboxes/provision", {
      image: "default",
      name: "bad-command",
      labels,
      command,
      env: { API_KEY: "secret" },
      ttl_seconds: 600,
      idle_timeout_seconds: 300,
    });
    await signInAt("/sandboxes/bad-command");
    await heading("bad-command failed").waitFor();
    const alert = page.getByRole("alert");
    const record = await dashboard.call<{ message: string; hint: string }>("GET", "/sandboxes/bad-command");
    expect(await alert.textContent()).toContain(record.message);
    expect(await alert.textContent()).toContain(record.hint);
    expect(await findFlaws(page)).toEqual([]);
    await page.getByRole("link", { name: "Try again" }).click();
    await heading("New sandbox").waitFor();
    expect(await page.getByLabel("Name").inputValue()).toBe("bad-command");
    await page.getByText("API_KEY").waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await page.setViewportSize({ width: 1280, height: 800 });
    await page.getByLabel("Name").fill("bad-again");
    await page.getByRole("button", { name: "Create sandbox" }).click();
    await heading("bad-again failed").waitFor();
    const again = await dashboard.call("GET", "/sandboxes/bad-again");
    expect(again).toMatchObject({ labels, command, ttl_seconds: 600, idle_timeout_seconds: 300, env_names: [] });
  });

  test("lists sandboxes as they change, by state, name and label, page by page", async () => {
    for (let i = 0; i < 3; i++) {
      await dashboard.call("POST", "/sandboxes/provision", {
        image: "default",
        name: `listed-${i}`,
        labels: { part: String(i % 2) },
      });
    }
    await signInAt("/sandboxes");
    const row = (name: string) => page.getByRole("row").filter({ has: page.getByRole("link", { name, exact: true }) });
    await row("listed-1").getByText("ready").waitFor();
    await dashboard.call("DELETE", "/sandboxes/listed-1");
    await row("listed-1").getByText("stopped", { exact: true }).waitFor();
    expect(await findFlaws(page)).toEqual([]);

    await page.setViewportSize({ width: 1280, height: 800 });
    const names = () => page.getByRole("row").getByRole("link").allTextContents();
    await page.getByLabel("Name").fill("listed-");
    await expect.poll(names).toEqual(["listed-2", "listed-1", "listed-0"]);
    await page.getByLabel("State").selectOption("Ready");
    await expect.poll(names).toEqual(["listed-2", "listed-0"]);
    await page.getByLabel("Label").fill("part=of two words");
    await heading("No sandbox fits").waitFor();
    await page.getByLabel("Label").fill("part=1");
    await expect.poll(() => new URL(page.url()).searchParams.get("label")).toBe("part=1");
    await heading("No sandbox fits").waitFor();
    await page.reload();
    await heading("No sandbox fits").waitFor();
    expect(await page.getByLabel("Label").inputValue()).toBe("part=1");
  });

  test("shows an error of the API with its message, hint and request", async () => {
    await signInAt("/");
    await dashboard.open(page, "/sandboxes/no-such-sandbox");
    const alert = page.getByRole("alert");
    await alert.waitFor();
    expect(await alert.textContent()).toMatch(/Request [0-9a-f-]{36}/);
    expect(await findFlaws(page)).toEqual([]);
  });

  test("is light: what the sign-in and the list load is less than 200 kB", async () => {
    const loaded = new Set<string>();
    page.on("request", (request) => {
      const [, asset] = /\/assets\/(.+)$/.exec(new URL(request.url()).pathname) ?? [];
      if (asset) loaded.add(asset);
    });
    await dashboard.open(page, "/");
    await page.getByLabel("Email").fill(dashboard.platform.admin.username);
    await page.getByLabel("Password").fill(dashboard.platform.admin.password);
    // By the keyboard: what the mouse is over is loaded ahead.
    await page.keyboard.press("Enter");
    await heading("Sandboxes").waitFor();
    await page.waitForLoadState("networkidle");
    const sizes = [...loaded].map(async (asset) => gzipSync(await readFile(join(dist, "assets", asset))).length);
    const total = (await Promise.all(sizes)).reduce((sum, size) => sum + size, 0);
    expect(total).toBeGreaterThan(50_000);
    expect(total, [...loaded].join(" ")).toBeLessThan(maxFirstLoadBytes);
    for await (const file of glob("assets/*.js", { cwd: dist })) {
      expect([file, (await readFile(join(dist, `${file}.br`))).length > 0]).toEqual([file, true]);
    }
  });
});
