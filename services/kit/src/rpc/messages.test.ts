import { isFieldSet } from "@bufbuild/protobuf";
import { VerifyApiTokenResponseSchema } from "@sandgate/proto/identity/v1/identity";
import { expect, test } from "vitest";
import { createMessage, toTimestamp } from "./messages.ts";

const fields = { tokenId: "t", userId: "u", operator: false, workspaceId: "" };

test("undefined leaves a field unset", () => {
  const { expiresAt } = VerifyApiTokenResponseSchema.field;
  const lasting = createMessage(VerifyApiTokenResponseSchema, { ...fields, expiresAt: toTimestamp(undefined) });
  expect(isFieldSet(lasting, expiresAt)).toBe(false);
  const ending = createMessage(VerifyApiTokenResponseSchema, { ...fields, expiresAt: toTimestamp(new Date(0)) });
  expect(isFieldSet(ending, expiresAt)).toBe(true);
});

test("a field that is forgotten doesn't compile", () => {
  // @ts-expect-error expiresAt is missing
  createMessage(VerifyApiTokenResponseSchema, fields);
});
