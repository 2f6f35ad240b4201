import { create, fromBinary } from "@bufbuild/protobuf";
import { type JsMsg, jetstreamManager, type StoredMsg } from "@nats-io/jetstream";
import { type Event, EventSchema } from "@sandgate/proto/common/v1/event";
import type { Logger } from "../base/logging.ts";
import { gauge, type Metrics } from "../base/metrics.ts";
import { type PeriodicTask, startPeriodicTask } from "../base/periodic-task.ts";
import { connectNats, type NatsCredentials } from "./bus.nats-connection.ts";
import { type NatsDeliveryPolicy, type PulledConsumption, startPulling } from "./bus.nats-consumption.ts";
import { createRollbackDetector } from "./bus.nats-rollback-detector.ts";
import { createStreams, deadLetterStream, deadLetterSubject, eventStream } from "./bus.nats-streams.ts";
import type { DeadLetter, EventBus } from "./bus.ts";
import { createDeadLetters } from "./dead-letters.ts";
import { createWaitingEvents, defaultDeliveryPolicy } from "./delivery.ts";

const defaultPolicy: NatsDeliveryPolicy = { ...defaultDeliveryPolicy, ackWaitMs: 15_000 };
const countDeadLettersEveryMs = 60_000;
/** Longer error messages are cut, since they are sent in a header. */
const maxErrorLength = 2_000;
const errorHeader = "Sandgate-Error";
const attemptsHeader = "Sandgate-Attempts";
const subjectHeader = "Sandgate-Subject";
const eventIdHeader = "Sandgate-Event-Id";
const idHeader = "Nats-Msg-Id";

/**
 * Opens the event bus of a distributed platform, with events in a JetStream stream that all services share and signals
 * over core NATS. It waits until the servers answer. Streams and consumers are created when they are needed, and again
 * when they are lost. `service` is in the subjects of what this process publishes, so that permissions can distinguish
 * services. `onEnd` is called when the connection has ended for good, which only a new process can mend.
 */
