import { isUtf8 } from "node:buffer";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { type OutputEvent, OutputStream } from "@sandgate/proto/helper/v1/process";
import type { Encoding, streams } from "./schemas.ts";

type Stream = (typeof streams)[number];

/** The error of output that ends without telling of its process's end. */
export function outputBrokeOff(): DomainError {
  return new DomainError("UPSTREAM_ERROR", "The connection to the sandbox broke off before the process ended.");
}

/** Output of a process, or how many bytes of it are gone. `id`: bytes of output up to and with it. */
export type OutputItem =
  | { type: "output"; id: number; stream: Stream; data: string; encoding: Encoding }
  | { type: "gap"; id: number; bytes: number };

/** Turns output of a process into items, in their order. What one holds back comes with a later one. */
export interface OutputEncoder {
  add(event: OutputEvent): OutputItem[];
  /** What is held back when nothing follows. */
  end(): OutputItem[];
}

/** Output of one stream, or a gap. */
type Piece = { id: number; stream: Stream; bytes: Buffer } | { id: number; gap: number };

export function pieceOf({ offset, event }: OutputEvent): Piece | undefined {
  const id = Number(offset);
  if (event.case === "gapBytes") return { id, gap: Number(event.value) };
  if (event.case !== "output") return undefined;
  const { stream, data } = event.value;
  return { id, stream: toStream(stream), bytes: Buffer.from(data.buffer, data.byteOffset, data.byteLength) };
}

function toStream(stream: OutputStream): Stream {
  if (stream === OutputStream.STDERR) return "stderr";
  return stream === OutputStream.TERMINAL ? "pty" : "stdout";
}

/** `text`: a bad byte is U+FFFD. `lossless`: output is text where it is valid UTF-8, and base64 where it isn't. */
export function createOutputEncoder(form: "text" | "lossless" | "base64"): OutputEncoder {
  if (form === "base64") return { add: (event) => itemsOf(event, (piece) => [asBase64(piece)]), end: () => [] };
  return form === "text" ? createTextEncoder() : createLosslessEncoder();
}

type Output = Extract<Piece, { bytes: Buffer }>;

function itemsOf(event: OutputEvent, encode: (output: Output) => OutputItem[]): OutputItem[] {
  const piece = pieceOf(event);
  if (!piece) return [];
  return "gap" in piece ? [{ type: "gap", id: piece.id, bytes: piece.gap }] : encode(piece);
}

const asBase64 = ({ id, stream, bytes }: Output): OutputItem => ({
  type: "output",
  id,
  stream,
  data: bytes.toString("base64"),
  encoding: "base64",
});
const asText = ({ id, stream, bytes }: Output): OutputItem => ({
  type: "output",
  id,
  stream,
  data: bytes.toString("utf8"),
  encoding: "utf8",
});

/** Splits off a character at the end of which more bytes have to come. */
function splitEnd({ id, stream, bytes }: Output): { whole: Output | undefined; rest: Output | undefined } {
  const length = incompleteBytes(bytes);
  const whole = { id: id - length, stream, bytes: bytes.subarray(0, bytes.length - length) };
  const rest = { id, stream, bytes: bytes.subarray(bytes.length - length) };
  return { whole: whole.bytes.length > 0 ? whole : undefined, rest: length > 0 ? rest : undefined };
}

function incompleteBytes(bytes: Buffer): number {
  for (let count = 1; count <= Math.min(3, bytes.length); count++) {
    const byte = bytes[bytes.length - count] ?? 0;
    if ((byte & 0b1100_0000) === 0b1000_0000) continue;
    const wanted = byte < 0xc2 || byte > 0xf4 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
    return wanted > count ? count : 0;
  }
  return 0;
}

function join(first: Output | undefined, second: Output): Output {
  return first ? { ...second, bytes: Buffer.concat([first.bytes, second.bytes]) } : second;
}

/** A character that was split between writes stays whole, also when the other stream is written to meanwhile. */
function createTextEncoder(): OutputEncoder {
  const held = new Map<Stream, Output>();
  const end = () => {
    const items = [...held.values()].map(asText);
    held.clear();
    return items;
  };
  return {
    add(event) {
      const before = event.event.case === "gapBytes" ? end() : [];
      const items = itemsOf(event, (piece) => {
        const { whole, rest } = splitEnd(join(held.get(piece.stream), piece));
        if (rest) held.set(piece.stream, rest);
        else held.delete(piece.stream);
        return whole ? [asText(whole)] : [];
      });
      return [...before, ...items];
    },
    end,
  };
}

/** Whoever continues after an id misses nothing: what is held back comes after the last item, or before the next one. */
function createLosslessEncoder(): OutputEncoder {
  let held: Output | undefined;
  const end = () => {
    const items = held ? [asBase64(held)] : [];
    held = undefined;
    return items;
  };
  return {
    add(event) {
      const { event: next } = event;
      const continues = next.case === "output" && held?.stream === toStream(next.value.stream);
      const before = continues ? [] : end();
      const items = itemsOf(event, (piece) => {
        const { whole, rest } = splitEnd(join(held, piece));
        held = rest;
        if (!whole || isUtf8(whole.bytes)) return whole ? [asText(whole)] : [];
        held = undefined;
        return [asBase64(rest ? join(whole, rest) : whole)];
      });
      return [...before, ...items];
    },
    end,
  };
}
