import { BinaryWriter, WireType } from "@bufbuild/protobuf/wire";
import { headBytes, kinds, type Message, magic } from "./protobuf.ts";

/** A field that no reader knows, as every object has some. */
const unreadField = 500;

/** An object as an API server sends it. */
export function encodeObject(kind: string, object: unknown): Uint8Array {
  const message = kinds[kind];
  if (!message) throw new Error(`${kind} is never sent`);
  const writer = new BinaryWriter();
  writer.tag(1, WireType.LengthDelimited).fork();
  writer.tag(1, WireType.LengthDelimited).string("v1");
  writer.tag(2, WireType.LengthDelimited).string(kind).join();
  writer.tag(2, WireType.LengthDelimited).fork();
  write(writer, message, object);
  writer.join();
  return Buffer.concat([magic, writer.finish()]);
}

/** An event of a watch. */
export function encodeEvent(type: string, object: unknown): Uint8Array {
  const writer = new BinaryWriter();
  writer.tag(1, WireType.LengthDelimited).string(type);
  writer.tag(2, WireType.LengthDelimited).fork();
  writer
    .tag(1, WireType.LengthDelimited)
    .bytes(encodeObject(type === "ERROR" ? "Status" : "Pod", object))
    .join();
  const event = writer.finish();
  const head = Buffer.alloc(headBytes);
  head.writeUInt32BE(event.length);
  return Buffer.concat([head, event]);
}

function write(writer: BinaryWriter, message: Message, object: unknown): void {
  const given = new Map(Object.entries(object ?? {}));
  writer.tag(unreadField, WireType.LengthDelimited).string("unread");
  for (const [number, [name, type, isList]] of Object.entries(message)) {
    // A message that JSON doesn't show.
    const value = name === "" ? object : given.get(name);
    const values = isList && Array.isArray(value) ? value : value === undefined || value === null ? [] : [value];
    if (type === "map") {
      for (const entry of Object.entries(values[0] ?? {})) writeField(writer, Number(number), "map", entry);
    } else {
      // Texts that JSON leaves out are sent empty.
      if (values.length === 0 && type === "string" && !isList) values.push("");
      for (const each of values) writeField(writer, Number(number), type, each);
    }
  }
}

function writeField(writer: BinaryWriter, number: number, type: Message[number][1], value: unknown): void {
  if (type === "string") writer.tag(number, WireType.LengthDelimited).string(String(value));
  else if (type === "int") writer.tag(number, WireType.Varint).int64(Number(value));
  else if (type === "bool") writer.tag(number, WireType.Varint).bool(value === true);
  else {
    writer.tag(number, WireType.LengthDelimited).fork();
    if (type === "time") {
      // One that is none is sent as an empty message.
      if (value !== "") writer.tag(1, WireType.Varint).int64(Math.floor(Date.parse(String(value)) / 1000));
    } else if (type === "port") writer.tag(1, WireType.Varint).int64(0).tag(2, WireType.Varint).int64(Number(value));
    else if (type === "map") {
      const [key, text] = value as [string, string];
      writer.tag(1, WireType.LengthDelimited).string(key).tag(2, WireType.LengthDelimited).string(text);
    } else if (type === "fields") writer.tag(1, WireType.LengthDelimited).string(JSON.stringify(value));
    else if (type !== "object") write(writer, type, value);
    writer.join();
  }
}
