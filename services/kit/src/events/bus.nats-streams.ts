import { isDeepStrictEqual } from "node:util";
import {
  DiscardPolicy,
  JetStreamApiCodes,
  JetStreamApiError,
  type JetStreamManager,
  type PubAck,
  RetentionPolicy,
  StorageType,
  type StreamConfig,
  type StreamInfo,
} from "@nats-io/jetstream";
import { errors, headers, nanos } from "@nats-io/transport-node";
import type { Logger } from "../base/logging.ts";
import type { NatsLink } from "./bus.nats-connection.ts";
import { deadLetterKeptMs } from "./dead-letters.ts";

/** The stream of the events of all services. */
export const eventStream = "SANDGATE";
/**
 * The stream of dead letters, with the subjects of `deadLetterSubject`. It keeps the name that servers and their
 * permissions know.
 */
export const deadLetterStream = "SANDGATE_PARKED";

/** How long an event is kept for consumers that are added later, which is as long as outboxes can send it again. */
export const eventKeptMs = 7 * 24 * 60 * 60 * 1000;
/** How long the server remembers an event's id, so that a publisher that missed the reply can send the event again. */
const duplicateWindowMs = 2 * 60 * 1000;

export function deadLetterSubject(service: string, consumer: string, eventId: string): string {
  return `sandgate_parked.${service}.${consumer}.${eventId}`;
}

type StreamSettings = Partial<StreamConfig> & { name: string };

function settingsOf(replicas: number): StreamSettings[] {
  const common = {
    storage: StorageType.File,
    retention: RetentionPolicy.Limits,
    discard: DiscardPolicy.Old,
    num_replicas: replicas,
    // Reads by subject are allowed, because permissions can distinguish them.
    allow_direct: true,
  };
  return [
    {
      ...common,
      name: eventStream,
      subjects: ["sandgate.>"],
      max_age: nanos(eventKeptMs),
      duplicate_window: nanos(duplicateWindowMs),
    },
    {
      ...common,
      name: deadLetterStream,
      subjects: ["sandgate_parked.>"],
      max_msgs_per_subject: 1,
      max_age: nanos(deadLetterKeptMs),
    },
  ];
}

/** The streams of the platform. They are created when they are first needed and whenever they are found missing. */
export interface Streams {
  ensure(): Promise<void>;
  /** Returns the stream of events, which is created if it is missing. */
  describe(): Promise<StreamInfo>;
  /** Resolves once the message is stored. Missing streams are created first. */
  store(
    subject: string,
    bytes: Uint8Array,
    o: { stream: string; id: string; headers?: Record<string, string> },
  ): Promise<PubAck>;
}

export function createStreams(options: { link: NatsLink; jsm: JetStreamManager; logger: Logger }): Streams {
  const { link, jsm, logger } = options;
  const js = jsm.jetstream();
  let isKnown = false;
  let making: Promise<void> | undefined;

  const make = async () => {
    // In a cluster the loss of one server must lose nothing.
    const replicas = link.connection.info?.cluster === undefined ? 1 : 3;
    for (const settings of settingsOf(replicas)) await ensureStream(jsm, settings, logger);
    isKnown = true;
  };
  const renew = (): Promise<void> => {
    making ??= make().finally(() => {
      making = undefined;
    });
    return making;
  };
  const ensure = async () => {
    // The client would hold the request until it has reconnected, and the caller would wait.
    if (!link.isUp()) throw new Error("not connected to NATS");
    if (!isKnown) await renew();
  };

  return {
    ensure,
    async describe() {
      await ensure();
      const info = await findStream(jsm, eventStream);
      if (info) return info;
      await renew();
      return jsm.streams.info(eventStream);
    },
    async store(subject, bytes, { stream, id, headers: extra = {} }) {
      await ensure();
      const publish = () => {
        const sent = headers();
        for (const [name, value] of Object.entries(extra)) sent.set(name, value);
        return js.publish(subject, bytes, { msgID: id, headers: sent, expect: { streamName: stream } });
      };
      try {
        return await publish();
      } catch (error) {
        if (!isUnanswered(error)) throw error;
        await renew();
        return await publish();
      }
    },
  };
}

/** Creates the stream, or updates the settings of an existing one. Several processes may do so at once. */
async function ensureStream(jsm: JetStreamManager, settings: StreamSettings, logger: Logger): Promise<void> {
  const found = await findStream(jsm, settings.name);
  if (!found) {
    await jsm.streams.add(settings);
    logger.info({ stream: settings.name, replicas: settings.num_replicas }, "created a stream");
    return;
  }
  const wanted = { ...settings, num_replicas: Math.max(settings.num_replicas ?? 1, found.config.num_replicas) };
  if (isDeepStrictEqual({ ...found.config, ...wanted }, found.config)) return;
  try {
    await jsm.streams.update(settings.name, wanted);
    logger.info({ stream: settings.name }, "updated the settings of a stream");
  } catch (error) {
    // The stream works as it is. A service may create streams, but usually not change them (deploy/nats).
    logger.warn({ err: error, stream: settings.name, wanted }, "the settings of a stream need an operator's update");
  }
}

async function findStream(jsm: JetStreamManager, name: string): Promise<StreamInfo | undefined> {
  try {
    return await jsm.streams.info(name);
  } catch (error) {
    if (error instanceof JetStreamApiError && error.code === JetStreamApiCodes.StreamNotFound) return undefined;
    throw error;
  }
}

/** True if no stream listened on the subject. */
function isUnanswered(error: unknown): boolean {
  const cause = error instanceof Error ? error.cause : undefined;
  return cause instanceof errors.RequestError && cause.isNoResponders();
}
