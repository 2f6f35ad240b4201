import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { ScalarType } from "@bufbuild/protobuf";
import { type TBoolean, type TInteger, type TSchemaOptions, type TString, type TUnsafe, Type } from "typebox";
import { fieldOf, limitsOf } from "../messages/field-rules.ts";
import type { CamelCase } from "../messages/mapper.ts";

/** The schema of a field whose values have this type in TypeScript. */
type SchemaOf<V> = [V] extends [string | undefined]
  ? TString
  : [V] extends [number | undefined]
    ? TInteger
    : [V] extends [boolean | undefined]
      ? TBoolean
      : [V] extends [Record<string, string>]
        ? TUnsafe<Record<string, string>>
        : never;

/** The schema of a message's field, if the message has it. */
type FieldSchema<M, N extends string> = CamelCase<N> extends keyof M ? SchemaOf<M[CamelCase<N>]> : never;

/**
 * The schema of a public field that is sent on as this field of a request. Type and limits are those of the contract,
 * so a limit stands there alone; `more` adds to them, or replaces what differs in public.
 */
export function fieldSchema<D extends DescMessage, const N extends string>(
  desc: D,
  name: N,
  more?: TSchemaOptions,
): FieldSchema<MessageShape<D>, N>;
// The one step that the compiler can't follow: the descriptor's type of a field is the one of its values.
export function fieldSchema(desc: DescMessage, name: string, more: TSchemaOptions = {}): unknown {
  const field = fieldOf(desc, name);
  const keywords = { ...limitsOf(desc, name), ...more };
  if (field.fieldKind === "map") return Type.Unsafe({ type: "object", ...keywords });
  if (field.scalar === ScalarType.STRING) return Type.String(keywords);
  if (field.scalar === ScalarType.INT32) return Type.Integer(keywords);
  if (field.scalar === ScalarType.BOOL) return Type.Boolean(keywords);
  throw new Error(`${desc.typeName}.${name} has a type that no schema is made of.`);
}
