import fc from "fast-check";
import { expect, test } from "vitest";
import { type Cursor, decodeCursor, encodeCursor, readPage } from "./page.ts";

test("a cursor comes back as it was", () => {
  fc.assert(
    fc.property(fc.record({ createdAt: fc.date({ noInvalidDate: true }), id: fc.uuid() }), (cursor) => {
      expect(decodeCursor(encodeCursor(cursor))).toEqual(cursor);
    }),
  );
  expect(decodeCursor("")).toBeUndefined();
});

test("any other text is a violation of query.cursor", () => {
  const refused = expect.objectContaining({
    reason: "VALIDATION_ERROR",
    violations: [expect.objectContaining({ field: "query.cursor" })],
  });
  const others = ["null", "[1]", '["1","a"]', '[1.5,"a"]', '[1,"a",2]', '[1, "a"]', '[9e15,"a"]', '[null,"a"]'].map(
    (json) => Buffer.from(json).toString("base64url"),
  );
  for (const text of [...others, "x", "%", `${encodeCursor({ createdAt: new Date(1), id: "a" })}=`]) {
    expect(() => decodeCursor(text)).toThrow(refused);
  }
});

test("pages join to the whole list", async () => {
  const rows = Array.from({ length: 7 }, (_, index) => ({
    createdAt: new Date(10 - Math.floor(index / 2)),
    id: `${9 - index}`,
  }));
  const read = async (limit: number, after: Cursor | undefined) => {
    const from = after ? rows.findIndex(({ id }) => id === after.id) + 1 : 0;
    return rows.slice(from, from + limit);
  };
  for (const limit of [1, 2, 3, 7, 100]) {
    const seen: typeof rows = [];
    let cursor = "";
    do {
      const page = await readPage({ limit, cursor }, read);
      seen.push(...page.rows);
      cursor = page.nextCursor;
    } while (cursor);
    expect(seen).toEqual(rows);
  }
});

test("no limit is the default of 100", async () => {
  const rows = Array.from({ length: 200 }, (_, index) => ({ createdAt: new Date(0), id: String(index) }));
  const lengths = [{ limit: 0, cursor: "" }, undefined, { limit: 7, cursor: "" }].map(
    async (page) => (await readPage(page, async (limit) => rows.slice(0, limit))).rows.length,
  );
  expect(await Promise.all(lengths)).toEqual([100, 100, 7]);
});
