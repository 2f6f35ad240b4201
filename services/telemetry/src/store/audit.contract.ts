import { newId } from "@sandgate/kit/base/ids";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { AuditEntry } from "../domain/audit.ts";
import type { AuditLog, AuditQuery } from "./audit.ts";

const startMs = Date.UTC(2026, 0, 1);
const at = (ms: number) => new Date(startMs + ms);

function entryOf(ms: number, o: Partial<AuditEntry> = {}): AuditEntry {
  return {
    id: newId(),
    at: at(ms),
    workspaceId: "w1",
    actorId: "ann",
    credential: { kind: "session", id: "s1" },
    address: "192.0.2.1",
    action: "sandbox.provision",
    target: { type: "sandbox", id: "b1" },
    outcome: "success",
    requestId: "r1",
    count: 1,
    ...o,
  };
}

const everything: AuditQuery = {
  workspaceId: undefined,
  action: undefined,
  actorId: undefined,
  since: undefined,
  until: undefined,
  after: undefined,
  limit: 100,
};

/** What every store of the audit log must do. `open` opens an empty one. */
export function describeAuditLog(name: string, open: () => Promise<{ audit: AuditLog; close(): Promise<void> }>): void {
  describe(`audit log on ${name}`, () => {
    let store: Awaited<ReturnType<typeof open>>;
    beforeEach(async () => {
      store = await open();
    });
    afterEach(() => store.close());

    const idsOf = async (query: Partial<AuditQuery> = {}) =>
      (await store.audit.list({ ...everything, ...query })).map(({ id }) => id);

    test("an entry is given back as it was", async () => {
      const full = entryOf(2, { outcome: "forbidden", count: 7 });
      const bare = entryOf(1, {
        workspaceId: undefined,
        actorId: undefined,
        credential: undefined,
        address: undefined,
        target: undefined,
        requestId: undefined,
      });
      const details = { program: "sh", path: "/ä" };
      const detailed = entryOf(0, { target: { type: "sandbox", id: "b1", details } });
      await store.audit.append([full, bare, detailed]);
      expect(await store.audit.list(everything)).toEqual([full, bare, detailed]);
    });

    test("an entry that is added again is left as it was, also in one call and at once", async () => {
      const first = entryOf(1);
      const again = { ...first, action: "sandbox.stop" };
      const other = entryOf(2);
      await store.audit.append([first, again]);
      await Promise.all([store.audit.append([again, other]), store.audit.append([other]), store.audit.append([again])]);
      expect(await store.audit.list(everything)).toEqual([other, first]);
      expect((await store.audit.listAfter(0, 10)).map(({ sequence }) => sequence)).toEqual([1, 2]);
    });

    test("entries that come at once have numbers without a gap, in whatever order", async () => {
      const entries = Array.from({ length: 300 }, (_, i) => entryOf(i));
      await Promise.all(entries.map((entry) => store.audit.append([entry])));
      const numbered = await store.audit.listAfter(0, 400);
      expect(numbered.map(({ sequence }) => sequence)).toEqual(entries.map((_, i) => i + 1));
      expect(new Set(numbered.map(({ entry }) => entry.id))).toEqual(new Set(entries.map(({ id }) => id)));
    });

    test("pages follow one another by time and id, whatever is added between them", async () => {
      const entries = [5, 5, 5, 3, 2, 1].map((ms) => entryOf(ms));
      await store.audit.append(entries.toReversed());
      const sorted = entries.toSorted((a, b) => b.at.getTime() - a.at.getTime() || (a.id < b.id ? 1 : -1));
      const pages: string[] = [];
      for (let after: AuditQuery["after"]; ; ) {
        const page = await store.audit.list({ ...everything, limit: 2, after });
        pages.push(...page.map(({ id }) => id));
        after = page.at(-1);
        if (page.length < 2) break;
        await store.audit.append([entryOf(10)]);
      }
      expect(pages).toEqual(sorted.map(({ id }) => id));
    });

    test("a list has those of the workspace, actor, action and time that it asks for", async () => {
      const [a, b, c, d] = [
        entryOf(1),
        entryOf(2, { workspaceId: "w2" }),
        entryOf(3, { actorId: "bob" }),
        entryOf(4, { action: "image.create", actorId: "bob", workspaceId: undefined }),
      ];
      await store.audit.append([a, b, c, d]);
      expect(await idsOf({ workspaceId: "w1" })).toEqual([c.id, a.id]);
      expect(await idsOf({ actorId: "bob" })).toEqual([d.id, c.id]);
      expect(await idsOf({ action: "sandbox.provision" })).toEqual([c.id, b.id, a.id]);
      expect(await idsOf({ action: "sandbox.provision", actorId: "bob" })).toEqual([c.id]);
      expect(await idsOf({ workspaceId: "w1", actorId: "ann" })).toEqual([a.id]);
      expect(await idsOf({ workspaceId: "w1", action: "image.create" })).toEqual([]);
      expect(await idsOf({ since: at(2), until: at(4) })).toEqual([c.id, b.id]);
      expect(await idsOf({ since: at(2), until: at(4), after: c })).toEqual([b.id]);
      expect(await idsOf({ until: at(2), after: d })).toEqual([a.id]);
    });

    test("a copy follows the order in which entries were added, not that of their times", async () => {
      const late = entryOf(1);
      const early = entryOf(9);
      await store.audit.append([early]);
      await store.audit.append([late]);
      const [first, second] = await store.audit.listAfter(0, 10);
      expect([first?.entry, second?.entry]).toEqual([early, late]);
      expect(await store.audit.listAfter(first?.sequence ?? 0, 1)).toEqual([second]);
      expect(await store.audit.findCopyCursor("file")).toBe(0);
      await store.audit.setCopyCursor("file", 1);
      await store.audit.setCopyCursor("file", 2);
      expect(await store.audit.findCopyCursor("file")).toBe(2);
      expect(await store.audit.findCopyCursor("another")).toBe(0);
    });

    test("entries from before a time are removed in batches, and their numbers are not used again", async () => {
      await store.audit.append([1, 2, 3, 4].map((ms) => entryOf(ms)));
      expect(await store.audit.sweep(at(4), 2)).toBe(2);
      expect(await store.audit.sweep(at(4), 2)).toBe(1);
      expect(await store.audit.sweep(at(4), 2)).toBe(0);
      expect(await store.audit.sweep(at(5), 2)).toBe(1);
      const next = entryOf(5);
      await store.audit.append([next]);
      expect(await store.audit.listAfter(0, 10)).toEqual([{ sequence: 5, entry: next }]);
    });
  });
}
