import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["services/*/src/**/*.test.ts", "facade/src/**/*.test.ts", "deploy/**/*.test.ts", "test/**/*.test.ts"],
    // Long, since a machine that stands still for a while proves nothing: these only end what would go on for ever.
    testTimeout: 600_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 120_000 } },
  },
});
