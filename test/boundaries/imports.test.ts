import { execFile } from "node:child_process";
import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { test } from "@sandgate/test-support/test";
import { describe, expect } from "vitest";

const root = join(import.meta.dirname, "../..");

/** What Biome says of one file with these imports, under this repository's rules. */
async function lint(folder: string, file: string, imports: readonly string[]): Promise<string> {
  await copyFile(join(root, "biome.json"), join(folder, "biome.json"));
  await mkdir(dirname(join(folder, file)), { recursive: true });
  await writeFile(join(folder, file), imports.map((name) => `export * from "${name}";\n`).join(""));
  const biome = join(root, "node_modules/.bin/biome");
  return new Promise((resolve) => {
    const args = ["lint", "--only=style/noRestrictedImports", "--vcs-enabled=false", "."];
    execFile(biome, args, { cwd: folder }, (_error, stdout, stderr) => resolve(stdout + stderr));
  });
}

describe("the import rules of biome.json refuse", () => {
  test.for<[what: string, file: string, name: string]>([
    ["a service that imports another", "services/sandbox/src/a.ts", "@sandgate/workspace"],
    ["a service that imports another's file", "services/sandbox/src/a.ts", "../../workspace/src/service.ts"],
    ["a service that imports a helper of tests", "services/sandbox/src/a.ts", "@sandgate/test-support/process"],
    ["a service that imports a tool of tests", "services/sandbox/src/a.ts", "vitest"],
    ["a service's domain that imports its handlers", "services/identity/src/domain/a.ts", "../handlers.ts"],
    [
      "a use case that imports transactions",
      "services/workspace/src/usecases/a.ts",
      "../store/a.sqlite.transactions.ts",
    ],
    ["an upstream that imports the store", "services/image-registry/src/upstream/a.ts", "../store/store.ts"],
    ["a service's store that imports its events", "services/identity/src/store/a.ts", "../events.ts"],
    ["a use case that imports a reconciler", "services/sandbox/src/usecases/a.ts", "../reconcile/records.ts"],
    [
      "a handler that imports a transaction",
      "services/sandbox/src/handlers/a.ts",
      "../store/store.sqlite.transactions.ts",
    ],
    ["consumers that import an adapter", "services/workspace/src/consumers.ts", "./store/store.sqlite.ts"],
    ["a reconciler that imports Docker", "services/sandbox/src/reconcile/a.ts", "../runtime/docker/runtime.docker.ts"],
    ["a runtime's port that imports an adapter", "services/sandbox/src/runtime/a.ts", "./docker/runtime.docker.ts"],
    ["a pull that imports Docker", "services/sandbox/src/pulls/a.ts", "../runtime/docker/runtime.docker.ts"],
    [
      "Kubernetes' adapter that imports Docker's",
      "services/sandbox/src/runtime/kubernetes/a.ts",
      "../docker/subnets.ts",
    ],
    [
      "Kubernetes' adapter that imports an engine",
      "services/sandbox/src/runtime/kubernetes/a.ts",
      "@sandgate/docker-engine/client",
    ],
    ["what both runtimes share that imports a port", "services/sandbox/src/runtime/isolation/a.ts", "../lifecycle.ts"],
    ["a query that imports the collector", "services/telemetry/src/query/a.ts", "../collect/collector.ts"],
    ["a use case that imports a store's adapter", "services/telemetry/src/usecases/a.ts", "../store/store.sqlite.ts"],
    ["a runtime's adapter that imports the collector", "services/telemetry/src/docker/a.ts", "../collect/collector.ts"],
    ["a handler that imports the service", "services/telemetry/src/handlers/a.ts", "../service.ts"],
    ["events that import a use case", "services/telemetry/src/events.ts", "./usecases/ingest.ts"],
    ["the kit's base that imports storage", "services/kit/src/base/a.ts", "../storage/leases.ts"],
    ["the kit's storage that imports rpc", "services/kit/src/storage/a.ts", "../rpc/context.ts"],
    ["the kit's rpc that imports events", "services/kit/src/rpc/a.ts", "../events/bus.ts"],
    ["the kit's events that import workspaces", "services/kit/src/events/a.ts", "../workspaces/workspace-purges.ts"],
    ["the kit's workspaces that import process", "services/kit/src/workspaces/a.ts", "../process/service.ts"],
    ["the kit that imports itself by name", "services/kit/src/base/a.ts", "@sandgate/kit/storage/leases"],
    ["the kit that imports a service", "services/kit/src/process/a.ts", "@sandgate/sandbox"],
    ["the kit's test that imports test/", "services/kit/src/base/a.test.ts", "@sandgate/test/platform/local"],
    ["a service's test that imports another service", "services/sandbox/src/a.test.ts", "@sandgate/workspace"],
    ["the facade that imports a service", "facade/src/a.ts", "@sandgate/workspace"],
    ["the facade's pipeline that imports a resource", "facade/src/pipeline/a.ts", "../resources/auth/routes.ts"],
    ["the pipeline's limits that import admission", "facade/src/pipeline/limits/a.ts", "../admission/cors.ts"],
    ["the pipeline's base that imports limits", "facade/src/pipeline/base/a.ts", "../limits/slots.ts"],
    ["a resource that imports another's routes", "facade/src/resources/auth/a.ts", "../members/routes.ts"],
    ["the client that imports the kit", "clients/typescript/src/a.ts", "@sandgate/kit/base/ids"],
    ["the client that imports Node.js", "clients/typescript/src/a.ts", "node:fs"],
    ["the command line that imports a service", "clients/cli/src/a.ts", "@sandgate/sandbox"],
    ["the dashboard that imports the facade", "dashboard/src/a.ts", "@sandgate/facade"],
    ["an example that imports the kit", "examples/a.ts", "@sandgate/kit/base/ids"],
    ["the launcher that imports a service's file", "deploy/local/src/a.ts", "../../../services/sandbox/src/service.ts"],
    ["test/ that imports a package's file", "test/e2e/a.test.ts", "../../services/sandbox/src/service.ts"],
    ["test-support that imports the kit", "test/support/a.ts", "@sandgate/kit/base/ids"],
  ])("%s", async ([, file, name], { folder }) => {
    expect(await lint(folder, file, [name])).toContain("lint/style/noRestrictedImports");
  });
});

