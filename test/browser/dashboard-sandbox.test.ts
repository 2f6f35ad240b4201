import { readFile } from "node:fs/promises";
import { setImmediate } from "node:timers/promises";
import { probeBrowser } from "@sandgate/test-support/browser";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { test } from "@sandgate/test-support/test";
import type { BrowserContext, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect } from "vitest";
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
  const extend = async () => {
    await page.getByRole("button", { name: "Extend" }).click();
    await page.getByLabel("Ends in").fill("1800");
    await page.getByRole("dialog").getByRole("button", { name: "Save" }).click();
    await page.getByRole("dialog").waitFor({ state: "detached" });
  };
  const mayLeave = () => page.evaluate("dispatchEvent(new Event('beforeunload', { cancelable: true }))");
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
    await page.getByText(/^0 of [1-9][\d,]* lines? found/).waitFor();
    expect(new URL(page.url()).search).toMatch(/^\?workspace=[0-9a-f-]{36}&stream=stdout&q=oops$/);
    await page.goBack();
    await page.goForward();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Download" }).click(),
    ]);
    expect(download.suggestedFilename()).toBe("looked-at.log");
    expect(await readFile(await download.path(), "utf8")).toMatch(/^\S+Z stdout line 1\n\S+Z stdout line 2\n/);
  });

  test("logs of a while that is paused are shown without a gap, and the oldest are dropped", async () => {
    const count = 120_000;
    const event = (i: number) =>
      `id: ${i}\ndata: {"timestamp":"2026-01-01T00:00:00.000Z","stream":"stdout","log":"flood ${i}"}\n\n`;
    const flood = Array.from({ length: count }, (_, i) => event(i + 1)).join("");
    const isPaused = Promise.withResolvers<void>();
    const hasCome = Promise.withResolvers<void>();
    let opened = 0;
    await page.route("**/sandbox/monitoring/*/stream?*", async (route) => {
      opened += 1;
      // It is opened again once all of the first has been read.
      if (opened > 1) return hasCome.resolve();
      await isPaused.promise;
      await route.fulfill({ contentType: "text/event-stream", body: flood });
    });
    await signInAt("/logs");
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByText("Paused.").waitFor();
    isPaused.resolve();
    await hasCome.promise;
    await page.getByRole("button", { name: "Resume" }).click();
    await lines()
      .filter({ hasText: `flood ${count}` })
      .waitFor();
    const status = await page.getByText("older ones are in the download. Live.").textContent();
    const kept = Number(status?.split(" ")[0]?.replaceAll(",", ""));
    expect(kept).toBeLessThanOrEqual(100_000);
    await page.getByRole("region", { name: "Log lines" }).press("Home");
    await lines()
      .filter({ hasText: `flood ${count - kept + 1}` })
      .waitFor();
  });

  test("logs that can't be followed any more say so, and go on when they are tried again", async () => {
    let opened = 0;
    await page.route("**/sandbox/monitoring/*/stream?*", async (route) => {
      opened += 1;
      if (opened > 1) return route.abort();
      const body = 'id: 1\ndata: {"timestamp":"2026-01-01T00:00:00.000Z","stream":"stdout","log":"the last"}\n\n';
      await route.fulfill({ contentType: "text/event-stream", body });
    });
    await signInAt("/logs");
    await page.getByText("Stopped.").waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await page.unroute("**/sandbox/monitoring/*/stream?*");
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByText("Live.").waitFor();
    const before = await lastNumber();
    await expect.poll(lastNumber).toBeGreaterThan(before);
    expect(await page.getByRole("alert").count()).toBe(0);
  });

  test("a log that is longer than what is read of it says where the older lines are", async () => {
    await dashboard.call("POST", "/sandboxes/provision", {
      image: "default",
      name: "long-log",
      command: ["sh", "-c", "seq 12000; sleep 2"],
    });
    const state = async () => (await dashboard.call<{ state: string }>("GET", "/sandboxes/long-log")).state;
    await expect.poll(state).toMatch(/stopped|failed/);
    await dashboard.open(page, "/sandboxes/long-log/logs");
    await dashboard.signIn(page);
    await page.getByText("10,000 lines, older ones are in the download. The log has ended.").waitFor();
  });

  test("paused logs, terminals and what is edited stay as they are when the sandbox is extended", async () => {
    await signInAt("/logs");
    await lines().first().waitFor();
    await page.getByRole("button", { name: "Pause" }).click();
    await page.getByText("Paused.").waitFor();
    const paused = await lastNumber();
    await extend();
    expect(await lastNumber()).toBe(paused);

    let sockets = 0;
    page.on("websocket", () => {
      sockets += 1;
    });
    await page.getByRole("tab", { name: "Terminal" }).click();
    await page.getByRole("button", { name: "New terminal" }).click();
    await page.getByText("Connected", { exact: true }).waitFor();
    const before = sockets;
    await extend();
    await page.getByText("Connected", { exact: true }).waitFor();
    expect(sockets).toBe(before);
    await page.getByRole("button", { name: "End terminal 1" }).click();

    await exec("echo old > /tmp/extended.txt");
    await dashboard.open(page, "/sandboxes/looked-at/files?file=/tmp/extended.txt");
    await page.getByLabel("Content").fill("mine\n");
    await exec("echo theirs > /tmp/extended.txt");
    await extend();
    await context.setOffline(true);
    await Promise.all([page.waitForResponse("**/sandboxes/looked-at"), context.setOffline(false)]);
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByRole("alert").waitFor();
    expect(await page.getByLabel("Content").inputValue()).toBe("mine\n");
    expect(await exec("cat /tmp/extended.txt")).toBe("theirs\n");
  });

  test("metrics show CPU and memory as plots and as figures", async () => {
    await signInAt("/metrics");
    await page.getByRole("img", { name: "Memory over time" }).locator("canvas").waitFor();
    await page.getByText("Limit").waitFor();
    expect(await page.getByRole("definition").count()).toBe(7);
    expect(await findFlaws(page)).toEqual([]);
    await page.getByLabel("Window").selectOption("Last hour");
    await expect.poll(() => new URL(page.url()).search).toMatch(/^\?workspace=[0-9a-f-]{36}&window=60$/);
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

  test("a terminal that is shown again types no answers to questions of before", async () => {
    await signInAt("/terminal");
    await page.getByRole("button", { name: "New terminal" }).click();
    const terminal = page.getByRole("region", { name: "Terminal" });
    await page.getByText("Connected", { exact: true }).waitFor();
    await terminal.click();
    await page.keyboard.type("printf '\\033[5n'; read -r -n 4 answer; echo $((6 * 7))-asked; cat > /tmp/typed\n");
    await terminal.getByText("42-asked").first().waitFor();
    await page.reload();
    await terminal.getByText("42-asked").first().waitFor();
    await page.getByText("Connected", { exact: true }).waitFor();
    await terminal.click();
    await page.keyboard.type("by hand\n");
    await expect.poll(() => exec("cat /tmp/typed")).toContain("by hand\n");
    expect(await exec("cat /tmp/typed")).toBe("by hand\n");
    await page.getByRole("button", { name: "End terminal 1" }).click();
    await page.getByRole("heading", { name: "No terminal is open" }).waitFor();
  });

  test("a terminal shows all of an output that comes faster than it can be shown", async () => {
    const output = Buffer.from(`${"a line of text\r\n".repeat(1024 * 1024)}the last line`);
    const chunkBytes = 1024 * 1024;
    const asked: number[] = [];
    await page.routeWebSocket(/\/attach\?/, async (socket) => {
      let isOpen = true;
      socket.onClose(() => {
        isOpen = false;
        void socket.close();
      });
      let at = Number(new URL(socket.url()).searchParams.get("after"));
      asked.push(at);
      for (; isOpen && at < output.length; at += chunkBytes) {
        socket.send(Buffer.concat([Buffer.of(1), output.subarray(at, at + chunkBytes)]));
        await setImmediate();
      }
    });
    await signInAt("/terminal");
    await page.getByRole("button", { name: "New terminal" }).click();
    await page.getByRole("region", { name: "Terminal" }).getByText("the last line").first().waitFor();
    expect(asked.length).toBeGreaterThan(1);
    expect(asked).toEqual(asked.toSorted((a, b) => a - b));
    await page.getByRole("button", { name: "End terminal 1" }).click();
    await page.getByRole("heading", { name: "No terminal is open" }).waitFor();
  });

  test("a terminal that can't be reached says so, and is there again when it is tried again", async () => {
    let isDown = true;
    await page.routeWebSocket(/\/attach\?/, (socket) => {
      if (isDown) void socket.close();
      else socket.connectToServer();
    });
    await signInAt("/terminal");
    await page.getByRole("button", { name: "New terminal" }).click();
    await page.getByRole("alert").waitFor();
    await page.getByText("Not connected", { exact: true }).waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    isDown = false;
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByText("Connected", { exact: true }).waitFor();
    expect(await page.getByRole("alert").count()).toBe(0);
    await page.getByRole("button", { name: "End terminal 1" }).click();
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

  test("what was edited is not left without a question", async () => {
    await exec("echo old > /tmp/unsaved.txt");
    await signInAt("/files?file=/tmp/unsaved.txt");
    const content = page.getByLabel("Content");
    await content.waitFor();
    expect(await mayLeave()).toBe(true);
    await content.fill("mine\n");
    expect(await mayLeave()).toBe(false);
    await page.getByRole("tab", { name: "Overview" }).click();
    await page.getByRole("alertdialog").waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await page.getByRole("button", { name: "Cancel" }).click();
    expect(await content.inputValue()).toBe("mine\n");
    await page.getByRole("link", { name: "tmp", exact: true }).click();
    await page.getByRole("button", { name: "Discard" }).click();
    await page.getByRole("link", { name: "unsaved.txt", exact: true }).click();
    await expect.poll(() => content.inputValue()).toBe("old\n");
    await content.fill("mine\n");
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved.", { exact: true }).waitFor();
    await page.getByRole("link", { name: "Back to the folder" }).click();
    await page.getByRole("button", { name: "New folder" }).waitFor();
  });

  test("what is left while it is saved is not asked about once it is, but if it can't be saved", async () => {
    const held = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
    let saves = 0;
    await page.route("**/files?path=*", async (route) => {
      if (route.request().method() !== "PUT") return route.continue();
      const isFirst = saves++ === 0;
      await held[isFirst ? 0 : 1]?.promise;
      return isFirst ? route.fulfill({ status: 404, json: {} }) : route.continue();
    });
    await exec("echo old > /tmp/left.txt");
    await signInAt("/files?file=/tmp/left.txt");
    await page.getByLabel("Content").fill("mine\n");
    const leave = async () => {
      await page.getByRole("button", { name: "Save" }).click();
      await page.getByRole("link", { name: "Back to the folder" }).click();
    };
    await leave();
    held[0]?.resolve();
    await page.getByRole("alertdialog").getByRole("button", { name: "Cancel" }).click();
    await leave();
    held[1]?.resolve();
    await page.getByRole("button", { name: "New folder" }).waitFor();
    expect(await exec("cat /tmp/left.txt")).toBe("mine\n");
  });

  test("a session goes on while something isn't saved, in a tab that nobody looks at too", async () => {
    await page.clock.install();
    await exec("echo old > /tmp/kept.txt");
    await signInAt("/files?file=/tmp/kept.txt");
    await page.getByLabel("Content").fill("mine\n");
    await page.evaluate(`
      Object.defineProperty(document, "visibilityState", { value: "hidden" });
      document.dispatchEvent(new Event("visibilitychange"));
    `);
    for (let i = 0; i < 2; i++) {
      await Promise.all([page.waitForResponse("**/session/refresh"), page.clock.fastForward("10:00")]);
    }
  });

  test("who signs out is asked about what isn't saved", async () => {
    await exec("echo old > /tmp/signed-out.txt");
    await signInAt("/files?file=/tmp/signed-out.txt");
    await page.getByLabel("Content").fill("mine\n");
    await page.getByRole("button", { name: "Sign out" }).click();
    const question = page.getByRole("alertdialog");
    await question.waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await question.getByRole("button", { name: "Cancel" }).click();
    expect(await page.getByLabel("Content").inputValue()).toBe("mine\n");
    await page.getByRole("button", { name: "Sign out" }).click();
    await question.getByRole("button", { name: "Sign out" }).click();
    await page.getByRole("heading", { name: "Sign in" }).waitFor();
  });

  test("what isn't saved when a session ends is saved after a sign-in in another tab", async () => {
    await exec("echo old > /tmp/outlived.txt");
    await signInAt("/files?file=/tmp/outlived.txt");
    const content = page.getByLabel("Content");
    await content.fill("mine\n");
    await context.clearCookies();
    await page.route("**/sandboxes/looked-at", (route) =>
      route.fulfill({ status: 401, json: { error: { code: "invalid_token", message: "It has ended." } } }),
    );
    const notice = page.getByText("Your session has ended.");
    await notice.waitFor();
    expect(await content.inputValue()).toBe("mine\n");
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await page.unrouteAll();
    const [other] = await Promise.all([
      context.waitForEvent("page"),
      page.getByRole("link", { name: "sign in in another tab" }).click(),
    ]);
    await dashboard.signIn(other);
    await notice.waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved.", { exact: true }).waitFor();
    expect(await exec("cat /tmp/outlived.txt")).toBe("mine\n");
  });

  test("what isn't saved when the sandbox ends can be copied and downloaded", async () => {
    const { id } = await dashboard.call<{ id: string }>("POST", "/sandboxes/provision", {
      image: "default",
      name: "ends-soon",
    });
    await dashboard.call("POST", "/sandboxes/wait", { sandbox_id: id, timeout_seconds: 120 });
    await dashboard.call("POST", "/sandboxes/ends-soon/exec", { command: "printf 'old\\r\\n' > /tmp/kept.txt" });
    await dashboard.open(page, "/sandboxes/ends-soon/files?file=/tmp/kept.txt");
    await dashboard.signIn(page);
    const content = page.getByLabel("Content");
    await content.fill("mine\n");
    await dashboard.call("DELETE", "/sandboxes/ends-soon");
    await page.getByText("This can't be saved").waitFor();
    expect(await content.inputValue()).toBe("mine\n");
    expect(await content.isEditable()).toBe(false);
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    const [download] = await Promise.all([
      page.waitForEvent("download"),
      page.getByRole("button", { name: "Download" }).click(),
    ]);
    expect(await readFile(await download.path(), "utf8")).toBe("mine\r\n");
    await page.getByRole("link", { name: "tmp", exact: true }).click();
    await page.getByRole("button", { name: "Discard" }).click();
    await page.getByRole("heading", { name: "No files" }).waitFor();
  });

  test("a link leads to the file or folder that it is for, and says when there is none", async () => {
    await exec("mkdir /tmp/links; cd /tmp/links; echo there > /tmp/target.txt");
    await exec("cd /tmp/links; ln -s /tmp/target.txt file; ln -s /www folder; ln -s /nowhere broken");
    await signInAt("/files?path=/tmp/links");
    await page.getByRole("button", { name: "broken", exact: true }).click();
    await page.getByRole("alert").waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await page.getByRole("button", { name: "file", exact: true }).click();
    await expect.poll(() => page.getByLabel("Content").inputValue()).toBe("there\n");
    await page.goBack();
    await page.getByRole("button", { name: "folder", exact: true }).click();
    await expect.poll(() => new URL(page.url()).searchParams.get("path")).toBe("/tmp/links/folder");
    await page.getByRole("link", { name: "index.html", exact: true }).waitFor();
  });

  test("uploads that are under way at once show their progress and what failed, in any tab", async () => {
    await exec("mkdir -p /tmp/uploads/inner");
    const held = Promise.withResolvers<void>();
    await page.route("**/files?path=*", async (route) => {
      if (route.request().method() !== "PUT") return route.continue();
      if (route.request().url().includes("refused")) return route.fulfill({ status: 404, json: {} });
      await held.promise;
      await route.continue();
    });
    const upload = (...names: string[]) =>
      page
        .getByLabel("Files to upload")
        .setInputFiles(names.map((name) => ({ name, mimeType: "text/plain", buffer: Buffer.from(name) })));
    const shown = (name: string) =>
      page.getByRole("list", { name: "Uploads" }).getByRole("listitem").filter({ hasText: name });
    await signInAt("/files?path=/tmp/uploads");
    await upload("refused.txt", "slow.txt");
    await shown("refused.txt").getByRole("alert").waitFor();
    await upload("second.txt");
    await page.getByRole("link", { name: "inner", exact: true }).click();
    await page.getByRole("heading", { name: "This folder is empty" }).waitFor();
    await page.getByRole("tab", { name: "Overview" }).click();
    await page.getByRole("heading", { name: "Timeline" }).waitFor();
    for (const name of ["slow.txt", "second.txt"]) await shown(name).getByRole("progressbar").waitFor();
    expect(await findFlaws(page)).toEqual([]);
    await widen();
    await page.getByRole("link", { name: "Images", exact: true }).click();
    await page.getByRole("heading", { name: "Images" }).waitFor();
    expect(await mayLeave()).toBe(false);
    await page.goBack();
    await page.goBack();
    await page.getByRole("link", { name: "Up", exact: true }).click();
    held.resolve();
    for (const name of ["slow.txt", "second.txt"]) {
      await shown(name).waitFor({ state: "detached" });
      await page.getByRole("link", { name, exact: true }).waitFor();
    }
    expect(await mayLeave()).toBe(true);
    await page.getByRole("tab", { name: "Overview" }).click();
    await shown("refused.txt").getByRole("alert").waitFor();
    await page.getByRole("button", { name: "Forget refused.txt" }).click();
    await page.getByRole("list", { name: "Uploads" }).waitFor({ state: "detached" });
  });

  test("a folder that is dropped is refused with what to do instead", async ({ folder }) => {
    await signInAt("/files?path=/tmp");
    await page.getByRole("button", { name: "New folder" }).waitFor();
    const box = await page.getByRole("region", { name: "Folder" }).boundingBox();
    const session = await context.newCDPSession(page);
    for (const type of ["dragEnter", "dragOver", "drop"] as const) {
      await session.send("Input.dispatchDragEvent", {
        type,
        x: (box?.x ?? 0) + 20,
        y: (box?.y ?? 0) + 20,
        data: { items: [], files: [folder], dragOperationsMask: 1 },
      });
    }
    await page.getByRole("alert").filter({ hasText: "npx sandgate cp -r" }).waitFor();
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
