import { createRegistry, type JsonValue, toJson } from "@bufbuild/protobuf";
import { type Event, EventSchema } from "@sandgate/proto/common/v1/event";
import { file_sandgate_identity_v1_identity_events as identityEvents } from "@sandgate/proto/identity/v1/identity_events";
import { file_sandgate_imageregistry_v1_image_registry_events as imageRegistryEvents } from "@sandgate/proto/imageregistry/v1/image_registry_events";
import { file_sandgate_sandbox_v1_sandbox_events as sandboxEvents } from "@sandgate/proto/sandbox/v1/sandbox_events";
import { file_sandgate_telemetry_v1_telemetry_events as telemetryEvents } from "@sandgate/proto/telemetry/v1/telemetry_events";
import { file_sandgate_workspace_v1_workspace_events as workspaceEvents } from "@sandgate/proto/workspace/v1/workspace_events";
import { messageOf } from "../base/domain-error.ts";
import { dayMs } from "../base/time.ts";
import type { DeadLetter, DeadLetters } from "./bus.ts";
import { type DeliveryPolicy, outcomeOf } from "./delivery.ts";

/**
 * How long a dead letter is kept for operators, who are told of it by a metric. Replayed later, it would rarely fit
 * what has become of its entity.
 */
export const deadLetterKeptMs = 90 * dayMs;

/** The handler of each consumer in this process. */
type Handlers = ReadonlyMap<string, (event: Event) => Promise<void>>;

/** How a bus stores its dead letters. */
interface DeadLetterStore extends Pick<DeadLetters, "list"> {
  /**
   * Its `readEvent` returns the event to replay. It throws, with the reason, for a message that must not reach a
   * handler.
   */
  find(id: string): Promise<{ letter: DeadLetter; readEvent(): Event } | undefined>;
  /** Returns false if the dead letter is gone already. */
  remove(id: string): Promise<boolean>;
}

/**
 * Creates the dead letters of a bus, for its operators. A replay is a single attempt, which is made at once; its caller
 * gets the outcome.
 */
export function createDeadLetters(o: {
  store: DeadLetterStore;
  handlers: Handlers;
  policy: Pick<DeliveryPolicy, "handlerTimeoutMs">;
}): DeadLetters {
  const { store, handlers, policy } = o;
  return {
    list: (page) => store.list(page),
    get: async (id) => (await store.find(id))?.letter,
    async replay(id) {
      const found = await store.find(id);
      if (!found) return false;
      const { consumer } = found.letter;
      const handle = handlers.get(consumer);
      if (!handle) throw new Error(`the consumer ${consumer} is not running in this process`);
      const attempt = async () => handle(found.readEvent());
      const failure = await outcomeOf(attempt(), policy.handlerTimeoutMs);
      if (failure) throw new Error(`the consumer ${consumer} failed again: ${failure.message}`, { cause: failure });
      await store.remove(id).catch((cause: unknown) => {
        throw new Error(`the event was handled, but is still a dead letter: ${messageOf(cause)}`, { cause });
      });
      return true;
    },
    drop: (id) => store.remove(id),
  };
}

const payloads = createRegistry(identityEvents, imageRegistryEvents, sandboxEvents, telemetryEvents, workspaceEvents);

/**
 * Returns the whole event as JSON. A payload that this version can't read is returned beside it, as bytes in base64.
 */
export function eventToJson(event: Event): { event: JsonValue; payloadBytes?: string } {
  try {
    return { event: toJson(EventSchema, event, { registry: payloads }) };
  } catch (error) {
    const { payload, ...envelope } = event;
    if (!payload) throw error;
    return { event: toJson(EventSchema, envelope), payloadBytes: Buffer.from(payload.value).toString("base64") };
  }
}
