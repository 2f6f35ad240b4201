import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { hostNamesOf } from "@sandgate/sandbox/docker-names";
import { openTestEngine, probeEngine } from "@sandgate/test-support/images";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { startProcess } from "@sandgate/test-support/process";
import { probeRegistry, startRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { expect, test } from "vitest";
import { expectStatus, uniqueName } from "../conformance/client.ts";
import { installationOf, startPlatform } from "../platform/local.ts";
import { openOperator } from "../platform/operator.ts";

const execute = promisify(execFile);
const engine = openTestEngine();
const isAvailable = await requireServer("docker", async () => {
  await probeEngine();
  await probeRegistry();
});

/** Everything on the engine and the host that has the installation's label or names, or is of the repository. */
async function findLeft(installationId: string, repository: string): Promise<string[]> {
  const filters = { label: [`sandgate.io/installation=${installationId}`] };
  const { chainPrefix, bridgePrefix } = hostNamesOf(installationId);
  const [containers, networks, images, ...rules] = await Promise.all([
    engine.listContainers({ all: true, filters }),
    engine.listNetworks({ filters }),
    engine.listImages(),
    ...["iptables", "ip6tables"].flatMap((command) =>
      ["mangle", "filter"].map((table) => execute(command, ["-w", "10", "-t", table, "-S"])),
    ),
  ]);
  return [
    ...containers.map(({ Id }) => `container ${Id}`),
    ...networks.map(({ Name }) => `network ${Name}`),
    ...images.flatMap(({ RepoDigests }) => RepoDigests ?? []).filter((name) => name.includes(repository)),
    ...rules
      .flatMap(({ stdout }) => stdout.split("\n"))
      .filter((line) => line.includes(chainPrefix) || line.includes(bridgePrefix)),
  ];
}

test.runIf(isAvailable)("npm run clean takes away what an installation made, once it has ended", async () => {
  await using closing = new AsyncDisposableStack();
  const registry = closing.adopt(await startRegistry(), (each) => each.stop());
  const settings = { SANDGATE_REGISTRY_ALLOW: registry.host };
  const platform = closing.adopt(await startPlatform({ settings }), (each) => each.stop());
  const installationId = installationOf(platform.dataFolder);
  const clean = async (...args: string[]) => {
    const { PATH, HOME, DOCKER_HOST } = process.env;
    const env = { PATH, HOME, ...(DOCKER_HOST && { DOCKER_HOST }), SANDGATE_DATA: platform.dataFolder };
    const run = startProcess("npm", ["run", "clean", "--", ...args], { cwd: join(import.meta.dirname, "../.."), env });
    return { code: await run.exited, output: run.output() };
  };

  const repository = `${uniqueName("team")}/app`;
  const reference = await pushImage(await makeImage({ command: ["sleep", "3600"] }), {
    host: registry.host,
    repository,
  });
  const operator = await openOperator(platform);
  const body = { name: "app", image: reference, memory_mb: 256 };
  const { id: imageId } = expectStatus(await operator.post("/sandbox-images", body, operator.as), 201);
  const sandboxId = await operator.provision(imageId);
  await expect.poll(() => operator.read(sandboxId)).toMatchObject({ state: "ready" });

  const before = await findLeft(installationId, repository);
  for (const what of ["container ", "network ", repository, "-N SANDGATE-"]) {
    expect(before).toContainEqual(expect.stringContaining(what));
  }
  expect(await clean()).toMatchObject({ code: 1, output: expect.stringContaining("is in use by another Sandgate") });
  expect(await findLeft(installationId, repository)).toEqual(before);

  await platform.terminate();
  const cleaned = await clean();
  expect(cleaned).toMatchObject({
    code: 0,
    output: expect.stringContaining(`removed container sandgate-${sandboxId}`),
  });
  expect(await findLeft(installationId, repository)).toEqual([]);

  // The data goes only where that is said, and what is there runs on with it.
  await platform.start();
  await expect.poll(() => operator.read(sandboxId)).toMatchObject({ state: "failed" });
  await platform.terminate();
  expect(await clean("--data")).toMatchObject({ code: 0 });
  expect(existsSync(platform.dataFolder)).toBe(false);
  expect(await findLeft(installationId, repository)).toEqual([]);
});
