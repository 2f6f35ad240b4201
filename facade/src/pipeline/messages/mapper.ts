import { type DescField, type DescMessage, isMessage, type Message, type MessageShape } from "@bufbuild/protobuf";
import { FeatureSet_FieldPresence, type Timestamp, TimestampSchema } from "@bufbuild/protobuf/wkt";
import { rememberFrozen } from "@sandgate/kit/base/freeze";
import type { Static, TObject } from "typebox";
import { present } from "./contract.ts";
import { fieldOf } from "./field-rules.ts";
import { toIsoMillis } from "./times.ts";

/** "created_at" -> "createdAt" */
export type CamelCase<S extends string> = S extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : S;

/** Whether a public property can be made from a field of this type without an override. */
type Fits<Field, Public> = [Field] extends [Timestamp | undefined]
  ? [string] extends [Public]
    ? true
    : false
  : [Field] extends [Message | undefined]
    ? [Misfits<NonNullable<Field>, NonNullable<Public>>] extends [never]
      ? true
      : false
    : [Field] extends [readonly (infer Item extends Message)[]]
      ? [Public] extends [readonly (infer PublicItem)[]]
        ? Fits<Item, PublicItem>
        : false
      : [undefined extends Field ? NonNullable<Field> | null : Field] extends [Public]
        ? true
        : false;

/** The public properties for which the message has no field of that name and a type that fits. */
type Misfits<M, Public> = {
  [K in keyof Public & string]: CamelCase<K> extends keyof M
    ? Fits<M[CamelCase<K>], Public[K]> extends true
      ? never
      : K
    : K;
}[keyof Public & string];

type Overrides<M, Public> = { [K in keyof Public]?: (message: M) => Public[K] } & {
  [K in Misfits<M, Public>]: (message: M) => Public[K];
};

/** The fields of a message, or the properties of a record, by name. */
type Fields = Readonly<Record<string, unknown>>;

type AnyOverrides = Readonly<Record<string, (message: Fields) => unknown>>;

/** What is read of a property's schema. */
interface Property {
  type?: string | string[];
  properties?: Record<string, Property>;
  items?: Property;
}

/**
 * Makes a function that makes the public record of this schema from a message. Each property comes from the field of
 * the same name: a time in ISO 8601 with milliseconds, messages and lists of them by their own schemas, anything else
 * as it is. Where the schema allows null, a field that is unset becomes null, and so does an empty string that can't be
 * told from unset.
 *
 * @param overrides how to make the properties that differ; the compiler asks for those that no field fits
 */
export function createMapper<D extends DescMessage, S extends TObject>(
  desc: D,
  schema: S,
  overrides: Overrides<MessageShape<D>, Static<S>>,
): (message: MessageShape<D>) => Static<S>;
// The one step that the compiler can't follow, so the signature above stands over a looser one: a record with every
// property of the schema, each from an override or from a field that `Fits` has admitted, is what the schema describes.
export function createMapper(
  desc: DescMessage,
  schema: Property,
  overrides: AnyOverrides,
): (message: Fields) => Fields {
  // In one process a service may send the same frozen message many times.
  return rememberFrozen(compile(desc, schema, overrides));
}

function compile(
  desc: DescMessage,
  { properties = {} }: Property,
  overrides: AnyOverrides,
): (message: Fields) => Fields {
  const steps = Object.entries(properties).map(([name, property]) => {
    const override = overrides[name];
    if (override) return { name, read: override };
    const field = fieldOf(desc, name);
    const { localName } = field;
    const convert = compileField(field, property);
    return { name, read: (message: Fields) => convert(message[localName]) };
  });
  return (message) => {
    const record: Record<string, unknown> = {};
    for (const { name, read } of steps) record[name] = read(message);
    return record;
  };
}

/** Makes a function from a field's value to the public one. */
function compileField(field: DescField, property: Property): (value: unknown) => unknown {
  const nullable = Array.isArray(property.type) && property.type.includes("null");
  switch (field.fieldKind) {
    case "message": {
      const convert = compileMessage(field.message, property);
      return nullable ? (value) => (value === undefined ? null : convert(value)) : convert;
    }
    case "list": {
      if (field.listKind !== "message") return (value) => value;
      const convert = compileMessage(field.message, property.items ?? {});
      return (value) => present(Array.isArray(value) ? value : undefined).map(convert);
    }
    default: {
      if (!nullable) return (value) => value;
      const emptyIsUnset = field.presence === FeatureSet_FieldPresence.IMPLICIT;
      return (value) => (value === undefined || (emptyIsUnset && value === "") ? null : value);
    }
  }
}

function compileMessage(desc: DescMessage, property: Property): (value: unknown) => unknown {
  if (desc.typeName === TimestampSchema.typeName) {
    return (value) => toIsoMillis(present(isMessage(value, TimestampSchema) ? value : undefined));
  }
  const toRecord = compile(desc, property, {});
  return (value) => toRecord(present(isMessage(value, desc) ? value : undefined));
}
