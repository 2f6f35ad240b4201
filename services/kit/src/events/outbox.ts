import { create, type DescMessage, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { anyPack, timestampNow } from "@bufbuild/protobuf/wkt";
import { type Event, EventSchema } from "@sandgate/proto/common/v1/event";
import { newId } from "../base/ids.ts";
import { toCredential, toCredentialKind } from "../rpc/access.ts";
import type { Call, UserCaller } from "../rpc/context.ts";
import type { StagedEvent } from "../storage/outbox-store.ts";

export type { OutboxStore, StagedEvent } from "../storage/outbox-store.ts";

/** What an event says about the call that caused it. */
export type EventCause = Pick<Call, "requestId" | "traceparent" | "clientAddress"> & {
  user?: Pick<UserCaller, "id" | "credential" | "credentialId"> | undefined;
};

/** Returns the cause of an event, for the events that its handler causes. */
export function causeOf({ requestId, traceparent, clientAddress, actor }: Event): EventCause {
  const credential = actor && toCredentialKind(actor.credential);
  return {
    requestId,
    ...(traceparent && { traceparent }),
    ...(clientAddress && { clientAddress }),
    ...(actor && credential && { user: { id: actor.userId, credential, credentialId: actor.credentialId } }),
  };
}

/**
 * Creates the event of a change. `entityVersion` is the entity's version after it; `call` says who caused it. The `id` is
 * a new one unless set.
 */
export function stageEvent<T extends DescMessage>(options: {
  id?: string | undefined;
  subject: string;
  entityId: string;
  entityVersion: number;
  workspaceId?: string | undefined;
  call?: EventCause | undefined;
  schema: T;
  payload: MessageInitShape<T>;
}): StagedEvent {
  const { id = newId(), call, subject, schema } = options;
  const user = call?.user;
  const event = create(EventSchema, {
    eventId: id,
    subject,
    entityId: options.entityId,
    entityVersion: BigInt(options.entityVersion),
    workspaceId: options.workspaceId ?? "",
    requestId: call?.requestId ?? "",
    traceparent: call?.traceparent ?? "",
    clientAddress: call?.clientAddress ?? "",
    occurredAt: timestampNow(),
    payload: anyPack(schema, create(schema, options.payload)),
  });
  if (user) {
    event.actor = {
      $typeName: "sandgate.common.v1.Actor",
      userId: user.id,
      credential: toCredential(user.credential),
      credentialId: user.credentialId,
    };
  }
  return { id, subject, bytes: toBinary(EventSchema, event) };
}
