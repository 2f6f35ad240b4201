import { fromBinary } from "@bufbuild/protobuf";
import { anyUnpack, timestampDate } from "@bufbuild/protobuf/wkt";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { Call } from "@sandgate/kit/rpc/context";
import { EventSchema } from "@sandgate/proto/common/v1/event";
import { SandboxExtendedSchema } from "@sandgate/proto/sandbox/v1/sandbox_events";
import { expect, test } from "vitest";
import { acceptSandbox, type Sandbox } from "../domain/sandbox.ts";
import { createLoopbackBus } from "../reconcile/scripted-runtime.fixture.ts";
import type { SandboxStore } from "../store/store.ts";
import { createChanges } from "./changes.ts";
import { extendSandbox } from "./extend-sandbox.ts";

const call = { requestId: "r", user: { id: "ann", credential: "api_token", credentialId: "t1" } } as Call;
const image = { imageId: "i1", reference: "registry.example/app:1", registryId: "", isDefault: false, memoryMb: 256 };

test("whoever moves a sandbox's end is told of in the transaction that moves it, and nobody who leaves it", async () => {
  const request = { id: "s", name: "n", workspaceId: "w", image, labels: {}, createdBy: "u", now: new Date() };
  let sandbox: Sandbox = { ...acceptSandbox(request), state: "ready", expiresAt: new Date(Date.now() + 600_000) };
  const staged: StagedEvent[] = [];
  const sandboxes = {
    async update(changed: Sandbox, events: readonly StagedEvent[]) {
      sandbox = changed;
      staged.push(...events);
      return true;
    },
  } as SandboxStore["sandboxes"];
  const context = { store: { sandboxes }, changes: createChanges(createLoopbackBus()) };
  const extend = (ttlSeconds: number, shorten: boolean) =>
    extendSandbox(context, { call, find: async () => sandbox, ttlSeconds, shorten });
  const ends: (Date | undefined)[] = [];
  ends.push((await extend(900, false)).expiresAt);
  await extend(60, false);
  ends.push((await extend(60, true)).expiresAt);

  const events = staged.map(({ bytes }) => fromBinary(EventSchema, bytes));
  expect(events).toMatchObject(
    [2n, 3n].map((entityVersion) => ({
      subject: "sandgate.sandbox.sandbox.extended.v1",
      entityId: "s",
      entityVersion,
      workspaceId: "w",
      requestId: "r",
      actor: { userId: "ann", credentialId: "t1" },
    })),
  );
  const told = events.map(({ payload }) => payload && anyUnpack(payload, SandboxExtendedSchema)?.expiresAt);
  expect(told.map((expiresAt) => expiresAt && timestampDate(expiresAt))).toEqual(ends);
});
