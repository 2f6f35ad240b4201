import { buildImage, openTestEngine, probeEngine } from "@sandgate/test-support/images";
import { probeRegistry, startRegistry, type TestRegistry } from "@sandgate/test-support/registry";
import { requireServer } from "@sandgate/test-support/require";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectStatus, uniqueName } from "../conformance/client.ts";
import { startPlatform, type TestPlatform } from "../platform/local.ts";
import { listContainers, type Operator, openOperator } from "../platform/operator.ts";

const isAvailable = await requireServer("docker", async () => {
  await probeEngine();
  await probeRegistry();
});

describe.runIf(isAvailable)("the disk", { timeout: 300_000 }, () => {
  const engine = openTestEngine();
  const team = uniqueName("team");
  let closing: AsyncDisposableStack;
  let registry: TestRegistry;
  let platform: TestPlatform;
  let operator: Operator;

  beforeAll(async () => {
    closing = new AsyncDisposableStack();
    registry = closing.adopt(await startRegistry(), (each) => each.stop());
    closing.defer(async () => {
      const images = await engine.listImages();
      const ours = images.filter(({ RepoDigests }) => RepoDigests?.some((name) => name.includes(`/${team}/`)));
      await Promise.all(ours.map(({ Id }) => engine.getImage(Id).remove({ force: true })));
    });
    const settings = { SANDGATE_REGISTRY_ALLOW: registry.host, SANDGATE_SANDBOX_DISK_MB: "16" };
    platform = closing.adopt(await startPlatform({ settings }), (each) => each.stop());
    operator = await openOperator(platform);
  });
  afterAll(() => closing?.disposeAsync());

  /** Provisions a sandbox of an image in the registry that runs this script and has a volume with a file of its own. */
  async function provision(script: string): Promise<string> {
    const image = await buildImage(engine, {
      command: ["sh", "-c", script],
      files: { "data/seed": "kept\n" },
      changes: ['VOLUME ["/data", "/var/in/no/layer"]'],
    });
    const repository = `${team}/${uniqueName("disk")}`;
    await registry.push(engine, image.id, repository, "1");
    await image.remove();
    const body = { name: "disk", image: `${registry.host}/${repository}:1`, memory_mb: 256 };
    const { id } = expectStatus(await operator.post("/sandbox-images", body, operator.as), 201);
    return operator.provision(id);
  }

  test.each(["/big", "/data/big", "/etc/hosts"])(
    "a sandbox that writes too much to %s fails with disk_full, and is removed",
    async (path) => {
      const id = await provision(`dd if=/dev/zero of=${path} bs=1M count=120; sleep 3600`);
      await expect
        .poll(() => operator.read(id))
        .toMatchObject({
          state: "failed",
          state_reason: "disk_full",
          message: expect.stringContaining("16 MB"),
        });
      expectError(await operator.wait(id), "provisioning_failed");
      await expect.poll(() => listContainers(platform, id)).toEqual([]);
    },
  );

  test("a sandbox that makes too many empty files fails with disk_full, and is removed", async () => {
    const id = await provision("mkdir /d; cd /d; i=0; while true; do i=$((i+1)); : >$i; done");
    await expect
      .poll(() => operator.read(id))
      .toMatchObject({
        state: "failed",
        state_reason: "disk_full",
        message: "The container made more files and folders than its limit of 1024.",
      });
    await expect.poll(() => listContainers(platform, id)).toEqual([]);
  });

  test("a volume has what the image has there, or a folder where it has none, and leaves none behind", async () => {
    const id = await provision(
      "cat /data/seed; echo more >/data/file; echo made >/var/in/no/layer/it && cat /var/in/no/layer/it; sleep 3600",
    );
    expectStatus(await operator.wait(id), 200);
    const container = engine.getContainer(`sandgate-${id}`);
    // The helper's alone, which can't be written to.
    const { Mounts: mounts } = await container.inspect();
    expect(mounts).toEqual([expect.objectContaining({ Destination: "/.sandgate", RW: false })]);
    await expect.poll(async () => (await operator.monitor(id)).logs).toMatchObject([{ log: "kept" }, { log: "made" }]);
    expectStatus(await operator.delete(`/sandboxes/${id}`, operator.as), 204);
  });
});
