import type { Event } from "@sandgate/proto/common/v1/event";
import type { StagedEvent } from "../storage/outbox-store.ts";

/** An event that a consumer failed to handle so often that the bus gave up; it stays until an operator looks. */
export interface DeadLetter {
  consumer: string;
  event: Event;
  attempts: number;
  /** The message of the last failure. */
  error: string;
  parkedAt: Date;
}

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
  parked(): Promise<DeadLetter[]>;
  /** Changes when the bus was made anew and has lost what it kept. */
  identity(): Promise<string>;
  close(): Promise<void>;
}
