import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["services/*/src/**/*.test.ts", "facade/src/**/*.test.ts", "deploy/**/*.test.ts", "test/**/*.test.ts"],
    // The long ones wait for servers more than they compute, so two share even a small machine well.
    maxWorkers: Math.max(2, availableParallelism() - 1),
    testTimeout: 60_000,
    hookTimeout: 120_000,
  },
});
