import { CreateImageRequestSchema, UpdateImageRequestSchema } from "@sandgate/proto/imageregistry/v1/image_registry";
import { Type } from "typebox";
import { expect, test } from "vitest";
import { createRequestMapper, nullsOf } from "./request-mapper.ts";

const Body = Type.Object({
  name: Type.String(),
  ttl_seconds: Type.Optional(Type.Union([Type.Integer(), Type.Null()])),
  memory_mb: Type.Optional(Type.Integer()),
});

test("a request has the fields of a body's properties, without what is missing, null or unknown", () => {
  const toRequest = createRequestMapper(CreateImageRequestSchema, Body);
  expect(toRequest({ name: "app", memory_mb: 512 })).toEqual({ name: "app", memoryMb: 512 });
  const more = { name: "app", ttl_seconds: null, is_default: true, image_id: "other" };
  expect(toRequest(more)).toEqual({ name: "app" });
});

test("only properties of the schema are unset by null", () => {
  const body = { name: "app", ttl_seconds: null, description: null };
  expect(nullsOf(Body, body)).toEqual(["ttl_seconds"]);
});

test("a property for which the request has no field is refused", () => {
  const Strange = Type.Object({ colour: Type.String() });
  // @ts-expect-error The compiler refuses it too.
  expect(() => createRequestMapper(UpdateImageRequestSchema, Strange)).toThrow("has no field colour");
});
