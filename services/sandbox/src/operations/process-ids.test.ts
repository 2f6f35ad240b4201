import { create } from "@bufbuild/protobuf";
import { CommandSchema, StartProcessRequestSchema } from "@sandgate/proto/sandbox/v1/processes";
import { expect, test } from "vitest";
import { createKeyedStart, processIdOf } from "./process-ids.ts";

const user = { id: "u", credential: "session", credentialId: "s", operator: false } as const;
const start = (argv: string[]) =>
  create(StartProcessRequestSchema, { sandbox: "a", command: create(CommandSchema, { argv }) });
const idOf = (idempotencyKey: string | undefined, argv = ["true"], sandboxId = "a", by: string = user.id) =>
  processIdOf({ user: { ...user, id: by }, idempotencyKey }, sandboxId, StartProcessRequestSchema, start(argv));

test("an id follows from the key, the request, the sandbox and the user, and is a UUID", () => {
  expect(idOf("k")).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(idOf("k")).toBe(idOf("k"));
  const others = [idOf("l"), idOf("k", ["false"]), idOf("k", ["true"], "b"), idOf("k", ["true"], "a", "v")];
  expect(new Set([idOf("k"), ...others]).size).toBe(5);
});

test("without a key each is another", () => {
  expect(idOf(undefined)).not.toBe(idOf(undefined));
});

test("a key that was used for another request is refused, and no other", async () => {
  const start = createKeyedStart();
  const used = async () => [idOf(undefined), idOf("l", ["false"]), idOf("k")];
  expect(await start(idOf("k"), used, async () => "started")).toBe("started");
  await expect(start(idOf("k", ["false"]), used, async () => "started")).rejects.toMatchObject({ reason: "CONFLICT" });
});

test("of two requests with one key at once one starts, and a repetition of it joins", async () => {
  const start = createKeyedStart();
  const none = async () => [];
  const begun = Promise.withResolvers<string>();
  const first = start(idOf("k"), none, () => begun.promise);
  const other = start(idOf("k", ["false"]), none, async () => "other");
  const again = start(idOf("k"), none, async () => "again");
  await expect(other).rejects.toMatchObject({ reason: "CONFLICT" });
  expect(await again).toBe("again");
  await expect(start(idOf("k", ["false"]), none, async () => "other")).rejects.toMatchObject({ reason: "CONFLICT" });
  begun.resolve("first");
  expect(await first).toBe("first");
});
