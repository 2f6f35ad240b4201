import { randomUUID } from "node:crypto";
import type { JetStreamManager } from "@nats-io/jetstream";
import type { Logger } from "../base/logging.ts";
import type { NatsLink } from "./bus.nats-connection.ts";
import { eventKeptMs, eventStream, type Streams } from "./bus.nats-streams.ts";

interface StoredEvent {
  id: string;
  subject: string;
  seq: number;
}

/** Knows the stream of events by its identity, and by an event that it must still have. */
export interface Witness {
  note(event: StoredEvent): void;
  /** After a loss of the connection: throws until it is clear whether the stream went backwards. */
  check(): Promise<void>;
  /** Another one when the stream was made anew or went backwards. */
  identity(): Promise<string>;
}

/** A server that was lost may come back without its last writes, a follower in a cluster for a moment too. */
const doubtMs = 3_000;

/**
 * A server that crashed without `sync_interval: always`, or whose storage was restored from a copy, has the same stream with
 * its end cut off. Then the last event stored before the connection was lost is missing, and the identity changes as it does
 * for a new stream, so that relays publish again. Known to this process alone: the outboxes of others have relays of their own.
 */
export function createWitness(options: {
  link: NatsLink;
  jsm: JetStreamManager;
  streams: Streams;
  logger: Logger;
}): Witness {
  const { link, jsm, streams, logger } = options;
  let created: string | undefined;
  let turn = "";
  let last: (StoredEvent & { at: number }) | undefined;
  let inDoubt: typeof last;
  let missingSince: number | undefined;
  link.onChange((isUp) => {
    if (!isUp) inDoubt ??= last;
  });

  const settle = () => {
    inDoubt = undefined;
    missingSince = undefined;
  };
  const decide = async ({ id, subject, seq, at }: NonNullable<typeof last>): Promise<void> => {
    if (Date.now() - at > eventKeptMs / 2) return settle();
    const found = await jsm.direct.getMessage(eventStream, { last_by_subj: subject });
    if (found && (found.seq === seq ? found.header.get("Nats-Msg-Id") === id : found.seq > seq)) return settle();
    missingSince ??= Date.now();
    if (Date.now() - missingSince < doubtMs) throw new Error("the stream of events may have lost its end");
    logger.warn({ event: id, seq }, "the stream of events went backwards");
    turn = ` ${randomUUID()}`;
    settle();
  };
  const identify = async (): Promise<string> => {
    const info = await streams.describe();
    if (info.created !== created) {
      created = info.created;
      turn = "";
      settle();
    }
    if (inDoubt) await decide(inDoubt);
    return created + turn;
  };
  return {
    note(event) {
      last = { ...event, at: Date.now() };
    },
    async check() {
      if (inDoubt) await identify();
    },
    identity: identify,
  };
}
