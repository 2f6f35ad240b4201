import { type ContainerInspectInfo, callEngine, type Engine } from "@sandgate/docker-engine/client";

/** How long after a container's end the engine may still learn that it was killed for memory. */
const latenessMs = 500;

/**
 * True when the container was ended for going over its memory limit. The engine's own flag is also set for a container
 * that outlived a child killed for memory and then ended as it liked, hence the exit code; and on control groups v2 it can
 * be missing, when the news of the memory comes after that of the exit (containerd pull request 12714), hence the events
 * (the engine keeps the last 256), which are waited for until half a second after the end.
 */
export async function endedForMemory(engine: Engine, { Id: id, State: state }: ContainerInspectInfo): Promise<boolean> {
  if (state.Running || state.ExitCode !== 137) return false;
  return state.OOMKilled || (await hasMemoryEvent(engine, id, new Date(state.StartedAt), new Date(state.FinishedAt)));
}

/** Whether the engine's events tell of a container's memory limit between its start and half a second after its end. */
export async function hasMemoryEvent(engine: Engine, id: string, startedAt: Date, finishedAt: Date): Promise<boolean> {
  return callEngine(async (abortSignal) => {
    const events = await engine.getEvents({
      since: startedAt.getTime() / 1000,
      until: (finishedAt.getTime() + latenessMs) / 1000,
      filters: { type: ["container"], event: ["oom"], container: [id] },
      abortSignal,
    });
    for await (const _ of events) return true;
    return false;
  });
}
