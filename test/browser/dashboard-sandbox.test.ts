import { readFile } from "node:fs/promises";
import { probeBrowser } from "@sandgate/test-support/browser";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type DashboardPlatform, openDashboardPlatform } from "./dashboard-platform.ts";
import { findFlaws } from "./flaws.ts";

const isAvailable = (await requireServer("chromium", probeBrowser)) && (await requireServer("docker", probeEngine));

describe.runIf(isAvailable)("the dashboard's pages of a sandbox", () => {
  let dashboard: DashboardPlatform;
  let context: BrowserContext;
  let page: Page;

  beforeAll(async () => {
    dashboard = await openDashboardPlatform();
    const { id } = await dashboard.call<{ id: string }>("POST", "/sandboxes/provision", {
      image: "default",
      name: "looked-at",
      command: [
        "sh",
        "-c",
        "httpd -p 8080 -h /www; i=0; while :; do i=$((i + 1)); echo line $i; echo oops $i >&2; sleep 0.3; done",
      ],
    });
    await dashboard.call("POST", "/sandboxes/wait", { sandbox_id: id, timeout_seconds: 120 });
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
    await dashboard.open(page, `/sandboxes/looked-at${path}`);
    await dashboard.signIn(page);
  };
  const widen = () => page.setViewportSize({ width: 1280, height: 800 });
  const lines = () => page.getByRole("region", { name: "Log lines" }).getByRole("listitem");
  const lastNumber = async () => Number(/(\d+)$/.exec((await lines().last().textContent()) ?? "")?.[1]);
  const exec = async (command: string) =>
    (await dashboard.call<{ stdout: string }>("POST", "/sandboxes/looked-at/exec", { command })).stdout;

  test("logs come live, each line once, and stand still while they are paused", async () => {
    await signInAt("/logs");
    await lines().filter({ hasText: "line 1" }).first().waitFor();
    const before = await lastNumber();
    await expect.poll(lastNumber).toBeGreaterThan(before + 3);
    expect(await findFlaws(page)).toEqual([]);

    await widen();
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByText("Paused.").waitFor();
    const paused = await lastNumber();
    const state = () => exec("true").then(lastNumber);
    for (let i = 0; i < 3; i++) expect(await state()).toBe(paused);
    await page.getByRole("button", { name: "Resume" }).click();
    await expect.poll(lastNumber).toBeGreaterThan(paused);
    await page.getByLabel("Search").fill("line ");
    await page.getByText(/of [\d,]+ lines found/).waitFor();
    const texts = (await lines().allTextContents()).map((text) => /line (\d+)$/.exec(text)?.[1]);
    expect(new Set(texts).size).toBe(texts.length);
    expect(texts).not.toContain(undefined);
  });

  test("logs are filtered by stream and text, which the address says, and downloaded", async () => {
    await signInAt("/logs?stream=stderr&q=oops");
    await lines().filter({ hasText: "oops" }).first().waitFor();
    expect(await lines().filter({ hasText: "line" }).count()).toBe(0);
    await page.getByLabel("Stream").selectOption("stdout");
    await page.getByText("0 of").waitFor();
    expect(new URL(page.url()).search).toBe("?stream=stdout&q=oops");
    await page.goBack();
    await page.goForward();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Download" }).click(),
    ]);
    expect(download.suggestedFilename()).toBe("looked-at.log");
    expect(await readFile(await download.path(), "utf8")).toMatch(/^\S+Z stdout line 1\n\S+Z stdout line 2\n/);
  });

  test("metrics show CPU and memory as plots and as figures", async () => {
    await signInAt("/metrics");
    await page.getByRole("img", { name: "Memory over time" }).locator("canvas").waitFor();
    await page.getByText("Limit").waitFor();
    expect(await page.getByRole("definition").count()).toBe(7);
    expect(await findFlaws(page)).toEqual([]);
    await page.getByLabel("Window").selectOption("Last hour");
    await expect.poll(() => new URL(page.url()).search).toBe("?window=60");
  });

  test("a terminal runs a shell, is there again after a reload, and several are open at once", async () => {
    await signInAt("/terminal");
    await page.getByRole("heading", { name: "No terminal is open" }).waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await page.getByRole("button", { name: "New terminal" }).click();
    const terminal = page.getByRole("region", { name: "Terminal" });
    await page.getByText("Connected", { exact: true }).waitFor();
    await terminal.click();
    await page.keyboard.type("echo $((6 * 7))-typed; cd /tmp; touch here\n");
    await terminal.getByText("42-typed").first().waitFor();
    await expect.poll(() => exec("ls /tmp")).toContain("here");
    expect(await findFlaws(page)).toEqual([]);

    await widen();
    await page.reload();
    await terminal.getByText("42-typed").first().waitFor();
    await page.getByRole("button", { name: "New terminal" }).click();
    await page.getByRole("button", { name: "Terminal 2", exact: true }).waitFor();
    await page.getByRole("button", { name: "End terminal 2" }).click();
    await page.getByRole("button", { name: "Terminal 2", exact: true }).waitFor({ state: "detached" });
    await terminal.click();
    await page.keyboard.type("exit\n");
    await page.getByRole("heading", { name: "No terminal is open" }).waitFor();
  });

  test("files are browsed, made, edited, uploaded, downloaded, moved and deleted", async () => {
    await signInAt("/files?path=/tmp");
    await page.getByRole("button", { name: "New folder" }).click();
    await page.getByLabel("Name", { exact: true }).fill("made");
    await page.getByRole("button", { name: "Create" }).click();
    await page.getByRole("link", { name: "made", exact: true }).click();
    await page.getByRole("heading", { name: "This folder is empty" }).waitFor();
    expect(await findFlaws(page)).toEqual([]);

    await widen();
    await page.getByLabel("Files to upload").setInputFiles([
      { name: "notes.txt", mimeType: "text/plain", buffer: Buffer.from("first\n") },
      { name: "large.bin", mimeType: "application/octet-stream", buffer: Buffer.alloc(3 * 1024 * 1024) },
    ]);
    await page.getByRole("row").filter({ hasText: "large.bin" }).getByText("3.0 MiB").waitFor();
    expect(await findFlaws(page)).toEqual([]);

    await widen();
    await page.getByRole("link", { name: "notes.txt", exact: true }).click();
    await page.getByLabel("Content").fill("second\n");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved.").waitFor();
    expect(await exec("cat /tmp/made/notes.txt")).toBe("second\n");
    expect(await findFlaws(page)).toEqual([]);

    await widen();
    await page.getByRole("link", { name: "Back to the folder" }).click();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Download notes.txt" }).click(),
    ]);
    expect(await readFile(await download.path(), "utf8")).toBe("second\n");
    await page.getByRole("link", { name: "Up" }).click();
    const [folder] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Download made.tar" }).click(),
    ]);
    expect((await readFile(await folder.path())).includes("notes.txt")).toBe(true);
    await page.getByRole("link", { name: "made", exact: true }).click();
    await page.getByRole("button", { name: "Rename notes.txt" }).click();
    await page.getByLabel("New path").fill("/tmp/made/moved.txt");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("button", { name: "Delete moved.txt" }).click();
    await page.getByRole("button", { name: "Delete", exact: true }).click();
    await expect.poll(() => exec("ls /tmp/made")).toBe("large.bin\n");
  });

  test("lines that are not edited keep their ends, and nothing is typed while a file is saved", async () => {
    const content = page.getByLabel("Content");
    const whileSaved: boolean[] = [];
    await page.route("**/files?path=*", async (route) => {
      if (route.request().method() === "PUT") whileSaved.push(await content.isEditable());
      await route.continue();
    });
    const write = (text: string) => exec(`printf '${text}' > /tmp/ends.txt`);
    const edit = async (text: string) => {
      await content.fill(text);
      await page.getByRole("button", { name: "Save" }).click();
      await page.getByText("Saved.").waitFor();
      expect(await content.isEditable()).toBe(true);
      return exec("cat /tmp/ends.txt");
    };
    await write("a\\r\\nb\\r\\nc\\r\\n");
    await signInAt("/files?file=/tmp/ends.txt");
    expect(await edit("a\nx\ny\nc\n")).toBe("a\r\nx\r\ny\r\nc\r\n");
    await write("a\\nb\\r\\nc\\rd\\ne\\r\\n");
    await page.reload();
    expect(await edit("a\nb\nx\nd\ne\nf")).toBe("a\nb\r\nx\nd\ne\nf");
    expect(whileSaved).toEqual([false, false]);
  });

  test("a folder's name is one word of the command that copies into it", async () => {
    await exec('mkdir "/tmp/it\'s; echo"');
    await signInAt(`/files?path=${encodeURIComponent("/tmp/it's; echo")}`);
    const line = await page.getByText("npx sandgate cp").textContent();
    expect(line).toContain(`npx sandgate cp notes.txt 'looked-at:/tmp/it'\\''s; echo/notes.txt'`);
  });

  test("a file that somebody else has changed since is not overwritten", async () => {
    await exec("echo old > /tmp/shared.txt");
    await signInAt("/files?file=/tmp/shared.txt");
    await page.getByLabel("Content").fill("mine\n");
    await exec("echo theirs > /tmp/shared.txt");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("alert").waitFor();
    expect(await exec("cat /tmp/shared.txt")).toBe("theirs\n");
  });

  test("ports show what listens, open in a tab, are shared with a token, and closed again", async () => {
    await signInAt("/ports");
    const listening = page.getByRole("table", { name: "Ports that something listens on" });
    await listening.getByRole("row").filter({ hasText: "8080" }).waitFor();
    expect(await findFlaws(page)).toEqual([]);

    await widen();
    const [opened] = await Promise.all([
      context.waitForEvent("page"),
      listening.getByRole("button", { name: "Open" }).click(),
    ]);
    await opened.getByText("served by a sandbox").waitFor();
    expect(new URL(opened.url()).host).not.toBe(new URL(dashboard.platform.url).host);
    await opened.close();
    dashboard.problems.splice(0);
    const shared = page.getByRole("table", { name: "Addresses of ports" });
    await shared.getByRole("row").filter({ hasText: "8080" }).waitFor();

    await listening.getByRole("button", { name: "Share" }).click();
    await page.getByLabel("Time to live").fill("600");
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await page.getByRole("dialog").getByRole("button", { name: "Share" }).click();
    const made = page.getByRole("region", { name: "New address" });
    await made.getByText("X-Sandgate-Token").waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await shared.getByRole("button", { name: "Revoke" }).first().click();
    await page.getByRole("button", { name: "Revoke address" }).click();
    await expect.poll(() => shared.getByRole("button", { name: "Revoke" }).count()).toBe(1);
  });
});
