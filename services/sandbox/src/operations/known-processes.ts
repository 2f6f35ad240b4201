import { create } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { type Process, ProcessSchema, ProcessState } from "@sandgate/proto/helper/v1/process";
import { LRUCache } from "lru-cache";

/** Sandboxes whose processes are remembered, and processes of each. */
const maxSandboxes = 10_000;
const maxProcesses = 64;

/**
 * What ran in sandboxes, as far as this process has seen, for the case that somebody in one kills its helper, which then
 * knows nothing of what ran before.
 */
export interface KnownProcesses {
  /** Remembers a running process, and forgets one that has ended. */
  note(sandboxId: string, instanceId: string, process: Process): void;
  /** Those that ran when a helper other than this run of it was killed, as lost. */
  findLost(sandboxId: string, instanceId: string): Process[];
}

export function createKnownProcesses(): KnownProcesses {
  const known = new LRUCache<string, { instanceId: string; running: Map<string, Process>; lost: Process[] }>({
    max: maxSandboxes,
  });

  /** What is known of a sandbox whose helper is in this run. */
  function recall(sandboxId: string, instanceId: string) {
    let of = known.get(sandboxId);
    if (!of) {
      of = { instanceId, running: new Map(), lost: [] };
      known.set(sandboxId, of);
    } else if (of.instanceId !== instanceId) {
      of.lost = [...of.lost, ...[...of.running.values()].map(toLost)].slice(-maxProcesses);
      of.running = new Map();
      of.instanceId = instanceId;
    }
    return of;
  }

  return {
    note(sandboxId, instanceId, process) {
      const { running } = recall(sandboxId, instanceId);
      if (process.state !== ProcessState.RUNNING) running.delete(process.id);
      else if (running.has(process.id) || running.size < maxProcesses) running.set(process.id, process);
    },
    findLost: (sandboxId, instanceId) => recall(sandboxId, instanceId).lost,
  };
}

/** A process that nobody can say any more how it ended. */
export function toLost(process: Process): Process {
  return create(ProcessSchema, { ...process, state: ProcessState.LOST, stdinOpen: false, endedAt: timestampNow() });
}
