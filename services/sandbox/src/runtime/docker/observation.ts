import { type ContainerIdentity, identityOf } from "@sandgate/container-labels";
import { type ContainerInfo, type ContainerInspectInfo, callEngine, type Engine } from "@sandgate/docker-engine/client";
import { ignoreStatus } from "@sandgate/docker-engine/errors";
import type { ListedSandbox, Observation } from "../lifecycle.ts";
import { endedForMemory } from "./memory.ts";

/** A container of this installation, as the engine describes it. */
export interface InspectedContainer {
  identity: ContainerIdentity;
  info: ContainerInspectInfo;
}

/**
 * Looks a container up by id or name. Undefined when it isn't there, is being removed or belongs to another
 * installation.
 */
export async function inspectContainer(
  engine: Engine,
  id: string,
  o: { installationId: string },
): Promise<InspectedContainer | undefined> {
  const container = engine.getContainer(id);
  const info = await ignoreStatus(
    [404],
    callEngine((abortSignal) => container.inspect({ abortSignal })),
  );
  // A forced removal kills the container first; that isn't an end of its own.
  if (!info || info.State.Status === "removing") return undefined;
  const identity = identityOf(info.Config.Labels);
  return identity?.installationId === o.installationId ? { identity, info } : undefined;
}

export async function observationOf(engine: Engine, { identity, info }: InspectedContainer): Promise<Observation> {
  const { State: state } = info;
  const startedAt = parseTime(state.StartedAt);
  const base = {
    sandboxId: identity.sandboxId,
    createdAt: new Date(info.Created),
    ...(startedAt && { startedAt }),
  };
  if (state.Status === "created") return { ...base, phase: "created" };
  if (state.Running) return { ...base, phase: "running" };
  return {
    ...base,
    phase: "exited",
    ...(startedAt && { exitCode: state.ExitCode }),
    outOfMemory: await endedForMemory(engine, info),
  };
}

/** What a list of containers says about one. Undefined when it is being removed. */
export function listedOf({ Labels, State: state, Created: created }: ContainerInfo): ListedSandbox | undefined {
  const identity = identityOf(Labels);
  if (!identity || state === "removing") return undefined;
  return {
    sandboxId: identity.sandboxId,
    createdAt: new Date(created * 1000),
    phase: state === "created" ? "created" : state === "exited" || state === "dead" ? "exited" : "running",
  };
}

/** The engine writes the year 1 for something that has not happened. */
function parseTime(text: string): Date | undefined {
  return text.startsWith("0001-") ? undefined : new Date(text);
}