export async function openNatsBus(options: {
  url: string;
  credentials?: NatsCredentials;
  service: string;
  logger: Logger;
  metrics: Metrics;
  policy?: Partial<NatsDeliveryPolicy>;
  onEnd?: () => void;
}): Promise<EventBus> {
  const { service, logger } = options;
  const policy = { ...defaultPolicy, ...options.policy };
  const link = await connectNats(options);
  const { connection } = link;
  const jsm = await jetstreamManager(connection, { checkAPI: false });
  const streams = createStreams({ link, jsm, logger });
  const rollbackDetector = createRollbackDetector({ link, jsm, streams, logger });
  const deadLetterCount = gauge(options.metrics, {
    name: "sandgate_bus_dead_letters",
    help: "Events that a consumer has failed to handle for good",
    labelNames: ["consumer"],
  });
  const waiting = createWaitingEvents(options.metrics);
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

  /** Returns the sorted ids of this service's dead letters. */
  const listDeadLetters = async (): Promise<string[]> => {
    await streams.ensure();
    const info = await jsm.streams.info(deadLetterStream, { subjects_filter: deadLetterSubject(service, "*", "*") });
    return Object.keys(info.state.subjects ?? {})
      .map(deadLetterIdOf)
      .toSorted();
  };
  const findDeadLetter = async (id: string): Promise<StoredMsg | undefined> => {
    const [, consumer, eventId] = /^([\w-]+)\.([\w-]+)$/.exec(id) ?? [];
    if (!consumer || !eventId) return undefined;
    await streams.ensure();
    const subject = deadLetterSubject(service, consumer, eventId);
    return (await jsm.direct.getMessage(deadLetterStream, { last_by_subj: subject })) ?? undefined;
  };
  const countDeadLetters = async (): Promise<void> => {
    if (!link.isUp()) return;
    const counts = new Map<string, number>();
    for (const id of await listDeadLetters()) {
      const [consumer = ""] = id.split(".");
      counts.set(consumer, (counts.get(consumer) ?? 0) + 1);
    }
    deadLetterCount.reset();
    for (const [consumer, count] of counts) deadLetterCount.set({ consumer }, count);
  };
  /** Counts now. If that fails, the periodic task counts again. */
  const recount = () =>
    countDeadLetters().catch((error: unknown) => logger.debug({ err: error }, "failed to count dead letters"));
  const handlers = new Map<string, (event: Event) => Promise<void>>();
  const deadLetters = createDeadLetters({
    policy,
    handlers,
    store: {
      async list({ limit, afterId = "" }) {
        const ids = (await listDeadLetters()).filter((id) => id > afterId).slice(0, limit);
        const found = await Promise.all(ids.map(findDeadLetter));
        return found.filter((message) => message !== undefined).map(toDeadLetter);
      },
      async find(id) {
        const message = await findDeadLetter(id);
        if (!message) return undefined;
        const { header, data } = message;
        const readEvent = () => readEventAs(header.get(subjectHeader), header.get(eventIdHeader), data);
        return { letter: toDeadLetter(message), readEvent };
      },
      async remove(id) {
        const message = await findDeadLetter(id);
        if (!message) return false;
        try {
          await jsm.streams.deleteMessage(deadLetterStream, message.seq);
        } catch (error) {
          // Another operator may have removed it meanwhile.
          if (await findDeadLetter(id)) throw error;
          return false;
        }
        await recount();
        return true;
      },
    },
  });

  return {
    async publish(events) {
      await rollbackDetector.check();
      const outcomes = await Promise.allSettled(
        events.map(async ({ id, subject, bytes }) => {
          const { seq } = await streams.store(subject, bytes, { stream: eventStream, id });
          rollbackDetector.recordStored({ id, subject, seq });
        }),
      );
      const failed = outcomes.find((outcome) => outcome.status === "rejected");
      if (failed) throw new Error(`NATS did not store an event: ${failed.reason}`, { cause: failed.reason });
    },

    async consume({ consumer, subjects, concurrency = policy.concurrency, handle }) {
      counting ??= startPeriodicTask({
        what: "count dead letters",
        everyMs: countDeadLettersEveryMs,
        logger,
        work: countDeadLetters,
      });
      const ofSubject = Math.max(1, Math.floor(concurrency / subjects.length));
      const own = subjects.map((subject) =>
        startPulling({
          link,
          jsm,
          streams,
          consumer,
          subject,
          policy: { ...policy, concurrency: ofSubject },
          waiting,
          logger,
          handle: async (message) => handle(eventOf(message)),
          async keepDeadLetter(message, failure, attempts) {
            const given = message.headers?.get(idHeader) ?? "";
            // A sender's id may have characters that a subject can't have.
            const id = /^[\w-]+$/.test(given) ? given : `${message.seq}`;
            const headers = {
              [errorHeader]: JSON.stringify(failure.message.slice(0, maxErrorLength)),
              [attemptsHeader]: `${attempts}`,
              [subjectHeader]: message.subject,
              [eventIdHeader]: given,
            };
            await streams.store(deadLetterSubject(service, consumer, id), message.data, {
              stream: deadLetterStream,
              id: `${consumer} ${id}`,
              headers,
            });
            await recount();
          },
        }),
      );
      for (const pull of own) pulls.add(pull);
      handlers.set(consumer, handle);
      return {
        async stop() {
          for (const pull of own) pulls.delete(pull);
          if (handlers.get(consumer) === handle) handlers.delete(consumer);
          await Promise.all(own.map((pull) => pull.stop()));
          // Acknowledged events must not be redelivered to the next consumption. Without a connection they are.
          if (link.isUp()) await connection.flush().catch(() => undefined);
        },
      };
    },

    signal(topic, body = "") {
      // After a reconnect a signal would come too late to be of use.
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

    deadLetters,

    consumers: () => waiting.state(),

    identity: () => rollbackDetector.identity(),

    async close() {
      await counting?.stop();
      await Promise.all([...pulls].map((pull) => pull.stop()));
      pulls.clear();
      await link.close();
    },
  };
}

/** Returns a subject that is none of events, so that no stream keeps signals. */
function signalSubject(topic: string): string {
  return `sandgate_signal.${topic}`;
}

function eventOf({ subject, headers, data }: JsMsg): Event {
  return readEventAs(subject, headers?.get(idHeader) ?? "", data);
}

/**
 * Reads an event. Throws unless its subject, and its id if one was given, are those under which it was published.
 * Permissions bind a sender to its subjects, but not to what it writes into an event.
 */
function readEventAs(subject: string, id: string, data: Uint8Array): Event {
  const event = fromBinary(EventSchema, data);
  if (event.subject !== subject) throw new Error(`an event of ${event.subject} was published on ${subject}`);
  if (id && id !== event.eventId) throw new Error(`the event ${event.eventId} was published as ${id}`);
  return event;
}

function toDeadLetter({ subject, data, header, time }: StoredMsg): DeadLetter {
  const id = deadLetterIdOf(subject);
  const [consumer = "", eventId = ""] = id.split(".");
  return {
    id,
    consumer,
    event: tryDecode(data) ?? create(EventSchema, { eventId, subject: header.get(subjectHeader) }),
    attempts: Number(header.get(attemptsHeader)),
    error: String(JSON.parse(header.get(errorHeader))),
    failedAt: time,
  };
}

function deadLetterIdOf(subject: string): string {
  return subject.split(".").slice(2).join(".");
}

/** Returns undefined for bytes that are no event, which is why they became a dead letter. */
function tryDecode(bytes: Uint8Array): Event | undefined {
  try {
    return fromBinary(EventSchema, bytes);
  } catch {
    return undefined;
  }
}
