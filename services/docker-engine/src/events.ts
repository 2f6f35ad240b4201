import { identityOf, installationSelector } from "@sandgate/container-labels";
import { type Engine, openStream } from "./client.ts";
import { readJsonLines } from "./streams.ts";

/** What happened to a sandbox's container. */
export interface ContainerEvent<Action extends string> {
  action: Action;
  containerId: string;
  sandboxId: string;
}

/** The part of the engine's event that is read (Docker Engine API 1.41). */
interface EngineEvent {
  Action: string;
  Actor: { ID: string; Attributes: Record<string, string> };
}

/**
 * Opens the events of an installation's containers from now on. They end with the connection, and throw when the signal
 * aborts.
 */
export async function openContainerEvents<const Action extends string>(
  engine: Engine,
  o: { installationId: string; actions: readonly Action[]; signal: AbortSignal },
): Promise<AsyncIterable<ContainerEvent<Action>>> {
  const { actions, installationId, signal } = o;
  const stream = await openStream(
    (abortSignal) =>
      engine.getEvents({
        filters: { type: ["container"], event: [...actions], label: [installationSelector(installationId)] },
        abortSignal,
      }),
    signal,
  );
  return readEvents(stream, actions);
}

async function* readEvents<Action extends string>(
  stream: NodeJS.ReadableStream,
  actions: readonly Action[],
): AsyncGenerator<ContainerEvent<Action>> {
  for await (const line of readJsonLines(stream)) {
    const { Action: name, Actor: actor } = line as EngineEvent;
    const action = actions.find((known) => known === name);
    const identity = identityOf(actor.Attributes);
    if (action && identity) yield { action, containerId: actor.ID, sandboxId: identity.sandboxId };
  }
}
