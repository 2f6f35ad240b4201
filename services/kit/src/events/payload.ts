import type { DescMessage, MessageShape } from "@bufbuild/protobuf";
import { anyUnpack, timestampDate } from "@bufbuild/protobuf/wkt";
import type { Event } from "@sandgate/proto/common/v1/event";

/** What an event tells. Throws for one that tells something else. */
export function payloadOf<T extends DescMessage>(event: Event, schema: T): MessageShape<T> {
  const payload = event.payload && anyUnpack(event.payload, schema);
  if (!payload) throw new Error(`event ${event.eventId} isn't a ${schema.name}`);
  return payload;
}

/** When it happened. Throws for an event that doesn't say so. */
export function timeOf({ eventId, occurredAt }: Event): Date {
  if (!occurredAt) throw new Error(`event ${eventId} has no time`);
  return timestampDate(occurredAt);
}
