// Pods in the API server's other format. The server has them encoded already, for the scheduler and kubelets, while it
// would encode JSON for us alone at each change. Fields that aren't read are skipped by their length.

import { BinaryReader } from "@bufbuild/protobuf/wire";
import { createFrameSplitter } from "@sandgate/kit/base/streams";

export const protobufType = "application/vnd.kubernetes.protobuf";

/** The first bytes of each object. */
export const magic = Buffer.from("k8s\0");
/** The length of the head before each event of a watch, which has the event's length. */
export const headBytes = 4;

/**
 * `time` is seconds, which JSON has as text. `port` is a number or a name, of which the number is read. `map` is a map
 * of texts. `fields` are the fields of an object that somebody has set, as JSON: it is long, and read only if it has
 * the start that a kubelet reports.
 */
type Type = "string" | "int" | "bool" | "time" | "port" | "map" | "fields" | "object" | Message;
/**
 * The fields of a message that are read: by their numbers, their names in JSON. The fields of a field named "" are the
 * message's own there.
 */
export interface Message {
  readonly [number: number]: readonly [name: string, type: Type, isList?: "list"];
}

const named: Message = { 1: ["name", "string"] };

const metadata: Message = {
  1: ["name", "string"],
  3: ["namespace", "string"],
  5: ["uid", "string"],
  6: ["resourceVersion", "string"],
  8: ["creationTimestamp", "time"],
  9: ["deletionTimestamp", "time"],
  10: ["deletionGracePeriodSeconds", "int"],
  11: ["labels", "map"],
  12: ["annotations", "map"],
  14: ["finalizers", "string", "list"],
  17: ["managedFields", { 4: ["time", "time"], 7: ["fieldsV1", "fields"] }, "list"],
};

const container: Message = {
  1: ["name", "string"],
  22: ["startupProbe", { 1: ["", { 2: ["httpGet", { 2: ["port", "port"] }] }] }],
};

const spec: Message = {
  2: ["containers", container, "list"],
  5: ["activeDeadlineSeconds", "int"],
  10: ["nodeName", "string"],
  15: ["imagePullSecrets", named, "list"],
  38: ["schedulingGates", named, "list"],
};

const condition: Message = {
  1: ["type", "string"],
  2: ["status", "string"],
  4: ["lastTransitionTime", "time"],
  5: ["reason", "string"],
  6: ["message", "string"],
};

const containerState: Message = {
  1: ["waiting", { 1: ["reason", "string"], 2: ["message", "string"] }],
  2: ["running", { 1: ["startedAt", "time"] }],
  3: [
    "terminated",
    {
      1: ["exitCode", "int"],
      3: ["reason", "string"],
      4: ["message", "string"],
      5: ["startedAt", "time"],
      6: ["finishedAt", "time"],
    },
  ],
};

const containerStatus: Message = { 1: ["name", "string"], 2: ["state", containerState], 9: ["started", "bool"] };

const status: Message = {
  1: ["phase", "string"],
  2: ["conditions", condition, "list"],
  3: ["message", "string"],
  4: ["reason", "string"],
  7: ["startTime", "time"],
  8: ["containerStatuses", containerStatus, "list"],
};

const pod: Message = { 1: ["metadata", metadata], 2: ["spec", spec], 3: ["status", status] };

/**
 * The objects that can be read, by their kind. Field numbers are those of k8s.io/api/core/v1 and k8s.io/apimachinery,
 * which never change.
 */
export const kinds: Readonly<Record<string, Message>> = {
  Pod: pod,
  PodList: {
    1: ["metadata", { 2: ["resourceVersion", "string"], 3: ["continue", "string"] }],
    2: ["items", pod, "list"],
  },
  Status: { 3: ["message", "string"], 4: ["reason", "string"], 6: ["code", "int"] },
};

const typeMeta: Message = { 2: ["kind", "string"] };
const event: Message = { 1: ["type", "string"], 2: ["object", "object"] };

/**
 * Reads a pod, a list of pods or a Status, in the shape that its fields have in JSON. Throws for anything else.
 */
export function readObject(bytes: Uint8Array): unknown {
  if (!magic.equals(bytes.subarray(0, magic.length))) throw new Error("the API server's answer is no object");
  const reader = new BinaryReader(bytes.subarray(magic.length));
  let kind = "";
  let raw: Uint8Array = new Uint8Array();
  while (reader.pos < reader.len) {
    const [number, wireType] = reader.tag();
    if (number === 1) kind = String(readMessage(reader, reader.uint32(), typeMeta).kind ?? "");
    else if (number === 2) raw = reader.bytes();
    else reader.skip(wireType, number);
  }
  const message = Object.hasOwn(kinds, kind) ? kinds[kind] : undefined;
  if (!message) throw new Error(`the API server answered with a ${kind || "nameless kind"}`);
  return readMessage(new BinaryReader(raw), raw.length, message);
}

/** The events of a watch, however they are cut into chunks. */
export async function* readEvents(body: AsyncIterable<Buffer>): AsyncGenerator<unknown> {
  const split = createFrameSplitter(headBytes);
  for await (const chunk of body) {
    for (const frame of split(chunk)) {
      const one = frame.subarray(headBytes);
      yield readMessage(new BinaryReader(one), one.length, event);
    }
  }
}

function readMessage(
  reader: BinaryReader,
  length: number,
  message: Message,
  into: Record<string, unknown> = {},
): Record<string, unknown> {
  const end = reader.pos + length;
  while (reader.pos < end) {
    const [number, wireType] = reader.tag();
    const field = message[number];
    if (!field) {
      reader.skip(wireType, number);
      continue;
    }
    const [name, type, isList] = field;
    if (name === "" && typeof type === "object") {
      readMessage(reader, reader.uint32(), type, into);
    } else if (isList) {
      const before = into[name];
      const value = readValue(reader, type, undefined);
      if (Array.isArray(before)) before.push(value);
      else into[name] = [value];
    } else {
      const value = readValue(reader, type, into[name]);
      // The server encodes a missing text as an empty one.
      if (value !== "") into[name] = value;
    }
  }
  return into;
}

/** @param before the map so far, of which each entry comes by itself */
function readValue(reader: BinaryReader, type: Type, before: unknown): unknown {
  switch (type) {
    case "string":
      return reader.string();
    case "int":
      return Number(reader.int64());
    case "bool":
      return reader.bool();
    case "time": {
      // No time at all is the year 1.
      const { seconds } = readMessage(reader, reader.uint32(), { 1: ["seconds", "int"] });
      return typeof seconds === "number" ? new Date(seconds * 1000).toISOString() : "";
    }
    case "port":
      return readMessage(reader, reader.uint32(), { 2: ["number", "int"] }).number;
    case "map": {
      const { key, value } = readMessage(reader, reader.uint32(), { 1: ["key", "string"], 2: ["value", "string"] });
      return Object.assign(before ?? {}, { [String(key ?? "")]: value ?? "" });
    }
    case "fields": {
      const { json } = readMessage(reader, reader.uint32(), { 1: ["json", "string"] });
      return typeof json === "string" && json.includes('"f:startTime"') ? JSON.parse(json) : {};
    }
    case "object": {
      reader.uint32();
      reader.tag();
      return readObject(reader.bytes());
    }
    default:
      return readMessage(reader, reader.uint32(), type);
  }
}
