import { describe } from "vitest";
import { testConsumers } from "./consumers.ts";
import { testDeadLetters } from "./dead-letters.ts";
import { testDelivery } from "./delivery.ts";
import { testRestarts } from "./restarts.ts";
import { type BusUnderTest, useBus } from "./session.ts";
import { testSignals } from "./signals.ts";

/** The contract of every event bus. */
export function describeEventBus(name: string, createBus: () => Promise<BusUnderTest>): void {
  describe(`event bus: ${name}`, () => {
    const session = useBus(createBus);
    testDelivery(session);
    testConsumers(session);
    testRestarts(session);
    testDeadLetters(session);
    testSignals(session);
  });
}
