import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectStatus } from "../conformance/client.ts";
import { createPreviewClient } from "../conformance/preview-client.ts";
import { type ClusterPlatform, requireInCluster, startInCluster } from "../platform/in-cluster/platform.ts";
import { type PodsPlatform, podsPlatformOf, registerImage, testPods } from "./pods.ts";

describe.runIf(await requireInCluster())("the platform as pods of a cluster", () => {
  const closing = new AsyncDisposableStack();
  let started: ClusterPlatform;
  let platform: PodsPlatform;

  beforeAll(async () => {
    const settings = { SANDGATE_RATE_LIMIT: "0", SANDGATE_CHANGE_RATE_LIMIT: "0" };
    started = closing.adopt(await startInCluster({ settings, replicas: 1, gateway: true }), (each) => each.stop());
    platform = await podsPlatformOf(started);
  });
  afterAll(() => closing.disposeAsync());

  testPods(() => platform);

  test("a gateway of its own serves previews, and nothing of the API", async () => {
    const { operator } = platform;
    const { gatewayUrl = "" } = started;
    const serve = ["sh", "-c", "httpd -p 8000 -h /www; sleep 3600"];
    const id = await operator.provisionReady(await registerImage(platform, serve, { readiness_port: 8000 }));
    const made = await operator.post(`/sandboxes/${id}/ports`, { port: 8000, public: true }, operator.as);
    const { url } = expectStatus(made, 201);
    expect(url).toMatch(/^https:\/\/[a-z2-7]{26}\.previews\.test\/$/);
    const preview = createPreviewClient({ via: gatewayUrl, url });
    await until(async () => expect(await preview.get()).toMatchObject({ status: 200, text: "hello\n" }));
    expect((await fetch(`${gatewayUrl}/readyz`)).status).toBe(404);
    expectStatus(await operator.delete(`/sandboxes/${id}`, operator.as), 204);
    await until(async () => expect((await preview.get()).status).toBe(404));
  });
});
