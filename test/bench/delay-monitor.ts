import { readFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import type { TestPlatform } from "../platform/local.ts";

/** In ms. */
export interface Delays {
  p50: number;
  p99: number;
  max: number;
}

/** Measures how late the event loop of a platform is that was started with these settings. */
export interface DelayMonitor<Figures extends "late" | "atWork"> {
  settings: Record<string, string>;
  /** The figures since the last call. */
  read(measured: Pick<TestPlatform, "process">): Promise<Record<Figures, Delays>>;
}

/** With `atWork` also how much of it the thread was at work. The figures pass through a file in the folder. */
export function createDelayMonitor(folder: string, o: { atWork: true }): DelayMonitor<"late" | "atWork">;
export function createDelayMonitor(folder: string): DelayMonitor<"late">;
export function createDelayMonitor(folder: string, { atWork = false } = {}): DelayMonitor<"late" | "atWork"> {
  const file = join(folder, "loop-delay.json");
  return {
    settings: {
      NODE_OPTIONS: `--import=${fileURLToPath(new URL("./loop-delay.ts", import.meta.url))}`,
      LOOP_DELAY_FILE: file,
      ...(atWork && { LOOP_DELAY_AT_WORK: "true" }),
    },
    async read(measured) {
      await rm(file, { force: true });
      measured.process.child.kill("SIGUSR2");
      for (;;) {
        const text = await readFile(file, "utf8").catch(() => undefined);
        if (text !== undefined) return JSON.parse(text);
        await delay(20);
      }
    },
  };
}
