import { create, fromBinary } from "@bufbuild/protobuf";
import { type JsMsg, jetstreamManager, type StoredMsg } from "@nats-io/jetstream";
import { type Event, EventSchema } from "@sandgate/proto/common/v1/event";
import type { Logger } from "../base/logging.ts";
import { gauge, type Metrics } from "../base/metrics.ts";
import { type PeriodicTask, startPeriodicTask } from "../base/periodic-task.ts";
import { connectNats, type NatsCredentials } from "./bus.nats-connection.ts";
import { type NatsDeliveryPolicy, type PulledConsumption, startPulling } from "./bus.nats-consumption.ts";
import { createWitness } from "./bus.nats-rollback-detector.ts";
import { createStreams, eventStream, parkedStream, parkedSubject } from "./bus.nats-streams.ts";
import type { DeadLetter, EventBus } from "./bus.ts";
import { defaultDeliveryPolicy } from "./delivery.ts";

const defaultPolicy: NatsDeliveryPolicy = { ...defaultDeliveryPolicy, ackWaitMs: 15_000 };
const countParkedEveryMs = 60_000;
/** Longer texts of errors are cut: they travel in a header. */
const maxErrorLength = 2_000;
const errorNote = "Sandgate-Error";
const attemptsNote = "Sandgate-Attempts";
const subjectNote = "Sandgate-Subject";
const idHeader = "Nats-Msg-Id";

/**
 * Opens the event bus of a distributed platform: events in a JetStream stream that all services share, signals over core NATS.
 * Waits for the servers to answer. Streams and consumers are made when they are needed, and again when they were lost.
 * `service` stands in the subjects of what this process publishes, so permissions can tell services apart.
 */
