import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { createInMemoryNetwork } from "@sandgate/kit/rpc/clients";
import { asFacade } from "@sandgate/kit/rpc/context";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import { test } from "@sandgate/test-support/test";
import { expect } from "vitest";
import { sandboxService } from "./service.ts";

const logger = createLogger({ service: "sandbox", level: "silent" });

const asMember = asFacade({
  requestId: newId(),
  user: { id: "ann", credential: "session", credentialId: "s1", operator: false, workspaceId: newId(), role: "member" },
});

/** The service without an engine; it isn't started, so sandboxes stay as they were accepted. */
async function open(folder: string, settings: Record<string, string>) {
  const metrics = createMetrics();
  const network = await createInMemoryNetwork();
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics });
  network.serve("image-registry", {
    logger,
    metrics: createMetrics(),
    routes: (router) =>
      router.service(ImageRegistryService, {
        resolveImage: ({ imageId }) => ({ image: { id: imageId, reference: "alpine:3", memoryMb: 256 } }),
      }),
  });
  const service = await sandboxService.open(
    {
      database: { kind: "sqlite", file: join(folder, "sandbox.sqlite") },
      bus,
      transport: (callee) => network.transport("sandbox", callee),
      keyring: await openKeyring({ file: join(folder, "keys.json"), create: true }),
      logger,
      metrics,
    },
    sandboxService.readSettings({ SANDGATE_DATA: folder, SANDGATE_PULL_PORT: "0", ...settings }),
  );
  network.serve("sandbox", { routes: service.routes, logger, metrics });
  return {
    client: createClient(SandboxService, network.transport("facade", "sandbox")),
    service,
    async close() {
      await service.drain();
      await service.close();
      await bus.close();
    },
  };
}

test("below the reserve of free disk nothing is provisioned, and the rest goes on", async ({ folder }) => {
  const before = await open(folder, { SANDGATE_DISK_RESERVE_MB: "0" });
  const { sandbox } = await before.client.provisionSandbox({ imageId: newId() }, asMember);
  expect((await before.service.dependencies()).disk).toBe("ok");
  await before.close();

  const { client, service, close } = await open(folder, { SANDGATE_DISK_RESERVE_MB: "1000000000" });
  await expect(client.provisionSandbox({ imageId: newId() }, asMember)).rejects.toMatchObject({
    reason: "PROVISIONING_FAILED",
    hint: expect.stringContaining("less than the reserve of 1000000000 MB (SANDGATE_DISK_RESERVE_MB)"),
  });
  expect((await service.dependencies()).disk).toContain(`on the disk of ${folder}`);
  const { sandboxes } = await client.listSandboxes({}, asMember);
  expect(sandboxes.map(({ id }) => id)).toEqual([sandbox?.id]);
  await client.stopSandbox({ idOrName: sandbox?.id ?? "" }, asMember);
  await close();
});
