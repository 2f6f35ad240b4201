import { create, type DescMessage, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { anyPack, timestampNow } from "@bufbuild/protobuf/wkt";
import { Credential } from "@sandgate/proto/common/v1/access";
import { EventSchema } from "@sandgate/proto/common/v1/event";
import type { Call } from "./context.ts";
import { newId } from "./ids.ts";

/** An event on its way: stored with the change that causes it, published after the commit. */
export interface StagedEvent {
  id: string;
  subject: string;
  /** A sandgate.common.v1.Event. */
  bytes: Uint8Array;
}

export interface OutboxBacklog {
  unsent: number;
  oldestStagedAt: Date | undefined;
}

/** Where the events of a service wait for the bus, in its own database. */
export interface OutboxStore {
  /** The database's name, for metrics. */
  readonly name: string;
  /** Unsent events, the oldest first. */
  unsent(limit: number): Promise<StagedEvent[]>;
  /** Notes that the bus of this identity has them. */
  markSent(ids: readonly string[], bus: string): Promise<void>;
  /** Makes up to `limit` kept events that another bus got unsent again, and answers how many. */
  resend(bus: string, limit: number): Promise<number>;
  backlog(): Promise<OutboxBacklog>;
  /** Forgets up to `limit` events sent more than 7 days ago, and answers how many. */
  sweep(limit: number): Promise<number>;
  /** Takes or renews the right to publish; false while another replica has it. */
  lead(holder: string, ttlMs: number): Promise<boolean>;
  resign(holder: string): Promise<void>;
  /** Calls the listener after each commit of this process that staged events; the answer ends that. */
  onStaged(listener: () => void): () => void;
}

/** How long a sent event is kept, to be published again on a bus that was made anew. */
export const sentKeptMs = 7 * 24 * 60 * 60 * 1000;

/** Makes the event of a change. `entityVersion` is the entity's version after it; `call` names who caused it. */
export function stageEvent<T extends DescMessage>(options: {
  subject: string;
  entityId: string;
  entityVersion: number;
  workspaceId?: string | undefined;
  call?: Call | undefined;
  schema: T;
  payload: MessageInitShape<T>;
}): StagedEvent {
  const { call, subject, schema } = options;
  const id = newId();
  const user = call?.user;
  const event = create(EventSchema, {
    eventId: id,
    subject,
    entityId: options.entityId,
    entityVersion: BigInt(options.entityVersion),
    workspaceId: options.workspaceId ?? "",
    requestId: call?.requestId ?? "",
    traceparent: call?.traceparent ?? "",
    occurredAt: timestampNow(),
    payload: anyPack(schema, create(schema, options.payload)),
  });
  if (user) {
    event.actor = {
      $typeName: "sandgate.common.v1.Actor",
      userId: user.id,
      credential: user.credential === "session" ? Credential.SESSION : Credential.API_TOKEN,
      credentialId: user.credentialId,
    };
  }
  return { id, subject, bytes: toBinary(EventSchema, event) };
}