export async function openNatsBus(options: {
  url: string;
  credentials?: NatsCredentials;
  service: string;
  logger: Logger;
  metrics: Metrics;
  policy?: Partial<NatsDeliveryPolicy>;
}): Promise<EventBus> {
  const { service, logger } = options;
  const policy = { ...defaultPolicy, ...options.policy };
  const link = await connectNats(options);
  const { connection } = link;
  const jsm = await jetstreamManager(connection, { checkAPI: false });
  const streams = createStreams({ link, jsm, logger });
  const witness = createWitness({ link, jsm, streams, logger });
  const parkedEvents = gauge(options.metrics, {
    name: "sandgate_bus_parked_events",
    help: "Events that a consumer failed to handle for good",
    labelNames: ["consumer"],
  });
  const pulls = new Set<PulledConsumption>();
  gauge(options.metrics, {
    name: "sandgate_bus_unreached_consumers",
    help: "Consumers that this process can't get events for",
    collect() {
      this.set([...pulls].filter((pull) => !pull.isReaching).length);
    },
  });
  let counting: PeriodicTask | undefined;
  link.onChange((isUp) => {
    if (isUp) for (const pull of pulls) pull.reset();
  });

  const listParked = async (): Promise<string[]> => {
    await streams.ensure();
    const info = await jsm.streams.info(parkedStream, { subjects_filter: parkedSubject(service, "*", "*") });
    return Object.keys(info.state.subjects ?? {});
  };
  const countParked = async (): Promise<void> => {
    if (!link.isUp()) return;
    const counts = new Map<string, number>();
    for (const subject of await listParked()) {
      const [, , consumer = ""] = subject.split(".");
      counts.set(consumer, (counts.get(consumer) ?? 0) + 1);
    }
    parkedEvents.reset();
    for (const [consumer, count] of counts) parkedEvents.set({ consumer }, count);
  };

  return {
    async publish(events) {
      await witness.check();
      const outcomes = await Promise.allSettled(
        events.map(async ({ id, subject, bytes }) => {
          const { seq } = await streams.store(subject, bytes, { stream: eventStream, id });
          witness.note({ id, subject, seq });
        }),
      );
      const failed = outcomes.find((outcome) => outcome.status === "rejected");
      if (failed) throw new Error(`NATS did not store an event: ${failed.reason}`, { cause: failed.reason });
    },

    async consume({ consumer, subjects, handle }) {
      counting ??= startPeriodicTask({
        what: "count parked events",
        everyMs: countParkedEveryMs,
        logger,
        work: countParked,
      });
      const concurrency = Math.max(1, Math.floor(policy.concurrency / subjects.length));
      const own = subjects.map((subject) =>
        startPulling({
          link,
          jsm,
          streams,
          consumer,
          subject,
          policy: { ...policy, concurrency },
          logger,
          handle: async (message) => handle(eventOf(message)),
          async park(message, failure, attempts) {
            const given = message.headers?.get(idHeader) ?? "";
            // A sender's id may have what can't stand in a subject.
            const id = /^[\w-]+$/.test(given) ? given : `${message.seq}`;
            const notes = {
              [errorNote]: JSON.stringify(failure.message.slice(0, maxErrorLength)),
              [attemptsNote]: `${attempts}`,
              [subjectNote]: message.subject,
            };
            await streams.store(parkedSubject(service, consumer, id), message.data, {
              stream: parkedStream,
              id: `${consumer} ${id}`,
              notes,
            });
            await countParked();
          },
        }),
      );
      for (const pull of own) pulls.add(pull);
      return {
        async stop() {
          for (const pull of own) pulls.delete(pull);
          await Promise.all(own.map((pull) => pull.stop()));
          // What was acknowledged must not come again to whoever consumes next.
          if (link.isUp()) await connection.flush();
        },
      };
    },

    signal(topic, body = "") {
      // Signals of the past would only wake sleepers that have looked since.
      if (link.isUp()) connection.publish(signalSubject(topic), body);
    },

    watch(topic, listener) {
      const subscription = connection.subscribe(signalSubject(topic), {
        callback: (error, message) => {
          try {
            if (error) throw error;
            listener(message.string());
          } catch (err) {
            logger.error({ err, topic }, "a watcher failed");
          }
        },
      });
      return () => subscription.unsubscribe();
    },

    async parked() {
      const parked: DeadLetter[] = [];
      for (const subject of await listParked()) {
        const message = await jsm.direct.getMessage(parkedStream, { last_by_subj: subject });
        if (message) parked.push(parkedEventOf(message));
      }
      return parked.toSorted((a, b) => a.parkedAt.getTime() - b.parkedAt.getTime());
    },

    identity: () => witness.identity(),

    async close() {
      await counting?.stop();
      await Promise.all([...pulls].map((pull) => pull.stop()));
      pulls.clear();
      await link.close();
    },
  };
}

/** Apart from the subjects of events, so that no stream keeps signals. */
function signalSubject(topic: string): string {
  return `sandgate_signal.${topic}`;
}

/** Throws unless it is the event it was published as: permissions bind a sender to its subjects, not to what it writes in an event. */
function eventOf({ subject, headers, data }: JsMsg): Event {
  const event = fromBinary(EventSchema, data);
  if (event.subject !== subject) throw new Error(`an event of ${event.subject} was published on ${subject}`);
  const id = headers?.get(idHeader);
  if (id && id !== event.eventId) throw new Error(`the event ${event.eventId} was published as ${id}`);
  return event;
}

function parkedEventOf({ subject, data, header, time }: StoredMsg): DeadLetter {
  const [, , consumer = "", eventId = ""] = subject.split(".");
  return {
    consumer,
    event: tryDecode(data) ?? create(EventSchema, { eventId, subject: header.get(subjectNote) }),
    attempts: Number(header.get(attemptsNote)),
    error: String(JSON.parse(header.get(errorNote))),
    parkedAt: time,
  };
}

/** What is no event was parked for that. */
function tryDecode(bytes: Uint8Array): Event | undefined {
  try {
    return fromBinary(EventSchema, bytes);
  } catch {
    return undefined;
  }
}
