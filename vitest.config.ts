import { defineConfig } from "vitest/config";

/** These share the machine's container engine and its firewall, so they run file by file. */
const engineSuites = [
  "services/telemetry/src/{service,replicas}.test.ts",
  "test/{conformance,distributed,e2e,fault}/*.test.ts",
  "test/contract/runtime.docker.test.ts",
  "test/deploy/compose.test.ts",
];

export default defineConfig({
  test: {
    testTimeout: 60_000,
    // A hook may start every server of the distributed form.
    hookTimeout: 300_000,
    // The test's own limit ends it before, unless it names a longer one.
    expect: { poll: { timeout: 120_000 } },
    projects: [
      { extends: true, test: { name: "engine", include: engineSuites, fileParallelism: false } },
      {
        extends: true,
        test: {
          name: "unit",
          include: [
            "services/*/src/**/*.test.ts",
            "facade/src/**/*.test.ts",
            "deploy/**/*.test.ts",
            "test/**/*.test.ts",
          ],
          exclude: ["**/node_modules/**", ...engineSuites],
        },
      },
    ],
  },
});
