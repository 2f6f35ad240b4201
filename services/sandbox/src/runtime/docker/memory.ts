import { type ContainerInspectInfo, callEngine, type Engine } from "@sandgate/docker-engine/client";

/** How long after a container's end the engine may still report that it ran out of memory. */
const maxEventDelayMs = 500;

/**
 * True when the container was killed for exceeding its memory limit. The engine's own flag is not enough. It is also
 * set when only a child was killed and the container ended by itself later, hence the check of the exit code. And with
 * cgroup v2 it can be missing, when containerd reports the exit before the lack of memory (containerd pull request
 * 12714), hence the events (the engine keeps the last 256), which are read until half a second after the end.
 */
export async function endedForMemory(engine: Engine, { Id: id, State: state }: ContainerInspectInfo): Promise<boolean> {
  if (state.Running || state.ExitCode !== 137) return false;
  return state.OOMKilled || (await hasMemoryEvent(engine, id, new Date(state.StartedAt), new Date(state.FinishedAt)));
}

/** Whether the engine reported that a container ran out of memory, until half a second after its end. */
export async function hasMemoryEvent(engine: Engine, id: string, startedAt: Date, finishedAt: Date): Promise<boolean> {
  return callEngine(async (abortSignal) => {
    const events = await engine.getEvents({
      since: startedAt.getTime() / 1000,
      until: (finishedAt.getTime() + maxEventDelayMs) / 1000,
      filters: { type: ["container"], event: ["oom"], container: [id] },
      abortSignal,
    });
    for await (const _ of events) return true;
    return false;
  });
}
