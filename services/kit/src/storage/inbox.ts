/** What the inbox looks at; an Event of the bus has it all. */
export interface ReceivedEvent {
  eventId: string;
  /** `sandgate.<service>.<entity>.<event>.v1`: versions count per service, entity and id. */
  subject: string;
  entityId: string;
  entityVersion: bigint | number;
}

/** How long the inbox remembers an event after its last trace: longer than an outbox can publish it again. */
export const inboxKeptMs = 14 * 24 * 60 * 60 * 1000;

/** The kind of entity that a subject speaks of, `<service>.<entity>`: two services may number the same id on their own. */
export function entityKindOf(subject: string): string {
  return subject.split(".").slice(1, 3).join(".");
}
