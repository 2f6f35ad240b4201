import { probeBrowser } from "@sandgate/test-support/browser";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { TOTP } from "otpauth";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { readMails, tokenIn } from "../platform/mails.ts";
import { type DashboardPlatform, openDashboardPlatform } from "./dashboard-platform.ts";
import { findFlaws } from "./flaws.ts";

/** What is read of the API's description. */
interface OpenApi {
  paths: Record<string, { get: { parameters: { name: string; schema: { enum?: string[] } }[] } }>;
}

const isAvailable = (await requireServer("chromium", probeBrowser)) && (await requireServer("docker", probeEngine));

describe.runIf(isAvailable)("the dashboard's pages of workspaces and accounts", () => {
  let dashboard: DashboardPlatform;
  let context: BrowserContext;
  let page: Page;
  const ada = { username: "ada@example.com", password: "a long passphrase" };

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

  const signInAt = async (path: string, who = dashboard.platform.admin) => {
    await dashboard.open(page, path);
    await dashboard.signIn(page, who);
  };
  const widen = () => page.setViewportSize({ width: 1280, height: 800 });
  const row = (text: string) => page.getByRole("row").filter({ hasText: text });
  const button = (name: string) => page.getByRole("button", { name, exact: true });

  test("an account is created with the mail's link", async () => {
    await dashboard.open(page, "/create-account");
    expect(await findFlaws(page)).toEqual([]);
    await page.getByLabel("Email").fill(ada.username);
    await page.getByLabel("Password").fill(ada.password);
    await button("Create account").click();
    await page.getByRole("heading", { name: "Look into your mailbox" }).waitFor();
    expect(await findFlaws(page)).toEqual([]);
    const mailed = async () =>
      (await readMails(dashboard.platform.mailFolder)).flatMap((mail) => tokenIn(mail) ?? []).length;
    await expect.poll(mailed).toBe(1);
    const [token] = (await readMails(dashboard.platform.mailFolder)).flatMap((mail) => tokenIn(mail) ?? []);
    await dashboard.call("POST", "/auth/verify-email", { token, password: ada.password });
    await widen();
    await signInAt("/", ada);
    expect(await page.getByRole("link", { name: "Operators" }).count()).toBe(0);
  });

  test("a forgotten password leads to a mail", async () => {
    await dashboard.open(page, "/forgot-password");
    await button("Send the link").waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await page.getByLabel("Email").fill("nobody@example.com");
    await button("Send the link").click();
    await page.getByText("is on its way").waitFor();
  });

  test("images are made, changed, disabled and deleted", async () => {
    await signInAt("/images");
    await row("default").first().waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await button("New image").click();
    await page.getByLabel("Name", { exact: true }).fill("toolbox");
    await page.getByLabel("Image", { exact: true }).fill("docker.io/library/busybox:1.36.1");
    await page.getByLabel("Memory").fill("256");
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await button("Save").click();
    await row("toolbox").getByText("256 MiB").waitFor();
    await row("toolbox").getByRole("button", { name: "Disable" }).click();
    await row("toolbox").getByText("disabled").waitFor();
    await button("Edit toolbox").click();
    await page.getByLabel("Description").fill("Small tools");
    await button("Save").click();
    await row("Small tools").waitFor();
    await button("Delete toolbox").click();
    await button("Delete").click();
    await row("toolbox").waitFor({ state: "detached" });
  });

  test("an edit begins with what is stored, and leaves alone what somebody else has changed meanwhile", async () => {
    const { id } = await dashboard.call<{ id: string }>("POST", "/sandbox-images", {
      name: "edited-often",
      image: "docker.io/library/busybox:1.36.1",
      memory_mb: 1024,
    });
    const readImage = () =>
      dashboard.call<{ memory_mb: number; enabled: boolean; ttl_seconds: number | null }>(
        "GET",
        `/sandbox-images/${id}`,
      );
    await signInAt("/images");
    const edit = async (label: string, value: string, meanwhile = async () => {}) => {
      await button("Edit edited-often").click();
      await page.getByLabel(label).waitFor();
      await meanwhile();
      await page.getByLabel(label).fill(value);
      await button("Save").click();
      await page.getByRole("dialog").waitFor({ state: "detached" });
    };
    await edit("Memory", "2048");
    await row("edited-often").getByRole("button", { name: "Disable" }).click();
    await row("edited-often").getByText("disabled").waitFor();
    await edit("Description", "Described", async () => {
      expect(await page.getByLabel("Memory").inputValue()).toBe("2048");
      await dashboard.call("PUT", `/sandbox-images/${id}`, { ttl_seconds: 600 });
    });
    expect(await readImage()).toMatchObject({ memory_mb: 2048, enabled: false, ttl_seconds: 600 });
    await dashboard.call("DELETE", `/sandbox-images/${id}`);
    await row("edited-often").getByRole("button", { name: "Enable" }).click();
    await row("edited-often").getByRole("alert").waitFor();
  });

  test("an edit of what is not there says so", async () => {
    await signInAt("/");
    for (const list of ["images", "registries"]) {
      await dashboard.open(page, `/${list}?edit=019ac000-0000-7000-8000-000000000000`);
      await page.getByRole("dialog").getByRole("alert").waitFor();
    }
    expect(await findFlaws(page)).toEqual([]);
  });

  test("a form shows at its field what the API says of it", async () => {
    await signInAt("/");
    await dashboard.open(page, "/images?edit=new");
    await page.getByLabel("Name", { exact: true }).fill("bad");
    await page.getByLabel("Image", { exact: true }).fill("not a reference");
    await button("Save").click();
    await page.getByRole("alert").waitFor();
    expect(await page.getByLabel("Image", { exact: true }).getAttribute("aria-invalid")).toBe("true");
    expect(await findFlaws(page)).toEqual([]);
  });

  test("registries say what to do first, and refuse one that can't be reached with why", async () => {
    await signInAt("/registries");
    await page.getByRole("heading", { name: "No registries yet" }).waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await button("New registry").click();
    await page.getByLabel("Name", { exact: true }).fill("private");
    await page.getByLabel("Address").fill("http://127.0.0.1:1");
    await page.getByLabel("Username").fill("ada");
    await page.getByLabel("Password").fill("secret");
    await button("Save").click();
    await page.getByRole("alert").waitFor();
    expect(await findFlaws(page)).toEqual([]);
  });

  test("members are added, given another role and removed; a workspace is made, renamed and deleted", async () => {
    await signInAt("/members");
    await button("New workspace").click();
    await page.getByLabel("Name").last().fill("Team");
    await button("Create").click();
    await page.getByText("Team, where you are owner").waitFor();
    await button("Add member").click();
    await page.getByLabel("Email").fill(ada.username);
    await button("Add").click();
    await row(ada.username).waitFor();
    await page.getByLabel(`Role of ${ada.username}`).selectOption("admin");
    await expect.poll(() => page.getByLabel(`Role of ${ada.username}`).inputValue()).toBe("admin");
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await page.getByLabel("Name").fill("Crew");
    await button("Save").click();
    await page.getByText("Crew, where you are owner").waitFor();
    await row(ada.username).getByRole("button", { name: "Remove" }).click();
    await button("Remove member").click();
    await row(ada.username).waitFor({ state: "detached" });
    await button("Delete").click();
    await button("Delete workspace").click();
    await page.getByText("Personal, where you are owner").waitFor();
  });

  test("admins are offered what they may do with members, and see at once what their own role has become", async () => {
    const { id } = await dashboard.call<{ id: string }>("POST", "/workspaces", { name: "Shared" });
    await dashboard.call("POST", `/workspaces/${id}/members`, { username: ada.username, role: "admin" });
    await signInAt(`/members?workspace=${id}`, ada);
    await page.getByText("Shared, where you are admin; only owners make and remove owners").waitFor();
    expect(await page.getByLabel(`Role of ${ada.username}`).getByRole("option").allTextContents()).toEqual([
      "member",
      "admin",
    ]);
    const owner = row(dashboard.platform.admin.username);
    expect(await owner.getByRole("combobox").count()).toBe(0);
    expect(await owner.getByRole("button").count()).toBe(0);
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await button("Add member").click();
    expect(await page.getByRole("dialog").getByLabel("Role").getByRole("option").count()).toBe(2);
    await button("Cancel").click();

    await page.getByLabel(`Role of ${ada.username}`).selectOption("member");
    await page.getByText("Shared, where you are member").waitFor();
    await expect.poll(() => button("Add member").isEnabled()).toBe(false);
    await button("Leave").click();
    await button("Leave workspace").click();
    await page.getByText("Personal, where you are owner").waitFor();
    expect(await page.getByRole("alert").count()).toBe(0);
    expect(await page.getByLabel("Workspace").getByRole("option", { name: "Shared" }).count()).toBe(0);
  });

  test("a tab in which another has signed in since is loaded anew, with what is theirs", async () => {
    await page.clock.install();
    await signInAt("/");
    // As by a tab whose news did not arrive here.
    await page.evaluate(
      (body) =>
        fetch("session", { method: "POST", headers: { "content-type": "application/json" }, body }).then(() => {}),
      JSON.stringify(ada),
    );
    await page.evaluate("globalThis.isOfBefore = true");
    await page.clock.fastForward("06:00");
    await page.getByRole("link", { name: "Settings" }).click();
    await expect.poll(() => page.locator(".who").first().textContent()).toBe(ada.username);
    expect(await page.evaluate("globalThis.isOfBefore")).toBeUndefined();
  });

  test("a token is shown once, works with what it may, and is refused once it is revoked", async () => {
    await signInAt("/api-tokens", ada);
    await page.getByRole("heading", { name: "No tokens yet" }).waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await button("New token").click();
    await page.getByLabel("Description").fill("of a script");
    await page.getByLabel("Only these").check();
    await page.getByLabel("read:").check();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await button("Create").click();
    const shown = page.getByRole("region", { name: "New token" });
    const token = (await shown.getByRole("code").first().textContent()) ?? "";
    expect(token).toMatch(/^sgt_/);
    await context.grantPermissions(["clipboard-read", "clipboard-write"]);
    await shown.getByRole("button", { name: "Copy" }).first().click();
    expect(await page.evaluate("navigator.clipboard.readText()")).toBe(token);
    const call = async (path: string, method = "GET") =>
      (await fetch(`${dashboard.platform.url}${path}`, { method, headers: { authorization: `Bearer ${token}` } }))
        .status;
    expect(await call("/workspaces")).toBe(200);
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await page.reload();
    await row("of a script").getByText("read").waitFor();
    expect(await page.getByText(token).count()).toBe(0);
    await row("of a script").getByRole("button", { name: "Revoke" }).click();
    await button("Revoke token").click();
    await row("of a script").waitFor({ state: "detached" });
    await expect.poll(() => call("/workspaces")).toBe(401);
  });

  test("the audit log shows who did what, by action", async () => {
    const { id } = await dashboard.call<{ id: string }>("POST", "/sandboxes/provision", {
      image: "default",
      name: "audited",
    });
    await dashboard.call("POST", "/sandboxes/wait", { sandbox_id: id, timeout_seconds: 120 });
    await dashboard.call("PUT", "/sandboxes/audited/files?path=/tmp/noted.txt", {});
    await dashboard.call("POST", "/sandboxes/audited/exec", { command: "true" });
    await signInAt("/audit-log");
    await row("sandbox.exec").first().getByText("program sh").waitFor();
    await row("file.write").first().getByText("path /tmp/noted.txt").waitFor();
    const { paths } = await dashboard.call<OpenApi>("GET", "/openapi.json");
    const known = paths["/admin/audit-log"]?.get.parameters.find(({ name }) => name === "action")?.schema.enum;
    const offered = await page.getByLabel("Action").getByRole("option").allTextContents();
    expect(offered).toEqual(["Any", ...(known ?? []).toSorted()]);
    await row("sandbox.provision").first().waitFor();
    expect(await row("sandbox.provision").first().textContent()).toContain("admin@localhost");
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await page.getByLabel("Action").selectOption("sandbox.stop");
    await page.getByRole("heading", { name: "No entry fits" }).waitFor();
    await dashboard.call("DELETE", "/sandboxes/audited");
    await page.reload();
    await row("sandbox.stop").first().waitFor();
  });

  test("a second factor is set up by its QR code, then needed at the sign-in, and turned off", async () => {
    await signInAt("/settings", ada);
    await button("Set up").click();
    await page.getByRole("dialog").getByLabel("Password").fill(ada.password);
    await button("Go on").click();
    await page.getByRole("img", { name: "QR code of the key" }).waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    const secret = (await page.getByRole("dialog").getByRole("code").textContent()) ?? "";
    const totp = new TOTP({ secret });
    await page.getByLabel("Authentication code").fill(totp.generate());
    await button("Turn on").click();
    await page.getByText("Recovery codes.").waitFor();
    const [code = ""] = await page
      .getByRole("list")
      .filter({ hasNot: page.getByRole("link") })
      .getByRole("listitem")
      .allTextContents();
    expect(await findFlaws(page)).toEqual([]);

    const other = await (await dashboard.newContext()).newPage();
    await dashboard.open(other, "/");
    await other.getByLabel("Email").fill(ada.username);
    await other.getByLabel("Password").fill(ada.password);
    await other.getByRole("button", { name: "Sign in" }).click();
    await other.getByLabel("Authentication code").fill(code);
    expect(await findFlaws(other)).toEqual([]);
    await other.setViewportSize({ width: 1280, height: 800 });
    await other.getByRole("button", { name: "Sign in" }).click();
    await other.getByRole("heading", { name: "Sandboxes", exact: true }).waitFor();

    await widen();
    await row("this one").waitFor();
    await page.route("**/auth/sessions/*", (route) => route.fulfill({ status: 404, json: {} }));
    await page.getByRole("button", { name: "End", exact: true }).first().click();
    await page.getByRole("table", { name: "Your sessions" }).getByRole("alert").waitFor();
    await page.unroute("**/auth/sessions/*");
    await button("End all others").click();
    await button("End them").click();
    await expect
      .poll(() =>
        page
          .getByRole("row")
          .filter({ has: page.getByRole("button", { name: "End" }) })
          .count(),
      )
      .toBe(0);
    await other.reload();
    await other.getByRole("heading", { name: "Sign in" }).waitFor();
    await other.context().close();
  });

  test("operators see all users and sandboxes, and close accounts", async () => {
    await signInAt("/operators");
    await row(ada.username).waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await row(ada.username).getByRole("button", { name: "Disable" }).click();
    await page.getByRole("alertdialog").getByRole("button", { name: "Disable" }).click();
    await row(ada.username).getByText("disabled").waitFor();
    await page.getByRole("tab", { name: "Sandboxes" }).click();
    await row("audited").waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await page.getByRole("tab", { name: "Audit log" }).click();
    await row("user.disable").first().waitFor();
    expect(await findFlaws(page)).toEqual([]);
  });

  test("the keyboard alone leads to a page, and the narrow menu to each", async () => {
    await signInAt("/");
    await page.keyboard.press("Tab");
    expect(await page.evaluate("document.activeElement.textContent")).toBe("Skip to the content");
    await page.setViewportSize({ width: 360, height: 700 });
    await button("Menu").click();
    const menu = page.getByRole("dialog", { name: "Menu" });
    expect(await menu.getByRole("navigation").getByRole("link").allTextContents()).toEqual(
      ["Sandboxes", "Images", "Registries", "Members", "API tokens", "Audit log", "Settings", "Operators"].map((name) =>
        expect.stringContaining(name),
      ),
    );
    await menu.getByRole("link", { name: "Settings" }).press("Enter");
    await page.getByRole("heading", { name: "Settings", exact: true }).waitFor();
  });
});
