import type { Event } from "@sandgate/proto/common/v1/event";
import type { StagedEvent } from "../storage/outbox-store.ts";

/** An event that a consumer failed to handle so often that the bus gave up. It is kept until an operator replays or drops it. */
export interface DeadLetter {
  /** `<consumer>.<event id>` */
  id: string;
  consumer: string;
  /** Has only its id and subject when the message wasn't a valid event. */
  event: Event;
  attempts: number;
  /** The message of the last failure. */
  error: string;
  /** When the bus gave up. */
  failedAt: Date;
}

/** The dead letters of the consumers in this process, for its operators. */
export interface DeadLetters {
  /** By id: those of one consumer together, the oldest event first. */
  list(page: { limit: number; afterId?: string | undefined }): Promise<DeadLetter[]>;
  /** Undefined when there is none of that id. */
  get(id: string): Promise<DeadLetter | undefined>;
  /**
   * Hands the event to the consumer that failed, and to no other, and removes the dead letter once it is handled. False
   * when there is none of that id. Throws, and keeps the dead letter, when the handler fails again or isn't in this process.
   */
  replay(id: string): Promise<boolean>;
  /** Removes it without a replay; false when there is none of that id. */
  drop(id: string): Promise<boolean>;
}

/** A consumer's running handler, until it is stopped. */
export interface Consumption {
  /** Takes no more events and waits for the handlers that run. */
  stop(): Promise<void>;
}

/** Carries events between services. */
export interface EventBus {
  /** Resolves once all are stored durably. An id that the bus has is not stored again. */
  publish(events: readonly StagedEvent[]): Promise<void>;
  /**
   * Hands every event on the subjects (NATS patterns: `*` one token, a last `>` the rest) to `handle` at least once, in no
   * promised order; a new consumer starts with what the bus keeps. The same name on several replicas shares the work.
   * A handler that throws gets the event again after a growing delay; after the last attempt the event is a dead letter.
   */
  consume(options: {
    consumer: string;
    subjects: readonly string[];
    handle(event: Event): Promise<void>;
  }): Promise<Consumption>;
  /** Wakes the watchers of a topic in every process, best effort: nothing may depend on its arrival. */
  signal(topic: string, body?: string): void;
  /** Calls the listener with the body of each signal on the topic; the answer ends that. */
  watch(topic: string, listener: (body: string) => void): () => void;
  readonly deadLetters: DeadLetters;
  /** Changes when the bus was recreated and has lost what it kept. */
  identity(): Promise<string>;
  close(): Promise<void>;
}
