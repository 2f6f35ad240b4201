import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import type { Static, TObject } from "typebox";
import { fieldOf } from "./field-rules.ts";
import type { CamelCase } from "./mapper.ts";

/** The fields of a request that are made from a body. */
type Fields<Body> = { [K in keyof Body & string as CamelCase<K>]?: NonNullable<Body[K]> };

/** The properties of a body for which the request has no field of that name. */
type Strangers<M, Body> = { [K in keyof Body & string]: CamelCase<K> extends keyof M ? never : K }[keyof Body & string];

/**
 * Makes a function that makes the fields of a request from a body of this schema: each property goes into the field of
 * the same name. What is missing or null stays unset, and properties that the schema lacks are left out.
 */
export function createRequestMapper<D extends DescMessage, S extends TObject>(
  desc: D,
  schema: Strangers<MessageShape<D>, Static<S>> extends never ? S : never,
): (body: Static<S>) => Fields<Static<S>>;
// The one step that the compiler can't follow: every property has a field of its name, as the signature above says.
export function createRequestMapper(desc: DescMessage, schema: TObject): (body: object) => object {
  const names = Object.keys(schema.properties).map((name) => [name, fieldOf(desc, name).localName] as const);
  return (body) => {
    const fields: Record<string, unknown> = {};
    for (const [name, localName] of names) {
      const value: unknown = Reflect.get(body, name);
      if (value !== undefined && value !== null) fields[localName] = value;
    }
    return fields;
  };
}

/** The properties of a schema that a body unsets with null. */
export function nullsOf<S extends TObject>(schema: S, body: Static<S>): string[] {
  return Object.keys(schema.properties).filter((name) => Reflect.get(Object(body), name) === null);
}
