import { defineConfig } from "vitest/config";

/** What runs file by file. test/run.sh runs these one after the other, as their platforms set the same firewall, and the rest meanwhile. */
const projects = {
  /** Whole platforms of a dozen processes. */
  distributed: [
    "test/distributed/*.test.ts",
    "test/fault/{distributed,network}.test.ts",
    "test/deploy/compose.test.ts",
  ],
  /** These use the machine's container engine, and some change its firewall. */
  engine: [
    "services/telemetry/src/{service,replicas}.test.ts",
    "services/telemetry/src/docker/samplers.test.ts",
    "test/{conformance,e2e}/*.test.ts",
    "test/fault/{engine,internal-error,upstream-error}.test.ts",
    "test/contract/runtime.docker.test.ts",
  ],
};

const sequential = Object.entries(projects).map(([name, include]) => ({
  extends: true as const,
  test: { name, include, fileParallelism: false },
}));

export default defineConfig({
  test: {
    testTimeout: 60_000,
    // A hook may start every server of the distributed form.
    hookTimeout: 300_000,
    // The test's own limit ends it before, unless it names a longer one.
    expect: { poll: { timeout: 120_000 } },
    projects: [
      ...sequential,
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
          exclude: ["**/node_modules/**", ...Object.values(projects).flat()],
        },
      },
    ],
  },
});
