import { PageRequestSchema } from "@sandgate/proto/common/v1/page";
import { RegisterRequestSchema } from "@sandgate/proto/identity/v1/identity";
import { CreateImageRequestSchema } from "@sandgate/proto/imageregistry/v1/image_registry";
import { ProvisionSandboxRequestSchema } from "@sandgate/proto/sandbox/v1/sandbox";
import { expect, test } from "vitest";
import { maxLengthOf } from "../messages/field-rules.ts";
import { fieldSchema } from "./field-schema.ts";

test("a field has the type and the limits of its contract", () => {
  expect(fieldSchema(CreateImageRequestSchema, "ttl_seconds")).toEqual({
    type: "integer",
    minimum: 60,
    maximum: 86_400,
  });
  expect(fieldSchema(CreateImageRequestSchema, "name")).toEqual({
    type: "string",
    minLength: 1,
    maxLength: 100,
    pattern: "^[^\\x00-\\x1f\\x7f-\\x9f]*$",
  });
  expect(fieldSchema(CreateImageRequestSchema, "enabled")).toEqual({ type: "boolean" });
  expect(fieldSchema(RegisterRequestSchema, "username")).toEqual({ type: "string", format: "email", maxLength: 254 });
  expect(fieldSchema(ProvisionSandboxRequestSchema, "labels")).toEqual({
    type: "object",
    maxProperties: 64,
    propertyNames: { minLength: 1, maxLength: 63 },
    additionalProperties: { type: "string", maxLength: 255 },
  });
});

test("what differs in public replaces what the contract says", () => {
  expect(fieldSchema(PageRequestSchema, "limit", { minimum: 1, default: 100 })).toEqual({
    type: "integer",
    minimum: 1,
    maximum: 500,
    default: 100,
  });
});

test("a field that the contract lacks, or whose type is no JSON value, is refused", () => {
  // @ts-expect-error The compiler refuses it too.
  expect(() => fieldSchema(CreateImageRequestSchema, "nothing").type).toThrow("has no field nothing");
  // @ts-expect-error The compiler refuses it too.
  expect(() => fieldSchema(ProvisionSandboxRequestSchema, "nothing").type).toThrow("has no field nothing");
  expect(() => maxLengthOf(CreateImageRequestSchema, "enabled")).toThrow("has no max_len");
});
