import { buildImage, openTestEngine, probeEngine, type TestImage } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectError, expectStatus } from "../../conformance/client.ts";
import { createPreviewClient } from "../../conformance/preview-client.ts";
import { startPlatform, type TestPlatform } from "../../platform/local.ts";
import { type Operator, openOperator } from "../../platform/operator.ts";

const ends = Number(process.env.SANDGATE_FAULT_ENDS ?? 1_000);
const atOnce = 4;
const port = 8080;

describe.runIf(await requireServer("docker", probeEngine))("sandboxes end and start", () => {
  let platform: TestPlatform;
  let operator: Operator;
  let image: TestImage;
  let imageId: string;

  beforeAll(async () => {
    image = await buildImage(openTestEngine(), {
      command: ["httpd", "-f", "-p", String(port), "-h", "/www"],
      files: { "/www/a": "" },
    });
    platform = await startPlatform({ settings: { SANDGATE_LOG_LEVEL: "warn" } });
    operator = await openOperator(platform);
    imageId = await operator.registerImage(image.reference);
  });
  afterAll(async () => {
    await platform?.stop();
    await image?.remove();
  });

  /** A sandbox whose server says its id, at a port and at a preview. */
  async function open() {
    const id = await operator.provisionReady(imageId);
    const path = (rest: string) => `/sandboxes/${id}/${rest}`;
    const put = await operator.send("PUT", path("files?path=/www/index.html"), {
      ...operator.as,
      raw: id,
      headers: { "content-type": "application/octet-stream" },
    });
    expectStatus(put, 201);
    const { url } = expectStatus(await operator.post(path("ports"), { port, public: true }, operator.as), 201);
    const preview = createPreviewClient({ via: platform.url, url });
    return { id, preview, get: () => operator.get(path(`ports/${port}/http/`), operator.as) };
  }

  test(
    "none is reached by what led to another, however often",
    async () => {
      const ended: Awaited<ReturnType<typeof open>>[] = [];
      let left = ends;
      const go = async () => {
        while (left-- > 0) {
          const sandbox = await open();
          await until(async () => expect((await sandbox.get()).text).toBe(sandbox.id));
          expect(await sandbox.preview.get()).toMatchObject({ status: 200, text: sandbox.id });
          // While this one answers, what led to those before leads nowhere.
          for (const before of ended.slice(-3 * atOnce)) {
            expectError(await before.get(), "conflict");
            expect(await before.preview.get()).toMatchObject({ status: 404 });
          }
          expect((await sandbox.get()).text).toBe(sandbox.id);
          expectStatus(await operator.delete(`/sandboxes/${sandbox.id}`, operator.as), 204);
          ended.push(sandbox);
        }
      };
      await Promise.all(Array.from({ length: atOnce }, go));
      expect(ended).toHaveLength(ends);
    },
    ends * 30_000,
  );
});
