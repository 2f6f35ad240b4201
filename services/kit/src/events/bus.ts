import type { Event } from "@sandgate/proto/common/v1/event";
import type { StagedEvent } from "../storage/outbox-store.ts";

/**
 * An event that a consumer failed to handle so often that the bus gave it up. It is kept for 90 days, unless an
 * operator replays or drops it before.
 */
export interface DeadLetter {
  /** `<consumer>.<event id>` */
  id: string;
  consumer: string;
  /** The event; only its id and subject if the message wasn't a valid event. */
  event: Event;
  attempts: number;
  /** The message of the last failure. */
  error: string;
  /** When the bus gave up. */
  failedAt: Date;
}

/** The dead letters of the consumers in this process, for its operators. */
export interface DeadLetters {
  /** Lists dead letters by id: those of one consumer together, the oldest event first. */
  list(page: { limit: number; afterId?: string | undefined }): Promise<DeadLetter[]>;
  /** Returns undefined if there is none with this id. */
  get(id: string): Promise<DeadLetter | undefined>;
  /**
   * Hands the event to the consumer that failed, and to no other, and removes the dead letter once it is handled.
   * Returns false if there is none with this id. Throws and keeps the dead letter if the handler fails again or isn't
   * in this process.
   */
  replay(id: string): Promise<boolean>;
  /** Removes a dead letter without a replay. Returns false if there is none with this id. */
  drop(id: string): Promise<boolean>;
}

/** The consumption of events by a handler, until it is stopped. */
export interface Consumption {
  /** Takes no more events and waits for running handlers. */
  stop(): Promise<void>;
}

/** Carries events between services. */
export interface EventBus {
  /** Resolves once all events are stored durably. An event whose id the bus has is not stored again. */
  publish(events: readonly StagedEvent[]): Promise<void>;
  /**
   * Hands every event on the subjects to `handle` at least once, in no particular order. Subjects are NATS patterns:
   * `*` stands for one token, a final `>` for all that follow. A new consumer starts with what the bus keeps. Consumers
   * with the same name on several replicas share the work. A handler that throws gets the event again after a growing
   * delay; after the last attempt the event becomes a dead letter. One that throws because something it depends on is
   * away (`isDependencyAway`) gets the event again for as long as that lasts.
   */
  consume(options: {
    consumer: string;
    subjects: readonly string[];
    /** How many events are handled at once in this process. 8 unless set; more where their writes commit together. */
    concurrency?: number;
    handle(event: Event): Promise<void>;
  }): Promise<Consumption>;
  /** Wakes the watchers of a topic in every process. A signal may be lost, so nothing may depend on its arrival. */
  signal(topic: string, body?: string): void;
  /** Calls the listener with the body of each signal on the topic, until the returned function is called. */
  watch(topic: string, listener: (body: string) => void): () => void;
  readonly deadLetters: DeadLetters;
  /** "ok", or which consumers in this process wait for something that their handlers depend on. */
  consumers(): "ok" | string;
  /** Returns a text that changes when the bus is recreated and has lost what it kept. */
  identity(): Promise<string>;
  close(): Promise<void>;
}
