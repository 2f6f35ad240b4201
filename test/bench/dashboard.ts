import { execFile } from "node:child_process";
import { env } from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { probeBrowser } from "@sandgate/test-support/browser";
import { retry } from "@sandgate/test-support/retry";
import pLimit from "p-limit";
import type { Page } from "playwright-core";
import { type DashboardPlatform, openDashboardPlatform } from "../browser/dashboard-platform.ts";
import { unlimited, unlimitedSandboxes } from "../platform/limits.ts";
import { type Figure, median } from "./figure.ts";
import { report } from "./report.ts";

/** A package of its own for this bench: it has some hundred others. */
const lighthouse = "lighthouse@13.5.0";
const categories = ["performance", "accessibility", "best-practices"] as const;
const listed = 1_000;
const pages = 10;
const settling = { timeoutMs: 600_000, intervalMs: 500 };
/** Of a second. */
const lines = 2_000;
const minutes = Number(env.SANDGATE_BENCH_MINUTES ?? 10);
/** By then the page keeps as many lines as it ever does. */
const fillMinutes = 2;
const samplesOfMinute = 4;

/** The dashboard in a browser: its first page, a long list, and a page that follows many lines for some minutes. */
export async function measureDashboard(): Promise<Figure[]> {
  const dashboard = await openDashboardPlatform({ ...unlimited, ...unlimitedSandboxes });
  try {
    const figures = await measureFirstPage(dashboard);
    const page = await (await dashboard.newContext()).newPage();
    await dashboard.open(page, "/");
    await dashboard.signIn(page);
    await page.addInitScript({ content: observeTasks });
    figures.push(...(await measureList(dashboard, page)), ...(await measureTail(dashboard, page)));
    return figures;
  } finally {
    await dashboard.close();
  }
}

async function measureFirstPage({ platform }: DashboardPlatform): Promise<Figure[]> {
  const options = [
    `--only-categories=${categories.join(",")}`,
    "--preset=desktop",
    "--output=json",
    "--quiet",
    "--chrome-flags=--headless=new --no-sandbox",
  ];
  const { stdout } = await promisify(execFile)("npx", ["--yes", lighthouse, `${platform.url}/dashboard/`, ...options], {
    env: { ...env, CHROME_PATH: await probeBrowser() },
    maxBuffer: 64 * 1024 * 1024,
  });
  const { categories: scores } = JSON.parse(stdout) as { categories: Record<string, { score: number }> };
  return categories.map((category) => ({
    what: `Lighthouse's ${category} of the sign-in page`,
    value: 100 * (scores[category]?.score ?? Number.NaN),
    unit: "",
    aim: "at least 95",
    detail: "desktop",
  }));
}

/** Of sandboxes whose program is missing: those that run would take all of the machine. */
async function measureList(dashboard: DashboardPlatform, page: Page): Promise<Figure[]> {
  const limit = pLimit(16);
  const provision = () => dashboard.call("POST", "/sandboxes/provision", { image: "default", command: ["/missing"] });
  await Promise.all(Array.from({ length: listed }, () => limit(provision)));
  await retry(async () => {
    const { sandboxes } = await dashboard.call<{ sandboxes: unknown[] }>("GET", "/sandboxes?state=provisioning");
    if (sandboxes.length > 0) throw new Error("some are not yet made");
  }, settling);
  report(`${listed} sandboxes are there`);
  await dashboard.open(page, "/sandboxes");
  const rows = page.getByRole("row");
  const firstName = () => rows.nth(1).getByRole("link").textContent();
  await rows.nth(1).waitFor();
  const turnMs: number[] = [];
  for (let turn = 0; turn < pages; turn++) {
    const before = await firstName();
    const startedMs = performance.now();
    await page.getByRole("button", { name: "Next page" }).click();
    await page.getByRole("link", { name: before ?? "", exact: true }).waitFor({ state: "detached" });
    turnMs.push(performance.now() - startedMs);
  }
  return [
    {
      what: `a page of a list of ${listed} sandboxes`,
      value: median(turnMs),
      unit: " ms",
      aim: "at most 300",
      detail: `${pages} pages, longest task ${(await longestTaskMs(page)).toFixed(0)} ms`,
    },
  ];
}

async function measureTail(dashboard: DashboardPlatform, page: Page): Promise<Figure[]> {
  // Twenty times a second, but for what printing them takes.
  const each = Math.ceil(lines / 17);
  const { id } = await dashboard.call<{ id: string }>("POST", "/sandboxes/provision", {
    image: "default",
    command: [
      "sh",
      "-c",
      `httpd -p 8080 -h /www; i=1; while :; do seq $i $((i + ${each - 1})); i=$((i + ${each})); sleep 0.05; done`,
    ],
  });
  await dashboard.call("POST", "/sandboxes/wait", { sandbox_id: id, timeout_seconds: 120 });
  await dashboard.open(page, `/sandboxes/${id}/logs`);
  const shown = page.getByRole("region", { name: "Log lines" }).getByRole("listitem");
  // After the time, which ends with milliseconds.
  const lastNumber = async () => Number(/\.\d{3}\D*(\d+)$/.exec((await shown.last().textContent()) ?? "")?.[1]);
  await shown.first().waitFor();
  const devtools = await page.context().newCDPSession(page);
  const heapMb: number[] = [];
  const first = { number: await lastNumber(), ms: performance.now() };
  for (let sample = 0; sample < minutes * samplesOfMinute; sample++) {
    await delay(60_000 / samplesOfMinute);
    await devtools.send("HeapProfiler.collectGarbage");
    const { usedSize } = await devtools.send("Runtime.getHeapUsage");
    heapMb.push(usedSize / 2 ** 20);
    report(`${heapMb.at(-1)?.toFixed(1)} MB, line ${await lastNumber()}`);
  }
  const seconds = (performance.now() - first.ms) / 1000;
  const rate = ((await lastNumber()) - first.number) / seconds;
  const filled = heapMb.slice(fillMinutes * samplesOfMinute);
  const [early, late] = [filled.slice(0, samplesOfMinute), filled.slice(-samplesOfMinute)].map(median);
  const detail = `${rate.toFixed(0)} lines a second for ${minutes} minutes`;
  return [
    {
      what: "the longest task of the page that follows a log",
      value: await longestTaskMs(page),
      unit: " ms",
      aim: "at most 200",
      detail,
    },
    {
      what: "memory of the page that follows a log, of what it was once full",
      value: (late ?? Number.NaN) / (early ?? Number.NaN),
      unit: "",
      aim: "at most 1.1",
      detail: `${early?.toFixed(1)} MB, then ${late?.toFixed(1)} MB; ${detail}`,
    },
  ];
}

/** Runs in the page. */
const observeTasks = `
  globalThis.longestTaskMs = 0;
  new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) longestTaskMs = Math.max(longestTaskMs, duration);
  }).observe({ type: "longtask", buffered: true });
`;

/** Since the page was loaded. Tasks of less than 50 ms don't count. */
function longestTaskMs(page: Page): Promise<number> {
  return page.evaluate("longestTaskMs");
}
