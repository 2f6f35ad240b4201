import type { TestProject } from "vitest/node";
import { startPlatform } from "../platform/local.ts";
import { suiteSettings } from "./suite-settings.ts";
import type { RunningService } from "./target.ts";

declare module "vitest" {
  interface ProvidedContext {
    platform?: RunningService;
  }
}

/** Starts the platform that the suite's files share: a start takes longer than most of them. */
export async function setup(project: TestProject): Promise<(() => Promise<void>) | undefined> {
  if (process.env.SANDGATE_CONFORMANCE_URL !== undefined) return undefined;
  const { url, admin, mailFolder, stop } = await startPlatform({ settings: suiteSettings });
  project.provide("platform", { urls: [url], admin, mailFolder });
  return stop;
}
