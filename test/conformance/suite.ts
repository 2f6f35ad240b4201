import { describe } from "vitest";

const files = [
  ["access", () => import("./access.test.ts")],
  ["accounts", () => import("./accounts.test.ts")],
  ["the audit log", () => import("./audit-log.test.ts")],
  ["the audit log of use", () => import("./audit-of-use.test.ts")],
  ["archives and watches", () => import("./archives.test.ts")],
  ["codes", () => import("./codes.test.ts")],
  ["commands", () => import("./commands.test.ts")],
  ["limits of commands", () => import("./command-limits.test.ts")],
  ["what is common", () => import("./common.test.ts")],
  ["files", () => import("./files.test.ts")],
  ["images", () => import("./images.test.ts")],
  ["what is inside", () => import("./inside.test.ts")],
  ["creation and life", () => import("./life.test.ts")],
  ["monitoring", () => import("./monitoring.test.ts")],
  ["ports", () => import("./ports.test.ts")],
  ["what opens and ends previews", () => import("./preview-ends.test.ts")],
  ["previews", () => import("./previews.test.ts")],
  ["registries", () => import("./registries.test.ts")],
  ["sandboxes", () => import("./sandboxes.test.ts")],
  ["stuck readers", () => import("./stuck-readers.test.ts")],
  ["terminals", () => import("./terminals.test.ts")],
  ["workspaces", () => import("./workspaces.test.ts")],
] as const;

/**
 * The suite's files within the file that calls this, so that they share its platform: its start takes longer than most
 * of them.
 */
export function describeSuite(): void {
  describeFiles(files);
}

/** Other test files within the file that calls this, each in a suite of this name. */
export function describeFiles(files: readonly (readonly [what: string, load: () => Promise<unknown>])[]): void {
  for (const [what, load] of files) {
    describe(what, async () => {
      await load();
    });
  }
}
