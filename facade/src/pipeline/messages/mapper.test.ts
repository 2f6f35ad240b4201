import { create } from "@bufbuild/protobuf";
import { ImageSchema } from "@sandgate/proto/imageregistry/v1/image_registry";
import { SandboxSchema, SandboxState } from "@sandgate/proto/sandbox/v1/sandbox";
import { Type } from "typebox";
import { expect, test } from "vitest";
import { Moment, NullableInteger, NullableMoment, NullableText, TextByName } from "../validation/common-schemas.ts";
import { createMapper } from "./mapper.ts";

const at = { seconds: 1_780_000_000n, nanos: 123_456_000 };
const time = "2026-05-28T20:26:40.123Z";

test("takes each property from the field of its name, in the schema's order", () => {
  const toRecord = createMapper(
    SandboxSchema,
    Type.Object({
      workspace_id: Type.String(),
      id: Type.String(),
      memory_mb: Type.Integer(),
      labels: TextByName,
      created_at: Moment,
      timeline: Type.Array(Type.Object({ at: Moment, phase: Type.String() })),
    }),
    {},
  );
  const record = toRecord(
    create(SandboxSchema, {
      id: "s",
      workspaceId: "w",
      labels: { a: "" },
      createdAt: at,
      timeline: [{ phase: "accepted", at }],
    }),
  );
  expect(JSON.stringify(record)).toBe(
    JSON.stringify({
      workspace_id: "w",
      id: "s",
      memory_mb: 0,
      labels: { a: "" },
      created_at: time,
      timeline: [{ at: time, phase: "accepted" }],
    }),
  );
});

test("makes null of what is unset, where the schema allows it", () => {
  const toRecord = createMapper(
    SandboxSchema,
    Type.Object({
      message: NullableText,
      exit_code: NullableInteger,
      ready_at: NullableMoment,
      name: Type.String(),
    }),
    {},
  );
  expect(toRecord(create(SandboxSchema))).toEqual({ message: null, exit_code: null, ready_at: null, name: "" });
  expect(toRecord(create(SandboxSchema, { message: "m", exitCode: 0, readyAt: at }))).toMatchObject({
    message: "m",
    exit_code: 0,
    ready_at: time,
  });
});

test("keeps an empty string of a field that can be unset", () => {
  const toRecord = createMapper(ImageSchema, Type.Object({ description: NullableText }), {});
  expect(toRecord(create(ImageSchema))).toEqual({ description: null });
  expect(toRecord(create(ImageSchema, { description: "" }))).toEqual({ description: "" });
});

test("throws for a message that is unset where the schema asks for one", () => {
  const toRecord = createMapper(SandboxSchema, Type.Object({ created_at: Moment }), {});
  expect(() => toRecord(create(SandboxSchema))).toThrow("did not set a field");
});

test("makes what differs by its override, also where the field would fit", () => {
  const toRecord = createMapper(SandboxSchema, Type.Object({ ready: Type.Boolean(), name: Type.String() }), {
    ready: ({ state }) => state === SandboxState.READY,
    name: ({ name }) => name.toUpperCase(),
  });
  const record = toRecord(create(SandboxSchema, { name: "box", state: SandboxState.READY }));
  expect(record).toEqual({ ready: true, name: "BOX" });
});

test("what no field fits doesn't compile without an override", () => {
  // @ts-expect-error a sandbox has no colour
  expect(() => createMapper(SandboxSchema, Type.Object({ colour: Type.String() }), {})).toThrow("no field colour");
  // @ts-expect-error state is a number
  createMapper(SandboxSchema, Type.Object({ state: Type.String() }), {});
  // @ts-expect-error exit_code may be unset
  createMapper(SandboxSchema, Type.Object({ exit_code: Type.Integer() }), {});
  // @ts-expect-error created_at is a time
  createMapper(SandboxSchema, Type.Object({ created_at: Type.Integer() }), {});
  const entries = Type.Array(Type.Object({ text: Type.String() }));
  // @ts-expect-error an entry of the timeline has no text
  expect(() => createMapper(SandboxSchema, Type.Object({ timeline: entries }), {})).toThrow("no field text");
  // @ts-expect-error an override has to make what the schema says
  createMapper(SandboxSchema, Type.Object({ name: Type.String() }), { name: ({ memoryMb }) => memoryMb });
});
