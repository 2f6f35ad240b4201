import { create } from "@bufbuild/protobuf";
import { OutputEventSchema, OutputStream } from "@sandgate/proto/helper/v1/process";
import { expect, test } from "vitest";
import { createOutputEncoder, type OutputItem } from "./output.ts";

const { STDOUT, STDERR } = OutputStream;

/** What an encoder makes of writes, in their order; a number is a gap. */
function encode(
  form: "text" | "lossless" | "base64",
  writes: readonly (readonly [OutputStream, readonly number[]] | number)[],
) {
  const encoder = createOutputEncoder(form);
  let offset = 0;
  const items: OutputItem[] = [];
  for (const write of writes) {
    offset += typeof write === "number" ? write : write[1].length;
    const event =
      typeof write === "number"
        ? { case: "gapBytes" as const, value: BigInt(write) }
        : { case: "output" as const, value: { stream: write[0], data: new Uint8Array(write[1]) } };
    items.push(...encoder.add(create(OutputEventSchema, { offset: BigInt(offset), event })));
  }
  return [...items, ...encoder.end()].map((item) =>
    item.type === "gap" ? [item.id, item.bytes] : [item.id, item.stream, item.encoding, item.data],
  );
}

const euro = [0xe2, 0x82, 0xac];
const [e, u, r] = [[0xe2], [0x82], [0xac]];

test("as text a character stays whole, also around what the other stream writes", () => {
  const writes = [
    [STDOUT, [0x61, ...e]],
    [STDERR, [0x62]],
    [STDOUT, u],
    [STDOUT, [...r, 0x63]],
  ] as const;
  expect(encode("text", writes)).toEqual([
    [1, "stdout", "utf8", "a"],
    [3, "stderr", "utf8", "b"],
    [6, "stdout", "utf8", "€c"],
  ]);
});

test("as text what no character follows is U+FFFD, and comes before a gap", () => {
  expect(encode("text", [[STDOUT, [0x61, ...e, ...u]], 5, [STDOUT, r], [STDOUT, [0xff]], [STDERR, e]])).toEqual([
    [1, "stdout", "utf8", "a"],
    [3, "stdout", "utf8", "\u{fffd}"],
    [8, 5],
    [9, "stdout", "utf8", "\u{fffd}"],
    [10, "stdout", "utf8", "\u{fffd}"],
    [11, "stderr", "utf8", "\u{fffd}"],
  ]);
});

test("lossless output is text where it can be, and base64 else", () => {
  const base64 = (bytes: number[]) => Buffer.from(bytes).toString("base64");
  expect(
    encode("lossless", [
      [STDOUT, [0x61, ...e]],
      [STDOUT, [...u, ...r]],
    ]),
  ).toEqual([
    [1, "stdout", "utf8", "a"],
    [4, "stdout", "utf8", "€"],
  ]);
  expect(
    encode("lossless", [
      [STDOUT, [0x61, ...e]],
      [STDERR, [0x62]],
      [STDOUT, [...u, ...r]],
      [STDOUT, e],
    ]),
  ).toEqual([
    [1, "stdout", "utf8", "a"],
    [2, "stdout", "base64", base64(e)],
    [3, "stderr", "utf8", "b"],
    [5, "stdout", "base64", base64([...u, ...r])],
    [6, "stdout", "base64", base64(e)],
  ]);
});

test.each(["lossless", "base64"] as const)(
  "no byte is lost, doubled or moved as %s, wherever writes are cut",
  (form) => {
    const bytes = [
      0x61,
      ...euro,
      0xff,
      0xf0,
      0x9f,
      0x98,
      0x80,
      0xc3,
      0x28,
      ...euro.slice(0, 2),
      0xef,
      0xbb,
      0xbf,
      0xf0,
      0x9f,
    ];
    for (let first = 1; first < bytes.length; first++) {
      for (let second = first; second < bytes.length; second++) {
        const cuts = [bytes.slice(0, first), bytes.slice(first, second), bytes.slice(second)].filter(
          ({ length }) => length,
        );
        const items = encode(
          form,
          cuts.map((cut) => [STDOUT, cut] as const),
        );
        const decoded = items.map(([, , encoding, data]) => Buffer.from(String(data), encoding as BufferEncoding));
        expect([...Buffer.concat(decoded)]).toEqual(bytes);
        let id = 0;
        for (const [index, [at]] of items.entries()) {
          id += decoded[index]?.length ?? 0;
          expect(at).toBe(id);
        }
      }
    }
  },
);
