import { addMs, minuteMs } from "@sandgate/kit/base/time";
import { beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { makeLink, makePreview, maxLinks, maxPreviews, type Preview } from "../domain/previews.ts";
import { becomeReady, type Sandbox } from "../domain/sandbox.ts";
import { createSandbox, endSandbox, now, reasonOf, sandboxOf } from "./store.fixture.ts";
import type { SandboxStore } from "./store.ts";

/** What every adapter of `Previews` must do. `open` gives an empty store. */
export function describePreviews(name: string, open: () => Promise<SandboxStore>): void {
  describe(`previews on ${name}`, () => {
    let store: SandboxStore;
    let sandbox: Sandbox;

    beforeEach(async () => {
      store = await open();
      onTestFinished(() => store.close());
      sandbox = await createReady();
    });

    async function createReady(): Promise<Sandbox> {
      const ready = becomeReady(await createSandbox(store, sandboxOf({ workspaceId: "w1" })), now());
      expect(await store.sandboxes.update(ready, [])).toBe(true);
      return ready;
    }

    function previewOf(o: { sandbox?: Sandbox; createdBy?: string; at?: Date; ttlSeconds?: number } = {}): Preview {
      const asked = { port: 3000, public: false, hostHeader: "preview", createdBy: o.createdBy ?? "u1" } as const;
      return makePreview(o.sandbox ?? sandbox, { ...asked, ttlSeconds: o.ttlSeconds ?? 3600 }, o.at ?? now()).preview;
    }

    async function create(o?: Parameters<typeof previewOf>[0]): Promise<Preview> {
      const preview = previewOf(o);
      expect(await store.previews.create(preview, { events: [] })).toBe(true);
      return preview;
    }

    const linkOf = (preview: Preview, at = now()) =>
      makeLink(preview, { ttlSeconds: 60, previewEnd: preview.expiresAt }, at).link;
    const createLink = (preview: Preview, at = now()) =>
      store.previews.createLink(linkOf(preview, at), { now: at, events: [] });

    test("are found by id, label and sandbox, until they are deleted", async () => {
      const [first, second] = [await create(), await create({ at: addMs(now(), 1) })];
      const other = await create({ sandbox: await createReady() });
      expect(await store.previews.get(first.id)).toEqual(first);
      expect(await store.previews.findByLabel(second.label)).toEqual(second);
      expect(await store.previews.list(sandbox.id)).toEqual([first, second]);

      expect(await store.previews.delete(first.id, [])).toBe(true);
      expect(await store.previews.delete(first.id, [])).toBe(false);
      expect(await store.previews.get(first.id)).toBeUndefined();
      expect(await store.previews.findByLabel(first.label)).toBeUndefined();
      expect(await store.previews.list(sandbox.id)).toEqual([second]);
      expect(await store.previews.get(other.id)).toEqual(other);
    });

    test("are made for a sandbox that is ready, and go with it", async () => {
      const preview = await create();
      const link = linkOf(preview);
      await store.previews.createLink(link, { now: now(), events: [] });
      await endSandbox(store, sandbox);
      expect(await store.previews.get(preview.id)).toBeUndefined();
      expect(await store.previews.takeLink(link.hash)).toBeUndefined();
      expect(await store.previews.create(previewOf(), { events: [] })).toBe(false);
      const accepted = await createSandbox(store, sandboxOf({ workspaceId: "w1" }));
      expect(await store.previews.create(previewOf({ sandbox: accepted }), { events: [] })).toBe(false);
    });

    test("a sandbox has so many that have not expired, however many are made at once", async () => {
      await create({ ttlSeconds: 60 });
      const later = addMs(now(), 2 * minuteMs);
      const all = Array.from({ length: maxPreviews + 4 }, () =>
        reasonOf(store.previews.create(previewOf({ at: later }), { events: [] })),
      );
      const reasons = await Promise.all(all);
      expect(reasons.filter((reason) => reason === "CONFLICT")).toHaveLength(4);
      expect(await store.previews.list(sandbox.id)).toHaveLength(maxPreviews);
      await create({ sandbox: await createReady() });
    });

    test("those of a user in a workspace go together, but for later ones", async () => {
      const mine = await create({ createdBy: "u2" });
      const later = await create({ createdBy: "u2", at: addMs(now(), minuteMs) });
      const others = await create({ createdBy: "u3" });
      expect(await store.previews.deleteOfUser("w2", "u2", now())).toBe(0);
      expect(await store.previews.deleteOfUser("w1", "u2", now())).toBe(1);
      expect(await store.previews.get(mine.id)).toBeUndefined();
      expect((await store.previews.list(sandbox.id)).map(({ id }) => id).sort()).toEqual([later.id, others.id].sort());
    });

    test("those of a user in all workspaces go together, but for later ones", async () => {
      const elsewhere = becomeReady(await createSandbox(store, sandboxOf({ workspaceId: "w2" })), now());
      expect(await store.sandboxes.update(elsewhere, [])).toBe(true);
      const mine = [await create({ createdBy: "u2" }), await create({ createdBy: "u2", sandbox: elsewhere })];
      const later = await create({ createdBy: "u2", at: addMs(now(), minuteMs) });
      const others = await create({ createdBy: "u3" });
      expect(await store.previews.deleteOfUser(undefined, "u2", now())).toBe(2);
      for (const { id } of mine) expect(await store.previews.get(id)).toBeUndefined();
      expect((await store.previews.list(sandbox.id)).map(({ id }) => id).sort()).toEqual([later.id, others.id].sort());
    });

    test("a link is taken by one of those who try at once", async () => {
      const preview = await create();
      const link = linkOf(preview);
      expect(await store.previews.createLink(link, { now: now(), events: [] })).toBe(true);
      const taken = await Promise.all(Array.from({ length: 8 }, () => store.previews.takeLink(link.hash)));
      expect(taken.filter((each) => each !== undefined)).toEqual([link]);
    });

    test("a preview has so many links that can still be opened, and none once it is gone", async () => {
      const preview = await create();
      const attempts = Array.from({ length: maxLinks + 1 }, () => reasonOf(createLink(preview)));
      expect((await Promise.all(attempts)).filter((reason) => reason === "CONFLICT")).toHaveLength(1);
      expect(await createLink(preview, addMs(now(), minuteMs))).toBe(true);
      await store.previews.delete(preview.id, []);
      expect(await createLink(preview)).toBe(false);
    });
  });
}
