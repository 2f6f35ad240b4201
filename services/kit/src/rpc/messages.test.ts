import { isFieldSet } from "@bufbuild/protobuf";
import { timestampFromMs } from "@bufbuild/protobuf/wkt";
import { Role } from "@sandgate/proto/common/v1/access";
import { ListApiTokensResponseSchema, VerifyApiTokenResponseSchema } from "@sandgate/proto/identity/v1/identity";
import { TimelineEntrySchema } from "@sandgate/proto/sandbox/v1/sandbox";
import { expect, test } from "vitest";
import { createMessage } from "./messages.ts";

const fields = { tokenId: "t", userId: "u", operator: false, role: Role.MEMBER, permissions: [], workspaceId: "" };

test("undefined leaves a field unset", () => {
  const { expiresAt } = VerifyApiTokenResponseSchema.field;
  const lasting = createMessage(VerifyApiTokenResponseSchema, { ...fields, expiresAt: undefined });
  expect(isFieldSet(lasting, expiresAt)).toBe(false);
  const ending = createMessage(VerifyApiTokenResponseSchema, { ...fields, expiresAt: new Date(0) });
  expect(isFieldSet(ending, expiresAt)).toBe(true);
});

test("a field that is forgotten doesn't compile", () => {
  // @ts-expect-error expiresAt is missing
  createMessage(VerifyApiTokenResponseSchema, fields);
  const { operator: _, ...withoutOperator } = fields;
  // @ts-expect-error operator is missing
  createMessage(VerifyApiTokenResponseSchema, { ...withoutOperator, expiresAt: undefined });
});

test("a field of another type doesn't compile", () => {
  // @ts-expect-error only what can be unset may be undefined
  createMessage(VerifyApiTokenResponseSchema, { ...fields, expiresAt: undefined, operator: undefined });
  // @ts-expect-error a time is a Date
  expect(() => createMessage(VerifyApiTokenResponseSchema, { ...fields, expiresAt: "now" })).not.toThrow();
});

test("takes the fields of a record, with its optional ones, and leaves out the rest", () => {
  const record: { phase: string; at?: Date; secret: string } = { phase: "ready", at: new Date(1_500), secret: "s" };
  expect(createMessage(TimelineEntrySchema, record)).toEqual({
    $typeName: "sandgate.sandbox.v1.TimelineEntry",
    phase: "ready",
    at: timestampFromMs(1_500),
  });
});

test("makes empty strings of undefined, and messages of the records in a list", () => {
  const token = {
    id: "t",
    role: Role.MEMBER,
    permissions: [],
    description: "d",
    tokenHint: "h",
    createdAt: new Date(1_500),
    lastUsedAt: undefined,
  };
  const { apiTokens, nextCursor } = createMessage(ListApiTokensResponseSchema, {
    apiTokens: [{ ...token, workspaceId: undefined, expiresAt: undefined }],
    nextCursor: undefined,
  });
  expect(apiTokens.map(({ workspaceId, createdAt }) => ({ workspaceId, createdAt }))).toEqual([
    { workspaceId: "", createdAt: timestampFromMs(1_500) },
  ]);
  expect(nextCursor).toBe("");
  // @ts-expect-error the token has no workspaceId
  createMessage(ListApiTokensResponseSchema, { apiTokens: [{ ...token, expiresAt: undefined }], nextCursor: "" });
});
