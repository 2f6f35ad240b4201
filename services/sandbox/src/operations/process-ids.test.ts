import { create } from "@bufbuild/protobuf";
import { CommandSchema, StartProcessRequestSchema } from "@sandgate/proto/sandbox/v1/processes";
import { expect, test } from "vitest";
import { processIdOf } from "./process-ids.ts";

const user = { id: "u", credential: "session", credentialId: "s", operator: false } as const;
const start = (argv: string[]) =>
  create(StartProcessRequestSchema, { sandbox: "a", command: create(CommandSchema, { argv }) });
const startOf = (idempotencyKey: string | undefined, argv = ["true"], sandboxId = "a", by: string = user.id) =>
  processIdOf({ user: { ...user, id: by }, idempotencyKey }, sandboxId, StartProcessRequestSchema, start(argv));
const idOf = (...args: Parameters<typeof startOf>) => startOf(...args).id;

test("an id follows from the key, the request, the sandbox and the user, and is a UUID", () => {
  expect(idOf("k")).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(idOf("k")).toBe(idOf("k"));
  const others = [idOf("l"), idOf("k", ["false"]), idOf("k", ["true"], "b"), idOf("k", ["true"], "a", "v")];
  expect(new Set([idOf("k"), ...others]).size).toBe(5);
});

test("the helper's key is the same for every request with a key, and another of another user or sandbox", () => {
  const keyOf = (...args: Parameters<typeof startOf>) => Buffer.from(startOf(...args).key).toString("hex");
  expect(keyOf("k")).toMatch(/^[0-9a-f]{64}$/);
  expect(keyOf("k", ["false"])).toBe(keyOf("k"));
  expect(new Set([keyOf("k"), keyOf("l"), keyOf("k", ["true"], "b"), keyOf("k", ["true"], "a", "v")]).size).toBe(4);
});

test("without a key each is another", () => {
  expect(idOf(undefined)).not.toBe(idOf(undefined));
  expect(startOf(undefined).key).toHaveLength(0);
});
