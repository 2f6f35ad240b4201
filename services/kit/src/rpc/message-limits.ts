import { type DescField, type DescMessage, ScalarType } from "@bufbuild/protobuf";
import { WireType } from "@bufbuild/protobuf/wire";
import { Code, ConnectError } from "@connectrpc/connect";

/** What a message that is received may have. */
export interface MessageLimits {
  maxBytes: number;
  /** Fields of its own, each item of a list being one. */
  maxItems: number;
  /**
   * Fields, with those of messages within it. A message and a field that the contract doesn't have count for 16, since
   * they take so much longer to decode than other fields, and more memory than they have bytes.
   */
  maxFields: number;
}

const weight = 16;
/** Of a field: its tag, and a value or a length. */
const minFieldBytes = 2;
const maxVarintBytes = 10;

type Body = AsyncIterable<Uint8Array>;

/** Of an error, which is JSON. */
export const errorLimits: MessageLimits = {
  maxBytes: 65_536,
  maxItems: Number.POSITIVE_INFINITY,
  maxFields: Number.POSITIVE_INFINITY,
};

/** Passes on a body that is one message, once it is known to be within its limits. Throws RESOURCE_EXHAUSTED. */
export async function* limitMessage(desc: DescMessage, limits: MessageLimits, body: Body): AsyncGenerator<Uint8Array> {
  const parts: Uint8Array[] = [];
  let length = 0;
  for await (const part of body) {
    length += part.length;
    if (length > limits.maxBytes) throw tooLarge();
    parts.push(part);
  }
  limitFields(desc, limits, parts);
  yield* parts;
}

/** Throws RESOURCE_EXHAUSTED for a message, in the parts that it came in, that has too many fields. */
export function limitFields(desc: DescMessage, limits: MessageLimits, parts: readonly Uint8Array[]): void {
  const length = parts.reduce((sum, part) => sum + part.length, 0);
  const { maxFields, maxItems } = limits;
  if (mayExceed(length, limits)) countFields(desc, createCursor(parts), length, maxFields, maxItems);
}

function mayExceed(length: number, { maxItems, maxFields }: MessageLimits): boolean {
  return length / minFieldBytes > Math.min(maxItems, maxFields / weight);
}

/** Counts down from `left` as it reads to `end`. Throws for what doesn't decode as it is counted, too. */
function countFields(
  desc: DescMessage,
  cursor: Cursor,
  end: number,
  left: number,
  maxItems = Number.POSITIVE_INFINITY,
): number {
  const fields = fieldsOf(desc);
  let rest = left;
  let items = 0;
  while (cursor.position() < end) {
    const tag = cursor.readVarint();
    const wireType = tag % 8;
    const field = fields.get((tag - wireType) / 8);
    // The decoder would read it as the type that it knows.
    if (field && wireType !== field.wireType) throw malformed();
    rest -= field && !field.message ? 1 : weight;
    items++;
    if (rest < 0 || items > maxItems) throw tooLarge();
    const length = lengthOf(wireType, cursor);
    const fieldEnd = cursor.position() + length;
    if (fieldEnd > end) throw malformed();
    if (field?.message) rest = countFields(field.message, cursor, fieldEnd, rest);
    else cursor.skip(length);
  }
  return rest;
}

/** Of what follows a tag, without the length itself. */
function lengthOf(wireType: number, cursor: Cursor): number {
  switch (wireType) {
    case WireType.Varint:
      cursor.readVarint();
      return 0;
    case WireType.Bit64:
      return 8;
    case WireType.LengthDelimited:
      return cursor.readVarint();
    case WireType.Bit32:
      return 4;
    default:
      // Groups, which the contracts don't have.
      throw malformed();
  }
}

/** A place in a message. */
interface Cursor {
  position(): number;
  readVarint(): number;
  skip(bytes: number): void;
}

/** Of a message that came in parts: to join them took as long as all else that is done with a part of a file. */
function createCursor(parts: readonly Uint8Array[]): Cursor {
  let position = 0;
  let index = 0;
  let at = 0;

  function readByte(): number {
    for (let part = parts[index]; part && at >= part.length; part = parts[index]) {
      at -= part.length;
      index++;
    }
    const byte = parts[index]?.[at];
    if (byte === undefined) throw malformed();
    at++;
    position++;
    return byte;
  }

  return {
    position: () => position,
    readVarint() {
      let value = 0;
      for (let bytes = 0; bytes < maxVarintBytes; bytes++) {
        const byte = readByte();
        value += (byte % 128) * 128 ** bytes;
        if (byte < 128) return value;
      }
      throw malformed();
    },
    skip(bytes) {
      at += bytes;
      position += bytes;
    },
  };
}

interface Field {
  wireType: WireType;
  message: DescMessage | undefined;
}

const known = new WeakMap<DescMessage, ReadonlyMap<number, Field>>();

function fieldsOf(desc: DescMessage): ReadonlyMap<number, Field> {
  const found = known.get(desc);
  if (found) return found;
  const fields = new Map(
    desc.fields.map((field) => {
      const message = field.fieldKind === "map" ? undefined : field.message;
      return [field.number, { wireType: wireTypeOf(field), message }];
    }),
  );
  known.set(desc, fields);
  return fields;
}

function wireTypeOf(field: DescField): WireType {
  if (field.fieldKind === "map" || field.message || (field.fieldKind === "list" && field.packed)) {
    return WireType.LengthDelimited;
  }
  switch (field.scalar) {
    case ScalarType.STRING:
    case ScalarType.BYTES:
      return WireType.LengthDelimited;
    case ScalarType.DOUBLE:
    case ScalarType.FIXED64:
    case ScalarType.SFIXED64:
      return WireType.Bit64;
    case ScalarType.FLOAT:
    case ScalarType.FIXED32:
    case ScalarType.SFIXED32:
      return WireType.Bit32;
    default:
      return WireType.Varint;
  }
}

function tooLarge(): ConnectError {
  return new ConnectError("the message is larger than it may be, or has more fields", Code.ResourceExhausted);
}

function malformed(): ConnectError {
  return new ConnectError("the message is malformed", Code.Internal);
}
