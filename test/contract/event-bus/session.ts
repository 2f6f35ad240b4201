import { create, toBinary } from "@bufbuild/protobuf";
import { newId } from "@sandgate/kit/base/ids";
import type { Consumption, DeadLetter, EventBus } from "@sandgate/kit/events/bus";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import { type Event, EventSchema } from "@sandgate/proto/common/v1/event";
import { afterEach, beforeEach } from "vitest";

/** One adapter's bus, for one test. */
export interface BusUnderTest {
  /** Connects to it, again and again; with the delivery policy below. */
  open(): Promise<EventBus>;
  /** Deletes everything that it stores. No connection is open. */
  wipe(): Promise<void>;
  remove(): Promise<void>;
}

/**
 * The suite waits for redeliveries, so they come soon. A handler that hangs is given up after two seconds, which no
 * busy machine takes.
 */
export const policyUnderTest = {
  attempts: 4,
  firstMs: 10,
  lastMs: 40,
  handlerTimeoutMs: 2_000,
  concurrency: 4,
} as const;

/** The connection of the running test to its bus. */
export interface BusSession {
  readonly bus: EventBus;
  /** Reconnects, as a restarted process does. */
  reopen(): Promise<void>;
  /** Reconnects to a bus that has lost everything. */
  wipe(): Promise<void>;
  listDeadLetters(): Promise<DeadLetter[]>;
  /** Consumes everything, unless given other subjects: runs `handle`, then records the entity in `seen`. */
  consumeInto(
    seen: string[],
    o?: { consumer?: string; subjects?: string[]; concurrency?: number; handle?: (event: Event) => Promise<void> },
  ): Promise<Consumption>;
}

/** Gives each test of the suite a bus of its own. */
export function useBus(createBus: () => Promise<BusUnderTest>): BusSession {
  let stored: BusUnderTest;
  let bus: EventBus;
  beforeEach(async () => {
    stored = await createBus();
    bus = await stored.open();
  });
  afterEach(async () => {
    await bus.close();
    await stored.remove();
  });

  return {
    get bus() {
      return bus;
    },
    async reopen() {
      await bus.close();
      bus = await stored.open();
    },
    async wipe() {
      await bus.close();
      await stored.wipe();
      bus = await stored.open();
    },
    listDeadLetters: () => bus.deadLetters.list({ limit: 100 }),
    consumeInto: (seen, { consumer = "test", subjects = ["sandgate.>"], concurrency, handle } = {}) =>
      bus.consume({
        consumer,
        subjects,
        ...(concurrency && { concurrency }),
        async handle(event) {
          await handle?.(event);
          seen.push(event.entityId);
        },
      }),
  };
}

export function eventOf(o: { entity: string; version?: number; subject?: string; id?: string }): StagedEvent {
  const id = o.id ?? newId();
  const subject = o.subject ?? "sandgate.test.thing.changed.v1";
  const event = create(EventSchema, {
    eventId: id,
    subject,
    entityId: o.entity,
    entityVersion: BigInt(o.version ?? 1),
    workspaceId: "workspace",
    requestId: "request",
    actor: { userId: "user", credentialId: "token" },
  });
  return { id, subject, bytes: toBinary(EventSchema, event) };
}

/** Events of as many entities, named by their numbers. */
export const someEvents = (count: number) =>
  Array.from({ length: count }, (_, number) => eventOf({ entity: `${number}` }));

export const entitiesOf = (events: readonly StagedEvent[]) => events.map((_, number) => `${number}`);
