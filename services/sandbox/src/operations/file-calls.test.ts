import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, createRouterTransport } from "@connectrpc/connect";
import { GetInfoResponseSchema } from "@sandgate/proto/helper/v1/helper";
import { expect, test } from "vitest";
import { filesOf } from "./file-calls.ts";
import { fromHelperError } from "./helper-errors.ts";

test("a helper of an earlier version, which would take no notice of a user, isn't asked for one", () => {
  const transport = createRouterTransport(() => {});
  const helper = (version: number) => ({ transport, info: create(GetInfoResponseSchema, { version }) });
  expect(() => filesOf(helper(1), { sandbox: "a", user: "ada" })).toThrow(
    expect.objectContaining({ reason: "CONFLICT", hint: "Provision a new one." }),
  );
  expect(filesOf(helper(1), { sandbox: "a" })).toHaveProperty("stat");
  expect(filesOf(helper(2), { sandbox: "a", user: "ada" })).toHaveProperty("stat");
});

test("a call that a helper of an earlier version doesn't know is a conflict", () => {
  expect(fromHelperError(new ConnectError("", Code.Unimplemented))).toMatchObject({ reason: "CONFLICT" });
});