test.for<[file: string, ...names: string[]]>([
  [
    "services/sandbox/src/service.ts",
    "@sandgate/kit/rpc/context",
    "./store/store.mongo.ts",
    "./runtime/docker/runtime.docker.ts",
  ],
  [
    "services/sandbox/src/reconcile/a.ts",
    "../store/store.ts",
    "../domain/sandbox.ts",
    "../runtime/lifecycle.ts",
    "fastify",
  ],
  ["services/sandbox/src/a.test.ts", "@sandgate/test-support/process", "@sandgate/test/stores", "./service.ts"],
  [
    "services/kit/src/process/a.ts",
    "../base/ids.ts",
    "../workspaces/workspace-purges.ts",
    "@sandgate/proto/common/v1/event",
  ],
  ["services/kit/src/base/a.test.ts", "../process/host.ts", "@sandgate/test-support/process"],
  ["facade/src/resources/members/a.ts", "../workspaces/schemas.ts", "../../pipeline/route.ts"],
  ["facade/src/pipeline/live/a.ts", "../admission/admission.ts", "../base/app.ts"],
  ["clients/typescript/src/machine.ts", "node:fs", "./errors.ts"],
  ["clients/cli/src/a.ts", "@sandgate/client", "node:fs"],
  ["dashboard/src/a.ts", "@sandgate/client", "react"],
  ["examples/a.ts", "@sandgate/client", "node:fs"],
  ["deploy/local/src/a.ts", "@sandgate/sandbox", "@sandgate/facade"],
  ["test/e2e/a.test.ts", "@sandgate/sandbox", "../platform/local.ts", "@sandgate/test-support/process"],
])("they let %s import what is below it", async ([file, ...names], { folder }) => {
  expect(await lint(folder, file, names)).toMatch(/^Checked [12] files? in .*\. No fixes applied\.\s*$/);
});
