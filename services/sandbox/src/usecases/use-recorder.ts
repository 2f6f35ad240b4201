import type { AuditDetails } from "@sandgate/kit/base/audit-actions";
import type { Logger } from "@sandgate/kit/base/logging";
import { counter, type Metrics } from "@sandgate/kit/base/metrics";
import { type PeriodicTask, startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { hourMs, minuteMs, monotonicMs } from "@sandgate/kit/base/time";
import type { EventCause, StagedEvent } from "@sandgate/kit/events/outbox";
import type { AuditedUse, CountedUses } from "../domain/audited-uses.ts";
import { sandboxUsed } from "../events.ts";

/** Records for the audit log what is done in sandboxes. */
export interface UseRecorder {
  /** Nothing waits for it. */
  record(call: EventCause, use: AuditedUse): void;
}

/** Stages what was recorded, together. */
export interface UseRecording extends UseRecorder {
  start(): PeriodicTask;
  /** Stages all that was recorded, counted uses too. */
  flush(): Promise<void>;
}

/** Uses of a sandbox in a minute that have an entry each; the others are counted. */
const maxOfMinute = 20;
/** Programs, credentials and actions of a sandbox that are counted apart in a minute. */
const maxGroupsOfMinute = 20;
/** Entries in an hour: as many as a user and a workspace have of changes, unless SANDGATE_CHANGE_RATE_LIMIT is set. */
const maxOfHour = { user: 3_600, workspace: 18_000 };
/** Events that wait for the database. Beyond that the oldest are given up. */
const maxWaiting = 20_000;
const eventsAtOnce = 100;
const lookEveryMs = 1_000;

interface Group {
  call: EventCause;
  uses: CountedUses;
}

/**
 * Commands come hundreds a second, so that an entry for each would cost more than the command, and fill the disk. The
 * first of a minute have an entry each, which is stored at once with the others that have come meanwhile. The rest is
 * counted, by sandbox, credential, action and program, and stored at the minute's end.
 */
export function createUseRecorder(o: {
  stage(events: readonly StagedEvent[]): Promise<void>;
  logger: Logger;
  metrics: Metrics;
  monotonic?: () => number;
}): UseRecording {
  const { logger, monotonic = monotonicMs } = o;
  const givenUp = counter(o.metrics, {
    name: "sandgate_audit_uses_given_up_total",
    help: "Uses of sandboxes that are missing in the audit log, as the database was away for too long",
  });
  let waiting: StagedEvent[] = [];
  let staging = Promise.resolve();
  /** Of this minute: how many uses of each sandbox have an entry, and those that are counted. */
  let written = new Map<string, number>();
  let groups = new Map<string, Group>();
  let groupsOfSandboxes = new Map<string, number>();
  let minuteEndsAt = monotonic() + minuteMs;
  /** Of this hour: the entries of each user and each workspace. */
  let spent = new Map<string, number>();
  let hourEndsAt = monotonic() + hourMs;

  function add(call: EventCause, uses: CountedUses): void {
    waiting.push(sandboxUsed(call, uses));
    const excess = waiting.splice(0, waiting.length - maxWaiting);
    if (excess.length > 0) givenUp.inc(excess.length);
  }

  function endMinute(): void {
    for (const { call, uses } of groups.values()) add(call, uses);
    written = new Map();
    groups = new Map();
    groupsOfSandboxes = new Map();
    minuteEndsAt = monotonic() + minuteMs;
    if (monotonic() < hourEndsAt) return;
    spent = new Map();
    hourEndsAt = monotonic() + hourMs;
  }

  /** Whether there may be another entry of this key, which then counts. */
  function draw(counts: Map<string, number>, key: string, limit: number): boolean {
    const count = counts.get(key) ?? 0;
    if (count < limit) counts.set(key, count + 1);
    return count < limit;
  }

  /** Whether there may be another entry of this hour, which then counts. */
  function drawOfHour({ user }: EventCause, { workspaceId }: AuditedUse): boolean {
    return (
      draw(spent, `user ${user?.id}`, maxOfHour.user) && draw(spent, `workspace ${workspaceId}`, maxOfHour.workspace)
    );
  }

  function count(call: EventCause, { id: _, ...use }: AuditedUse): void {
    const { workspaceId, sandboxId, action, outcome, details } = use;
    const { program } = details;
    const begin = (key: string, group: Group): Group => {
      groups.set(key, group);
      return group;
    };
    const ofProgram = JSON.stringify([sandboxId, action, outcome, call.user?.credentialId, program]);
    const ofWorkspace = JSON.stringify([workspaceId, action, outcome, call.user?.id]);
    const mayBegin = () => draw(groupsOfSandboxes, sandboxId, maxGroupsOfMinute) && drawOfHour(call, use);
    const group =
      groups.get(ofProgram) ??
      (mayBegin()
        ? begin(ofProgram, { call, uses: { ...use, count: 0 } })
        : (groups.get(ofWorkspace) ??
          begin(ofWorkspace, { call, uses: { ...use, sandboxId: undefined, details: {}, count: 0 } })));
    const { uses } = group;
    uses.count += 1;
    if (uses.count === 1) return;
    // An entry for several has what is the same of all.
    uses.details = same(uses.details, details);
    if (group.call.clientAddress !== call.clientAddress) {
      const { clientAddress: _address, ...others } = group.call;
      group.call = others;
    }
  }

  async function stageAll(): Promise<void> {
    while (waiting.length > 0) {
      const events = waiting.splice(0, eventsAtOnce);
      try {
        await o.stage(events);
      } catch (error) {
        waiting = [...events, ...waiting];
        throw error;
      }
    }
  }

  /** One at a time, so that those that come meanwhile are staged together. */
  function stageNext(): Promise<void> {
    staging = staging.catch(() => {}).then(stageAll);
    return staging;
  }

  return {
    record(call, use) {
      if (monotonic() >= minuteEndsAt) endMinute();
      if (draw(written, use.sandboxId, maxOfMinute) && drawOfHour(call, use)) {
        add(call, { ...use, count: 1 });
        // What fails is tried again by the task.
        void stageNext().catch(() => undefined);
      } else count(call, use);
    },
    flush() {
      endMinute();
      return stageNext();
    },
    start: () =>
      startPeriodicTask({
        what: "record uses of sandboxes for the audit log",
        everyMs: lookEveryMs,
        logger,
        async work() {
          if (monotonic() >= minuteEndsAt) endMinute();
          await stageNext();
        },
      }),
  };
}

/** What two have in common. */
function same(one: AuditDetails, other: AuditDetails): AuditDetails {
  return Object.fromEntries(Object.entries(one).filter(([name, value]) => Reflect.get(other, name) === value));
}
