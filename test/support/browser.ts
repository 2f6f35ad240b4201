import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { type Browser, chromium } from "playwright-core";

/** Without these it asks Google's servers for this and that, also where no network is. */
const quietly = [
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/**
 * Features that are off. Of this option the last counts, so that it has Playwright's own too (`disabledFeatures` in
 * playwright-core), without those of other systems.
 */
const disabledFeatures = [
  // With these each window has two pages more, for suggestions below its address bar: a third of all its processor time.
  "WebUIOmniboxAimPopup",
  "WebUIOmniboxFullPopup",
  "WebUIOmniboxPopup",
  // Playwright's.
  "AimEnabled",
  "AvoidCorsURLLoaderRestartOnRedirect",
  "AvoidUnnecessaryBeforeUnloadCheckSync",
  "DestroyProfileOnBrowserClose",
  "HttpsFirstBalancedModeAutoEnable",
  "HttpsUpgrades",
  "LensOverlay",
  "MediaRouter",
  "NetworkTimeServiceQuerying",
  "OptimizationHints",
  "PaintHolding",
  "PreconnectToSearch",
  "ThirdPartyStoragePartitioning",
];

async function findChromium(): Promise<string> {
  const { stdout } = await promisify(execFile)("sh", ["-c", "command -v chromium"]).catch((cause: unknown) => {
    throw new Error("chromium was not found (Debian's package chromium)", { cause });
  });
  return stdout.trim();
}

/** Throws, saying what is missing, unless there is a browser. For `requireServer("chromium", …)`. */
export const probeBrowser = findChromium;

/** How long actions on a page may take, on a machine that has much else to do. */
export const actionTimeoutMs = 120_000;

/** A real browser without a window. Each of its contexts has cookies of its own. */
export async function openBrowser(): Promise<Browser> {
  // Its sandbox refuses to run as root.
  return chromium.launch({
    executablePath: await findChromium(),
    chromiumSandbox: false,
    args: [...quietly, `--disable-features=${disabledFeatures}`],
  });
}
