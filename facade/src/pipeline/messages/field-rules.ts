import { type DescField, type DescMessage, getOption, hasOption, isFieldSet, type Message } from "@bufbuild/protobuf";
import {
  type FieldRules,
  type Int32Rules,
  type MapRules,
  MapRulesSchema,
  type RepeatedRules,
  RepeatedRulesSchema,
  field as rulesOption,
  type StringRules,
  StringRulesSchema,
} from "@bufbuild/protovalidate/gen/buf/validate/validate_pb.js";

/** Keywords of JSON Schema. */
type Keywords = Record<string, unknown>;

/** Describes a field of a message. Throws for a field that the message lacks. */
export function fieldOf(desc: DescMessage, name: string): DescField {
  const field = desc.fields.find((each) => each.name === name);
  if (!field) throw new Error(`${desc.typeName} has no field ${name}.`);
  return field;
}

/** The limits of a field, as its contract has them (buf.validate), in the keywords of JSON Schema. */
export function limitsOf(desc: DescMessage, name: string): Keywords {
  const field = fieldOf(desc, name);
  return hasOption(field, rulesOption) ? toKeywords(getOption(field, rulesOption)) : {};
}

/** The most characters that a field may have. Throws for a field without such a limit. */
export function maxLengthOf(desc: DescMessage, name: string): number {
  const { maxLength } = limitsOf(desc, name);
  if (typeof maxLength !== "number") throw new Error(`${desc.typeName}.${name} has no max_len.`);
  return maxLength;
}

function toKeywords(rules: FieldRules | undefined): Keywords {
  switch (rules?.type.case) {
    case "string":
      return ofString(rules.type.value);
    case "int32":
      return ofInteger(rules.type.value);
    case "map":
      return ofMap(rules.type.value);
    case "repeated":
      return ofList(rules.type.value);
    default:
      return {};
  }
}

function ofString(rules: StringRules): Keywords {
  const has = presenceIn(StringRulesSchema, rules);
  return {
    ...(has("min_len") && { minLength: Number(rules.minLen) }),
    ...(has("max_len") && { maxLength: Number(rules.maxLen) }),
    ...(has("pattern") && { pattern: rules.pattern }),
    ...(rules.wellKnown.case === "email" && { format: "email" }),
    ...(rules.wellKnown.case === "uuid" && { format: "uuid" }),
  };
}

function ofInteger({ greaterThan, lessThan }: Int32Rules): Keywords {
  return {
    ...(greaterThan.case === "gte" && { minimum: greaterThan.value }),
    ...(lessThan.case === "lte" && { maximum: lessThan.value }),
  };
}

function ofMap(rules: MapRules): Keywords {
  const has = presenceIn(MapRulesSchema, rules);
  return {
    ...(has("max_pairs") && { maxProperties: Number(rules.maxPairs) }),
    ...(rules.keys && { propertyNames: toKeywords(rules.keys) }),
    ...(rules.values && { additionalProperties: { type: "string", ...toKeywords(rules.values) } }),
  };
}

function ofList(rules: RepeatedRules): Keywords {
  const has = presenceIn(RepeatedRulesSchema, rules);
  return {
    ...(has("min_items") && { minItems: Number(rules.minItems) }),
    ...(has("max_items") && { maxItems: Number(rules.maxItems) }),
    ...(has("unique") && { uniqueItems: rules.unique }),
  };
}

/** A function that says whether a rule is given; the others have the default of their type. */
function presenceIn(desc: DescMessage, rules: Message): (name: string) => boolean {
  return (name) => isFieldSet(rules, fieldOf(desc, name));
}
