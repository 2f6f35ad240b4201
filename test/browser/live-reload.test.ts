// A Vite dev server inside a sandbox, behind previews: its pages change in a browser as its files are written.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { type Sandbox, Sandgate } from "@sandgate/client";
import { actionTimeoutMs, openBrowser, probeBrowser } from "@sandgate/test-support/browser";
import { buildFolderImage, openTestEngine, probeEngine, type TestImage } from "@sandgate/test-support/images";
import { addPackages, addProgram } from "@sandgate/test-support/program-images";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder, type TempFolder } from "@sandgate/test-support/temp-folder";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createPreviewClient } from "../conformance/preview-client.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";

const modules = join(import.meta.dirname, "../../node_modules");
const port = 5173;

/** Vite is a dependency of the dashboard's build alone. */
async function probeVite(): Promise<void> {
  if (!existsSync(join(modules, "vite/bin/vite.js"))) throw new Error("vite is not installed (npm ci --include=dev)");
}

/** A module that takes its successor over without a reload of its page. */
const moduleOf = (heading: string) => `
import "./look.css";
document.querySelector("h1").textContent = "${heading}";
import.meta.hot?.accept();
`;
const pageOf = (title: string) => `<title>${title}</title><h1></h1><script type="module" src="/main.js"></script>`;
/** What docs/previews.md tells. */
const configurationOf = (...allowedHosts: string[]) =>
  `export default { server: ${JSON.stringify({ allowedHosts })} };`;

const isHere =
  (await requireServer("docker", probeEngine)) &&
  (await requireServer("chromium", probeBrowser)) &&
  (await requireServer("vite", probeVite));

describe.runIf(isHere)("a Vite dev server in a sandbox", { timeout: 600_000 }, () => {
  let folder: TempFolder;
  let image: TestImage;
  const ends: (() => Promise<void>)[] = [];

  beforeAll(async () => {
    folder = await createTempFolder();
    const content = join(folder.path, "image");
    await addProgram(content, process.execPath, "/bin/node");
    await addPackages(content, "/app", modules, ["vite"]);
    image = await buildFolderImage(openTestEngine(), content, { command: ["sleep", "100000"] });
  });
  afterAll(async () => {
    for (const end of ends.reverse()) await end();
    await image?.remove();
    await folder?.remove();
  });

  /** A platform with a sandbox in which the dev server runs. */
  async function startVite(settings: Record<string, string> = {}): Promise<{ platform: TestPlatform; box: Sandbox }> {
    const platform = await startPlatform({ settings: { SANDGATE_DASHBOARD: "off", ...settings } });
    ends.push(() => platform.stop());
    const sandgate = await Sandgate.signIn({ url: platform.url, ...platform.admin });
    const limits = { memoryMb: 512, ttlSeconds: 3600 };
    await sandgate.images.create({ name: "vite", image: image.reference, isDefault: true, ...limits });
    const box = await sandgate.sandboxes.create("vite");
    await box.files.write("/app/index.html", pageOf("First"));
    await box.files.write("/app/main.js", moduleOf("before"));
    await box.files.write("/app/vite.config.js", configurationOf());
    await box.files.write("/app/look.css", "h1 { color: rgb(1, 2, 3) }");
    const command = ["node", "node_modules/vite/bin/vite.js", "--host", "127.0.0.1", "--port", String(port)];
    const server = await box.commands.start(command, { cwd: "/app" });
    let printed = "";
    for await (const { data } of server.output) {
      printed += data;
      if (/ready in/.test(printed)) return { platform, box };
    }
    throw new Error(`the dev server ended: ${printed}`);
  }

  test("changes its page in a browser as files are written, over the private preview's WebSocket", async () => {
    const { box } = await startVite();
    const preview = await box.ports.open(port);
    const link = await box.ports.link(preview.id);
    const browser: Browser = await openBrowser();
    ends.push(() => browser.close());
    const page = await (await browser.newContext()).newPage();
    page.setDefaultTimeout(actionTimeoutMs);
    const sockets: string[] = [];
    page.on("websocket", (socket) => sockets.push(new URL(socket.url()).host));
    const connected = page.waitForEvent("console", (message) => message.text().includes("[vite] connected"));
    await page.goto(link.url);
    await connected;
    const shown = () => page.textContent("h1");
    const colour = () => page.evaluate("getComputedStyle(document.querySelector('h1')).color");
    await expect.poll(shown).toBe("before");
    expect(await colour()).toBe("rgb(1, 2, 3)");

    // What the page knows stays while its parts are replaced.
    await page.evaluate("globalThis.known = 'kept'");
    await box.files.write("/app/main.js", moduleOf("after"));
    await expect.poll(shown).toBe("after");
    await box.files.write("/app/look.css", "h1 { color: rgb(4, 5, 6) }");
    await expect.poll(colour).toBe("rgb(4, 5, 6)");
    expect(await page.evaluate("globalThis.known")).toBe("kept");
    expect(sockets).toEqual([new URL(preview.url).host]);

    // The whole page is loaded again where its parts can't be replaced; the link worked once, and the cookie goes on.
    await box.files.write("/app/index.html", pageOf("Second"));
    await expect.poll(() => page.title()).toBe("Second");
    await expect.poll(shown).toBe("after");
    expect(await page.evaluate("globalThis.known")).toBeUndefined();
  });

  test("refuses the hosts of previews on a domain of one's own until its configuration, or the preview, says otherwise", async () => {
    const domain = "previews.test";
    const { platform, box } = await startVite({ SANDGATE_PREVIEW_DOMAIN: domain });
    const get = async (hostHeader: "preview" | "localhost") => {
      const { url, token } = await box.ports.open(port, { hostHeader });
      expect(new URL(url).hostname).toMatch(`.${domain}`);
      const headers = { "x-sandgate-token": token };
      return () => createPreviewClient({ via: platform.url, url, headers }).get("/");
    };
    const asPreview = await get("preview");
    expect(await asPreview()).toMatchObject({ status: 403, text: expect.stringContaining("server.allowedHosts") });
    const asLocalhost = await get("localhost");
    expect(await asLocalhost()).toMatchObject({ status: 200, text: expect.stringContaining("First") });
    // It starts again by itself.
    await box.files.write("/app/vite.config.js", configurationOf(`.${domain}`));
    await expect.poll(async () => (await asPreview()).status).toBe(200);
  });
});
