import { expect, test } from "vitest";
import { afterPosition } from "./mongo.ts";

interface Note {
  _id: string;
  at: Date;
}

test("after a document come the older ones, and those of its time with a lower id", () => {
  const at = new Date(5);
  expect(afterPosition<Note>({ at, _id: "b" })).toEqual({
    at: { $lte: at },
    $nor: [{ at, _id: { $gte: "b" } }],
  });
  expect(afterPosition<Note & { rank: number }>({ rank: 2, at, _id: "b" })).toEqual({
    rank: { $lte: 2 },
    $nor: [
      { rank: 2, at: { $gt: at } },
      { rank: 2, at, _id: { $gte: "b" } },
    ],
  });
  expect(afterPosition<Note>(undefined)).toEqual({});
});

test("a value of another type than the document's doesn't compile", () => {
  // @ts-expect-error at is a Date
  afterPosition<Note>({ at: 5, _id: "b" });
});
