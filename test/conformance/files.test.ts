import { randomBytes } from "node:crypto";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectStatus } from "./client.ts";
import { type HostImage, openSandboxHost, requireSandboxHost } from "./sandbox-host.ts";
import { openTarget, type Target, type Tenant } from "./target.ts";

/** What is in the sandbox before the tests, beside what they make. */
const script = `
mkdir -p /site/full /site/closed /data
cd /site
mkfifo fifo
echo inside > full/inner
echo target > data.txt
ln -s data.txt link
ln -s /nowhere dangling
touch ready
exec sleep 86400
`;

describe.runIf(await requireSandboxHost())(
  "files",
  () => {
    let target: Target;
    let owner: Tenant;
    let image: HostImage;
    let id: string;

    const as = (tenant: Tenant) => ({ token: tenant.token, workspace: tenant.workspace });
    const at = (path: string, more = "") => `/sandboxes/${id}/files?path=${encodeURIComponent(path)}${more}`;
    const headersOf = (tenant = owner) => ({
      authorization: `Bearer ${tenant.token}`,
      "x-workspace-id": tenant.workspace,
    });
    const read = (path: string, headers: Record<string, string> = {}) =>
      fetch(target.url + at(path), { headers: { ...headersOf(), ...headers } });
    const write = (path: string, content: string | Buffer, more = "", headers: Record<string, string> = {}) =>
      target.send("PUT", at(path, more), {
        ...as(owner),
        raw: content as string,
        headers: { "content-type": "application/octet-stream", ...headers },
      });

    beforeAll(async () => {
      image = await openSandboxHost().makeImage({ command: ["/bin/sh", "/run"], files: { "/run": script } });
      target = await openTarget();
      owner = await target.newTenant();
      const body = { name: "files", image: image.reference, is_default: true, memory_mb: 256 };
      const image_id = expectStatus(await target.post("/sandbox-images", body, as(target.operator)), 201).id;
      id = expectStatus(await target.post("/sandboxes/provision", { image_id }, as(owner)), 201).id;
      expectStatus(await target.post("/sandboxes/wait", { sandbox_id: id, timeout_seconds: 240 }, as(owner)), 200);
      await until(async () => expect((await read("/site/ready")).status).toBe(200), { intervalMs: 100 });
    });
    afterAll(async () => {
      if (id) await target.delete(`/sandboxes/${id}`, as(owner));
      await target?.close();
      await image?.remove();
    });

    test("a file comes back as it was written", async () => {
      for (const length of [0, 1, 18 * 1024 + 1, 120 * 1024, 10 * 1024 * 1024 + 1]) {
        const content = randomBytes(length);
        const path = `/data/of ${length}`;
        const entry = expectStatus(await write(path, content), 201);
        expect(entry).toMatchObject({ path, name: `of ${length}`, type: "file", size: length, mode: "0644", uid: 0 });
        const answer = await read(path);
        expect(answer.status).toBe(200);
        if (length > 0) expect(answer.headers.get("content-length")).toBe(String(length));
        expect(Buffer.from(await answer.arrayBuffer()).equals(content)).toBe(true);
        expectStatus(await write(path, content), 200);
      }
    });
  },
  300_000,
);
