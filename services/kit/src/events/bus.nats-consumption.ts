import { setTimeout as delay } from "node:timers/promises";
import {
  AckPolicy,
  type ConsumerInfo,
  type ConsumerMessages,
  DeliverPolicy,
  JetStreamApiError,
  type JetStreamManager,
  type JsMsg,
  ReplayPolicy,
} from "@nats-io/jetstream";
import { nanos } from "@nats-io/transport-node";
import { backoffMs } from "../base/backoff.ts";
import type { Logger } from "../base/logging.ts";
import type { NatsLink } from "./bus.nats-connection.ts";
import { eventStream, type Streams } from "./bus.nats-streams.ts";
import type { Consumption } from "./bus.ts";
import { type DeliveryPolicy, deliver, type WaitingEvents } from "./delivery.ts";

export interface NatsDeliveryPolicy extends DeliveryPolicy {
  /**
   * An event whose process died is redelivered after this time. A live process reports three times within it that it is
   * working.
   */
  ackWaitMs: number;
}

/**
 * The server deletes a consumer that has been unused for this long, which is longer than events are kept, so none is
 * missed.
 */
const unusedKeptMs = 14 * 24 * 60 * 60 * 1000;
/** Failed events that wait for redelivery count towards this, and must not hold up the others. */
const maxUnacknowledged = 10_000;
/** The server's error code for a consumer that exists with other settings. */
const consumerDiffers = 10148;
/**
 * How long a request for events stays open at the server, and how often the server confirms meanwhile that it is open.
 */
const pullMs = 10_000;
const pullHeartbeatMs = 2_500;
/** The delays after failures of the bus itself. */
const retry = { firstMs: 200, lastMs: 2_000 };

export interface PulledConsumption extends Consumption {
  /** False from a failed request for events until a request succeeds. */
  readonly isReaching: boolean;
  /** Ends a request that the server may have lost. The next request first makes sure that the consumer exists. */
  reset(): void;
}

/**
 * Returns the name of the consumer on the server. There is one for each subject, since two versions with different
 * subjects would keep changing a shared one.
 */
function durableName(consumer: string, subject: string): string {
  const tokens = subject.split(".").map((token) => (token === "*" ? "ANY" : token === ">" ? "ALL" : token));
  return [consumer, ...tokens].join("~");
}

/** Pulls the events of one subject for a consumer, up to `policy.concurrency` at once. */
export function startPulling(options: {
  link: NatsLink;
  jsm: JetStreamManager;
  streams: Streams;
  consumer: string;
  subject: string;
  policy: NatsDeliveryPolicy;
  waiting: WaitingEvents;
  logger: Logger;
  handle(message: JsMsg): Promise<void>;
  /** Stores an event that has failed for good, where operators find it. */
  keepDeadLetter(message: JsMsg, failure: Error, attempts: number): Promise<void>;
}): PulledConsumption {
  const { link, jsm, streams, consumer, subject, policy, handle, keepDeadLetter } = options;
  const name = durableName(consumer, subject);
  const logger = options.logger.child({ consumer, subject });
  const running = new Map<JsMsg, Promise<void>>();
  const stopping = new AbortController();
  const { signal } = stopping;
  let pulled: ConsumerMessages | undefined;
  let failures = 0;
  let isConfigured = false;

  const attemptOnce = async (message: JsMsg): Promise<void> => {
    const attempt = message.info.deliveryCount;
    // The server delivers without limit. After twice the attempts, the processes must have died before they reported an
    // outcome.
    const failure =
      attempt > 2 * policy.attempts
        ? new Error(`delivered ${attempt} times without an outcome`)
        : await deliver(() => handle(message), { ...options, logger, signal });
    if (failure === "handled") return message.ack();
    if (failure === "stopped") return message.nak();
    const isLast = attempt >= policy.attempts;
    logger.warn({ err: failure, attempt, isDeadLetter: isLast }, "handling an event failed");
    if (!isLast) return message.nak(backoffMs(attempt, policy));
    try {
      await keepDeadLetter(message, failure, attempt);
      message.ack();
    } catch (error) {
      logger.error({ err: error }, "failed to store a dead letter; its event will be redelivered");
      message.nak(policy.lastMs);
    }
  };
  const begin = (message: JsMsg) => {
    const work = attemptOnce(message)
      // This fails only if the connection was closed for good. Another process gets the event.
      .catch((error: unknown) => logger.error({ err: error }, "failed to report the outcome of an event"))
      .finally(() => running.delete(message));
    running.set(message, work);
  };
  const heartbeat = setInterval(() => {
    if (link.isUp()) for (const message of running.keys()) message.working();
  }, policy.ackWaitMs / 3);
  heartbeat.unref();

  const settings = {
    durable_name: name,
    filter_subject: subject,
    ack_policy: AckPolicy.Explicit,
    ack_wait: nanos(policy.ackWaitMs),
    // The consumer stores dead letters itself. What the server gave up would stay in the stream unseen.
    max_deliver: -1,
    max_ack_pending: maxUnacknowledged,
    deliver_policy: DeliverPolicy.All,
    replay_policy: ReplayPolicy.Instant,
    inactive_threshold: nanos(unusedKeptMs),
  };
  /**
   * Updates the consumer's settings only once, so that two versions that run side by side don't keep undoing each
   * other's.
   */
  const adoptConsumer = async (): Promise<ConsumerInfo> => {
    if (!isConfigured) {
      try {
        const info = await jsm.consumers.update(eventStream, name, settings);
        logger.info("updated the settings of a consumer");
        return info;
      } catch (error) {
        if (!(error instanceof JetStreamApiError)) throw error;
        logger.warn({ err: error }, "the settings of a consumer can't be updated");
      }
    }
    logger.warn({ wanted: settings }, "using a consumer whose settings differ from this version's");
    return jsm.consumers.info(eventStream, name);
  };
  const ensureConsumer = async () => {
    await streams.ensure();
    const info = await jsm.consumers.add(eventStream, settings).catch((error: unknown) => {
      if (error instanceof JetStreamApiError && error.code === consumerDiffers) return adoptConsumer();
      throw error;
    });
    isConfigured = true;
    return jsm.jetstream().consumers.getConsumerFromInfo(info);
  };
  const pull = async (): Promise<void> => {
    const source = await ensureConsumer();
    let isReset = false;
    while (!signal.aborted && !isReset) {
      const free = policy.concurrency - running.size;
      if (free <= 0) {
        await Promise.race(running.values());
        continue;
      }
      pulled = await source.fetch({ max_messages: free, expires: pullMs, idle_heartbeat: pullHeartbeatMs });
      if (signal.aborted) pulled.close();
      for await (const message of pulled) {
        failures = 0;
        if (signal.aborted) message.nak();
        else begin(message);
      }
      isReset = pulled === undefined;
      failures = 0;
    }
  };
  const pulling = (async () => {
    while (!signal.aborted) {
      try {
        await pull();
      } catch (error) {
        if (signal.aborted) break;
        logger.warn({ err: error }, "a consumer failed to fetch events; will retry");
        failures++;
        await delay(backoffMs(failures, retry), undefined, { signal }).catch(() => undefined);
      }
    }
  })();

  return {
    get isReaching() {
      return failures === 0;
    },
    reset() {
      pulled?.close();
      pulled = undefined;
    },
    async stop() {
      stopping.abort();
      pulled?.close();
      await pulling;
      await Promise.all(running.values());
      clearInterval(heartbeat);
    },
  };
}
