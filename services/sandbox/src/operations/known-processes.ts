import { create } from "@bufbuild/protobuf";
import { timestampNow } from "@bufbuild/protobuf/wkt";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { type Process, ProcessSchema, ProcessState } from "@sandgate/proto/helper/v1/process";
import { LRUCache } from "lru-cache";

/** Of each sandbox. */
const maxProcesses = 64;
/** Of all that is remembered. Those of sandboxes that were not used for longest go first. */
const maxBytes = 64 * mebibyte;
/** Of a sandbox, beside its processes. */
const sandboxBytes = 1_024;
/** Of one process. Of a larger one its program is remembered, and not with what. */
const maxProcessBytes = 4_096;

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

interface Known {
  instanceId: string;
  running: Map<string, Process>;
  lost: Process[];
  bytes: number;
}

export function createKnownProcesses(): KnownProcesses {
  const known = new LRUCache<string, Known>({
    maxSize: maxBytes,
    sizeCalculation: ({ bytes }) => bytes + sandboxBytes,
  });

  /** What is known of a sandbox whose helper is in this run. */
  function recall(sandboxId: string, instanceId: string): Known {
    const of = known.get(sandboxId);
    if (of?.instanceId === instanceId) return of;
    const ran = [...(of?.running.values() ?? [])].map(toLost);
    const lost = [...(of?.lost ?? []), ...ran].slice(-maxProcesses);
    const bytes = lost.reduce((sum, process) => sum + bytesOf(process), 0);
    const now: Known = { instanceId, running: new Map(), lost, bytes };
    known.set(sandboxId, now);
    return now;
  }

  return {
    note(sandboxId, instanceId, process) {
      const of = recall(sandboxId, instanceId);
      const { running } = of;
      const before = running.get(process.id);
      if (process.state !== ProcessState.RUNNING) running.delete(process.id);
      else if (before || running.size < maxProcesses) running.set(process.id, shorten(process));
      const after = running.get(process.id);
      const change = (after ? bytesOf(after) : 0) - (before ? bytesOf(before) : 0);
      if (change === 0) return;
      of.bytes += change;
      // It is measured when it is added.
      known.delete(sandboxId);
      known.set(sandboxId, of);
    },
    findLost: (sandboxId, instanceId) => recall(sandboxId, instanceId).lost,
  };
}

/** About as much as it takes. */
function bytesOf({ id, argv, shell, cwd, user, tag }: Process): number {
  return [id, ...argv, shell, cwd, user, tag].reduce((bytes, text) => bytes + 2 * text.length + 16, 256);
}

/** What the helper says may be as large as a message can be. */
function shorten(process: Process): Process {
  if (bytesOf(process) <= maxProcessBytes) return process;
  // A slice of a string keeps the whole string in memory.
  const first = (text: string) => Buffer.from(text.slice(0, maxProcessBytes / 16)).toString();
  const { id, argv, shell, cwd, user, tag } = process;
  const short = {
    argv: argv.slice(0, 1).map(first),
    shell: first(shell),
    cwd: first(cwd),
    user: first(user),
    tag: first(tag),
  };
  return create(ProcessSchema, { ...process, ...short, id: first(id) });
}

/** A process that nobody can say any more how it ended. */
export function toLost(process: Process): Process {
  return create(ProcessSchema, { ...process, state: ProcessState.LOST, stdinOpen: false, endedAt: timestampNow() });
}
