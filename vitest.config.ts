import { defineConfig } from "vitest/config";

/** Each starts a cluster, and mostly waits for it. */
const kubernetes = [
  "test/contract/runtime.kubernetes.test.ts",
  "test/e2e/{in-cluster,kubernetes,pod-isolation}.test.ts",
  "test/fault/kubernetes.test.ts",
  "test/support/cluster.test.ts",
  "test/deploy/{kubernetes,network-policies}.test.ts",
  "services/telemetry/src/kubernetes/*.kubernetes.test.ts",
];

/** What needs servers that take much of a machine. test/run.sh runs two projects at a time. */
const projects = {
  /** Whole platforms of a dozen processes, file by file. */
  distributed: {
    maxWorkers: 1,
    include: ["test/distributed/*.test.ts", "test/fault/{distributed,network}.test.ts", "test/deploy/compose.test.ts"],
  },
  /** Takes minutes: `npm run fault` alone has it. */
  fault: {
    maxWorkers: 1,
    include: ["test/fault/long/*.test.ts"],
  },
  /** The public API of one platform. */
  conformance: {
    maxWorkers: 2,
    globalSetup: "test/conformance/shared-platform.ts",
    include: ["test/conformance/*.test.ts"],
  },
  /** These use the machine's container engine, and mostly wait for it. */
  engine: {
    maxWorkers: 2,
    include: [
      "services/telemetry/src/{service,replicas}.test.ts",
      "services/telemetry/src/docker/samplers.test.ts",
      "test/e2e/*.test.ts",
      "test/fault/{engine,internal-error,upstream-error}.test.ts",
      "test/contract/{operations,runtime}.docker.test.ts",
    ],
    exclude: kubernetes,
  },
  /** What people and programs use the platform with, in front of that engine. */
  programs: {
    maxWorkers: 2,
    include: [
      "test/e2b/*.test.ts",
      "test/clients/{typescript,cli,mcp,faults,python,examples}*.test.ts",
      "test/browser/{dashboard,live-reload}*.test.ts",
    ],
  },
  kubernetes: {
    maxWorkers: 2,
    include: kubernetes,
  },
};

const limited = Object.entries(projects).map(([name, project]) => ({
  extends: true as const,
  test: { name, ...project },
}));

export default defineConfig({
  test: {
    // Longer than polls take to say what they miss.
    testTimeout: 180_000,
    // A hook may start every server of the distributed form.
    hookTimeout: 300_000,
    expect: { poll: { timeout: 120_000 } },
    projects: [
      ...limited,
      {
        extends: true,
        test: {
          name: "unit",
          // Its longest files wait for children, intervals and limits most of the time.
          maxWorkers: 3,
          execArgv: ["--import", new URL("test/plan-guard.ts", import.meta.url).href],
          include: [
            "services/*/src/**/*.test.ts",
            "facade/src/**/*.test.ts",
            "clients/*/src/**/*.test.ts",
            "deploy/**/*.test.ts",
            "test/**/*.test.ts",
          ],
          exclude: ["**/node_modules/**", ...Object.values(projects).flatMap(({ include }) => include)],
        },
      },
    ],
  },
});
