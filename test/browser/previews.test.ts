import { actionTimeoutMs, openBrowser, probeBrowser } from "@sandgate/test-support/browser";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectStatus } from "../conformance/client.ts";
import { type Box, openBox } from "../conformance/sandbox-box.ts";
import { requireSandboxHost } from "../conformance/sandbox-host.ts";

const page = `<title>Inside</title><script>document.cookie = "theirs=1"</script><a href="/second.html">second</a>`;
/** What the script on the page saves. */
const save = String.raw`#!/bin/sh
printf 'Content-Type: text/plain\r\n\r\n'
echo "$REQUEST_METHOD of $HTTP_COOKIE: $(cat)"
`;

const isAvailable = (await requireServer("chromium", probeBrowser)) && (await requireSandboxHost());

describe.runIf(isAvailable)("a private preview in a browser", () => {
  let box: Box;
  let browser: Browser;
  let url: string;
  let link: string;

  beforeAll(async () => {
    box = await openBox({
      files: { "/www/index.html": page, "/www/second.html": "<title>Second</title>", "/www/cgi-bin/save": save },
    });
    await box.exec("chmod 755 /www/cgi-bin/save");
    await box.start({ command: ["httpd", "-f", "-p", "127.0.0.1:3000", "-h", "/www"] });
    const made = expectStatus(await box.target.post(box.path("ports"), { port: 3000 }, box.as()), 201);
    ({ url } = made);
    const links = box.path(`ports/${made.id}/links`);
    await until(async () => expect((await box.target.get(box.path("listening"), box.as())).body.ports).toHaveLength(1));
    link = expectStatus(await box.target.post(links, {}, box.as()), 201).url;
    browser = await openBrowser();
  });
  afterAll(async () => {
    await browser?.close();
    await box?.close();
  });

  const open = async (): Promise<Page> => {
    const opened = await (await browser.newContext()).newPage();
    opened.setDefaultTimeout(actionTimeoutMs);
    return opened;
  };

  test("opens by a link once, and then by its cookie: deep links, reloads and requests of its own pages (53, 55)", async () => {
    const stranger = await open();
    expect((await stranger.goto(url))?.status()).toBe(401);
    const tab = await open();
    await tab.goto(link);
    expect([await tab.title(), tab.url()]).toEqual(["Inside", url]);
    await tab.reload();
    expect(await tab.title()).toBe("Inside");
    await tab.click("a");
    await expect.poll(() => tab.title()).toBe("Second");
    await tab.goto(`${url}second.html`);
    expect(await tab.title()).toBe("Second");
    const saved = await tab.evaluate(async () =>
      (await fetch("/cgi-bin/save", { method: "POST", body: "some text" })).text(),
    );
    expect(saved).toBe("POST of theirs=1: some text\n");
    expect((await stranger.goto(link))?.status()).toBe(401);
  });
});
