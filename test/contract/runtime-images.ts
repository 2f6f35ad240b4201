import { once } from "node:events";
import { type AddressInfo, createServer as createTcpServer, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { ImageAccess } from "@sandgate/sandbox/runtime-images";
import { type Observation, SandboxRefused } from "@sandgate/sandbox/runtime-lifecycle";
import { describe, expect } from "vitest";
import { idle, type RuntimeHarness, type RuntimeTest, type SpecOf } from "./runtime-harness.ts";

/** Runs an image of a registry as the service does. */
async function runFrom(
  { runtime, images, registry }: RuntimeHarness,
  specOf: SpecOf,
  reference: string,
  changes: Partial<ImageAccess> = {},
): Promise<Observation> {
  const access = { registryHost: registry.host, ...registry.credential, volumes: [], ...changes };
  const { signal } = new AbortController();
  await images?.pull({ pinnedReference: reference, ...access, signal });
  const spec = specOf(reference, { findAccess: async () => access });
  for (;;) {
    const seen = await runtime.ensure(spec);
    // At first the scheduler has said nothing of it.
    if (seen.phase !== "created" || (seen.problem && seen.problem.reason !== "unschedulable")) return seen;
    await delay(50);
  }
}

/** Why that fails, as the sandbox's record has it. */
async function refusalOf(...args: Parameters<typeof runFrom>): Promise<string | undefined> {
  try {
    return (await runFrom(...args)).problem?.reason;
  } catch (error) {
    if (error instanceof SandboxRefused) return error.failure.reason;
    if (error instanceof DomainError) return error.reason.toLowerCase();
    throw error;
  }
}

/** How images get to a sandbox: an engine pulls them by the images port, a cluster's node by itself. */
export function describePulls(test: RuntimeTest): void {
  describe("images of registries", () => {
    const noPull = "nodes of another machine pull from no registry of this one";

    test("are pulled by digest with a credential, again and again", async ({ harness, specOf, skip }) => {
      skip(!harness.pullsFromLoopback, noPull);
      const reference = await harness.registry.publish();
      expect(await runFrom(harness, specOf, reference)).toMatchObject({ phase: "running" });
      expect(await runFrom(harness, specOf, reference)).toMatchObject({ phase: "running" });
    });

    test("are refused with a wrong credential, also where they are already, and told from missing ones", async ({
      harness,
      specOf,
      skip,
    }) => {
      skip(!harness.pullsFromLoopback, noPull);
      const reference = await harness.registry.publish();
      expect(await refusalOf(harness, specOf, reference, { password: "wrong" })).toBe("image_pull_unauthorized");
      expect(await refusalOf(harness, specOf, reference, { username: "", password: "" })).toBe(
        "image_pull_unauthorized",
      );
      const missing = "image_not_found_in_registry";
      expect(await refusalOf(harness, specOf, reference.replace(/[0-9a-f]{64}$/, "0".repeat(64)))).toBe(missing);
      expect(await refusalOf(harness, specOf, reference.replace(/\/[^@]+@/, "/no/such@"))).toBe(missing);
    });

    test("of a registry that can't be reached are told as such", async ({ harness, specOf }) => {
      const registryHost = "127.0.0.1:1";
      const reference = `${registryHost}/team/app@sha256:${"0".repeat(64)}`;
      expect(await refusalOf(harness, specOf, reference, { registryHost })).toBe("registry_unreachable");
    });

    test("are no longer waited for once their pull is given up", async ({ harness, runtime, specOf, skip }) => {
      skip(!harness.pullsFromLoopback, noPull);
      const sockets = new Set<Socket>();
      const silent = createTcpServer((socket) => sockets.add(socket)).listen(0, "127.0.0.1");
      await once(silent, "listening");
      const registryHost = `127.0.0.1:${(silent.address() as AddressInfo).port}`;
      const access = { registryHost, ...harness.registry.credential };
      const reference = `${registryHost}/team/app@sha256:${"0".repeat(64)}`;
      const connected = once(silent, "connection");
      if (harness.images) {
        const controller = new AbortController();
        const reason = new Error("enough");
        const request = { pinnedReference: reference, ...access, signal: controller.signal };
        const pulling = harness.images.pull(request);
        connected.then(() => controller.abort(reason));
        await expect(pulling).rejects.toBe(reason);
        await expect(harness.images.pull(request)).rejects.toBe(reason);
      } else {
        const spec = specOf(reference, { findAccess: async () => ({ ...access, volumes: [] }) });
        expect(await runtime.ensure(spec)).toMatchObject({ phase: "created" });
        await connected;
        await runtime.stop(spec.sandboxId, 0);
        await runtime.remove(spec.sandboxId);
        expect(await runtime.inspect(spec.sandboxId)).toBeUndefined();
      }
      for (const socket of sockets) socket.destroy();
      silent.close();
    });
  });
}

/** The contract of the images port, where an engine has one. */
export function describeImageStore(test: RuntimeTest): void {
  describe("images of an engine", () => {
    /** Nodes keep the images of their pods by themselves. */
    const noStore =
      "nodes fetch, keep and delete images themselves: the platform neither finds, lists nor removes any there";
    test("are found that the engine has, and no others", async ({ harness, skip }) => {
      const { images } = harness;
      if (!images) return skip(noStore);
      const id = await harness.makeImage(idle);
      expect(await images.find(id)).toEqual({ pinnedReference: id, digest: expect.stringMatching(/^sha256:/) });
      expect(await images.find("sandgate-test/none:1")).toBeUndefined();
    });

    test("are listed with their names, and removed where no container uses them", async ({
      harness,
      runtime,
      specOf,
      ensure,
      skip,
    }) => {
      const { images } = harness;
      if (!images) return skip(noStore);
      const name = await harness.registry.publish();
      await images.pull({
        pinnedReference: name,
        registryHost: harness.registry.host,
        ...harness.registry.credential,
        signal: new AbortController().signal,
      });
      const find = async () => (await images.list()).find(({ names }) => names.includes(name));
      const { pinnedReference: id } = (await images.find(name)) ?? {};
      expect(await find()).toMatchObject({ id, names: [name], isUsed: false });
      expect((await find())?.sizeBytes).toBeGreaterThan(100_000);
      const spec = specOf(id ?? "");
      await ensure(spec);
      expect(await find()).toMatchObject({ isUsed: true });
      expect(await images.remove(name)).toBe(false);
      await runtime.remove(spec.sandboxId);
      expect(await images.remove(name)).toBe(true);
      expect(await find()).toBeUndefined();
      expect(await images.remove(name)).toBe(false);
    });
  });
}
