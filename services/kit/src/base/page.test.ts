import fc from "fast-check";
import { expect, test } from "vitest";
import { decodeCursor, encodeCursor, pageLimit, toPage } from "./page.ts";

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

test("pages join to the whole list", () => {
  const rows = Array.from({ length: 7 }, (_, index) => ({
    createdAt: new Date(10 - Math.floor(index / 2)),
    id: `${9 - index}`,
  }));
  for (const limit of [1, 2, 3, 7, 100]) {
    const seen: typeof rows = [];
    let cursor = "";
    do {
      const after = decodeCursor(cursor);
      const from = after ? rows.findIndex(({ id }) => id === after.id) + 1 : 0;
      const page = toPage(rows.slice(from, from + limit + 1), limit, (row) => row);
      seen.push(...page.rows);
      cursor = page.nextCursor;
    } while (cursor);
    expect(seen).toEqual(rows);
  }
});

test("no limit is the default of 100", () => {
  expect([pageLimit(0), pageLimit(undefined), pageLimit(7)]).toEqual([100, 100, 7]);
});
