import { create, type DescMessage, type Message, type MessageShape } from "@bufbuild/protobuf";
import { type Timestamp, timestampFromDate } from "@bufbuild/protobuf/wkt";

/**
 * What a field is created from: a Date for a time, undefined for an empty string, and the fields of a message for a
 * message.
 */
type Source<Field> = [Field] extends [Timestamp | undefined]
  ? Date | undefined
  : [Field] extends [string]
    ? Field | undefined
    : [Field] extends [(infer Item extends Message)[]]
      ? readonly AllFieldsOf<Item>[]
      : [Field] extends [Message | undefined]
        ? AllFieldsOf<NonNullable<Field>> | undefined
        : Field;

/** Every field of a message; undefined leaves a field unset. */
type AllFieldsOf<M> = { [K in Exclude<keyof Required<M>, keyof Message>]: Source<M[K]> };

/** Every field of a message, of which those that may be unset may also be missing. */
type FieldsOf<M> = {
  [K in keyof AllFieldsOf<M> as undefined extends AllFieldsOf<M>[K] ? K : never]?: AllFieldsOf<M>[K];
} & {
  [K in keyof AllFieldsOf<M> as undefined extends AllFieldsOf<M>[K] ? never : K]: AllFieldsOf<M>[K];
};

/**
 * Creates a message from a record that has a property for each field of the message, optional or not. It doesn't
 * compile if the record's type lacks one. Other properties of the record are ignored.
 */
export function createMessage<D extends DescMessage, R extends FieldsOf<MessageShape<D>>>(
  schema: D,
  record: R & Record<Exclude<keyof AllFieldsOf<MessageShape<D>>, keyof R>, unknown>,
): MessageShape<D>;
// The compiler can't follow that protobuf accepts the record once its dates are timestamps, so this signature is looser
// than the one above.
export function createMessage(schema: DescMessage, record: object): Message {
  return create(schema, toInit(schema, record));
}

function toInit(desc: DescMessage, record: object): Record<string, unknown> {
  const init: Record<string, unknown> = { ...record };
  for (const { name, message } of messageFieldsOf(desc)) {
    const value = init[name];
    if (value === undefined) continue;
    init[name] = Array.isArray(value)
      ? value.map((item) => toMessageInit(message, item))
      : toMessageInit(message, value);
  }
  return init;
}

const known = new WeakMap<DescMessage, { name: string; message: DescMessage }[]>();

/** Returns the few fields of a message that hold messages or lists of messages. */
function messageFieldsOf(desc: DescMessage): { name: string; message: DescMessage }[] {
  let fields = known.get(desc);
  if (!fields) {
    fields = desc.fields.flatMap(({ fieldKind, localName: name, message }) =>
      message && fieldKind !== "map" ? [{ name, message }] : [],
    );
    known.set(desc, fields);
  }
  return fields;
}

function toMessageInit(desc: DescMessage, value: unknown): unknown {
  if (value instanceof Date) return timestampFromDate(value);
  return typeof value === "object" && value !== null ? toInit(desc, value) : value;
}
