import type { AuditAction } from "@sandgate/kit/base/audit-actions";
import { newId } from "@sandgate/kit/base/ids";
import type { Logger } from "@sandgate/kit/base/logging";
import { counter, type Metrics } from "@sandgate/kit/base/metrics";
import { networksOf } from "@sandgate/kit/base/networks";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { minuteMs, monotonicMs } from "@sandgate/kit/base/time";
import type { UserCaller } from "@sandgate/kit/rpc/context";

/** Something that somebody did or tried to do, and that no event tells of. */
export interface AuditedAction {
  kind: "refused" | "sign_in" | "read";
  action: AuditAction;
  outcome: string;
  /** Who is signed in. */
  user?: Pick<UserCaller, "id" | "credential" | "credentialId"> | undefined;
  /** The name that somebody tried to sign in with, as it is compared. It may be anything, so it is never stored. */
  username?: string | undefined;
  workspaceId?: string | undefined;
  target?: Target | undefined;
  address?: string | undefined;
  requestId: string;
}

interface Target {
  type: string;
  id: string;
}

/** An entry of the audit log. */
export interface AuditEntry
  extends Pick<AuditedAction, "action" | "outcome" | "user" | "workspaceId" | "target" | "address"> {
  id: string;
  at: Date;
  requestId: string;
  count: number;
}

/** Writes to the audit log what causes no event. */
export interface AuditRecorder {
  /** Counts the action. Nothing waits for it. */
  recordAction(action: AuditedAction): void;
  /**
   * Stores the first action of each group, and how many followed in the groups whose time is up. Where users can't be
   * found, it throws once all else is stored.
   */
  flush(): Promise<void>;
  /** Stores everything that was recorded. */
  flushAll(): Promise<void>;
}

/** Actions that are alike, which are counted after the first. */
interface Group extends Pick<AuditedAction, "action" | "outcome" | "user" | "workspaceId"> {
  /** Present until it is known whose account it is. */
  username: string | undefined;
  /** The user whose name it is. */
  accountId?: string;
  /** Undefined when the actions have different ones. */
  target: Target | undefined;
  address: string | undefined;
  requestId: string;
  lastAt: Date;
  count: number;
  /** How many of them are in entries. */
  written: number;
}

/** Actions that are not counted by who did them have windows of an hour. */
type WindowKind = AuditedAction["kind"] | "overflow";

interface Window {
  /** Several keys may name one group. */
  groups: Map<string, Group>;
  /** How many groups each user or network began. */
  byOrigin: Map<string, number>;
  /** By the monotonic clock. */
  endsAt: number;
  lengthMs: number;
}

const flushMs = 1_000;
/** Groups of a kind in a window. Actions beyond them are counted by action and outcome alone, for an hour at a time. */
const maxGroups = 200;
/** As many for the first group of each user or network, so that not even many together hide what others do. */
const maxFirstGroups = 2_000;
/** Groups that one user or network may begin in a window, so that nobody hides what others do. */
const maxGroupsOfOrigin = 10;
/** And in an hour, so that nobody fills the disk. */
const maxGroupsOfOriginInHour = 60;
/** A window with more groups than this is followed by one twice as long, so that no flood fills the disk. */
const busyGroups = 20;
const shortestWindowMs = minuteMs;
const longestWindowMs = 60 * minuteMs;
/** Entries that wait for telemetry. Beyond that the oldest are given up. */
const maxWaiting = 5_000;
const entriesAtOnce = 500;

/**
 * Groups actions that are alike. The first of a group gets an entry at once; the others of the same minute get one
 * entry together, with their count. So no request waits, and a flood writes few entries: at most 400 a minute of each
 * kind, or 4,000 while ever more users or networks take part; as many an hour while it lasts, and 120 an hour of one user.
 */
export function createAuditRecorder(o: {
  store(entries: readonly AuditEntry[]): Promise<void>;
  /** The ids of the users who have these names. */
  findUserIds(usernames: readonly string[]): Promise<ReadonlyMap<string, string>>;
  metrics: Metrics;
  now?: () => Date;
  monotonic?: () => number;
}): AuditRecorder {
  const { now = () => new Date(), monotonic = monotonicMs } = o;
  const windows = new Map<WindowKind, Window>();
  /** How many groups each user or network began in an hour, by kind. */
  const hours = new Map<string, { begun: number; endsAt: number }>();
  const givenUp = counter(o.metrics, {
    name: "sandgate_audit_entries_given_up_total",
    help: "Entries of the audit log that telemetry could not be given.",
  });
  let waiting: AuditEntry[] = [];

  function openWindow(kind: WindowKind, lengthMs: number): Window {
    const window = { groups: new Map(), byOrigin: new Map(), endsAt: monotonic() + lengthMs, lengthMs };
    windows.set(kind, window);
    return window;
  }

  const windowOf = (kind: WindowKind): Window =>
    windows.get(kind) ?? openWindow(kind, kind === "overflow" ? longestWindowMs : shortestWindowMs);

  function hourOf(kind: WindowKind, origin: string) {
    const at = monotonic();
    const key = JSON.stringify([kind, origin]);
    const known = hours.get(key);
    if (known && known.endsAt > at) return known;
    const hour = { begun: 0, endsAt: at + longestWindowMs };
    // All hours are as long, so the map is in the order of their ends.
    hours.delete(key);
    hours.set(key, hour);
    for (const [oldest, { endsAt }] of hours) {
      if (endsAt > at) break;
      hours.delete(oldest);
    }
    return hour;
  }

  function groupFor(audited: AuditedAction): Group {
    const { kind, user, username, workspaceId, action, outcome, address } = audited;
    const window = windowOf(kind);
    const begin = (window: Window, key: string, group: Pick<Group, "user" | "workspaceId" | "username">): Group => {
      const { target, requestId } = audited;
      const begun = { ...group, action, outcome, target, address, requestId, lastAt: now(), count: 0, written: 0 };
      window.groups.set(key, begun);
      return begun;
    };
    const key = JSON.stringify([action, outcome, user?.credentialId, workspaceId, username]);
    const known = window.groups.get(key);
    if (known) return known;
    const origin = user?.id ?? networkOf(address);
    const begun = window.byOrigin.get(origin) ?? 0;
    if (window.groups.size < (begun === 0 ? maxFirstGroups : maxGroups) && begun < maxGroupsOfOrigin) {
      const hour = hourOf(kind, origin);
      if (hour.begun < maxGroupsOfOriginInHour) {
        hour.begun += 1;
        window.byOrigin.set(origin, begun + 1);
        return begin(window, key, { user, workspaceId, username });
      }
    }
    const overflow = windowOf("overflow");
    const alike = JSON.stringify([action, outcome]);
    const nobodys = { user: undefined, workspaceId: undefined, username: undefined };
    return overflow.groups.get(alike) ?? begin(overflow, alike, nobodys);
  }

  const namedGroups = (window: Window) => [...window.groups].filter(([, { username }]) => username !== undefined);

  /** Finds the users of the names. Attempts with names that nobody has are counted by network. */
  async function resolveUsernames(window: Window): Promise<void> {
    // More may be recorded during each call, and no name may be left when entries are taken.
    for (let named = namedGroups(window); named.length > 0; named = namedGroups(window)) {
      await resolveNamed(window, named);
    }
  }

  async function resolveNamed(window: Window, named: readonly [key: string, Group][]): Promise<void> {
    const ids = await o.findUserIds([...new Set(named.flatMap(([, { username = "" }]) => username))]);
    for (const [key, group] of named) {
      const id = ids.get(group.username ?? "");
      group.username = undefined;
      if (id !== undefined) {
        group.accountId = id;
        continue;
      }
      const nobody = JSON.stringify([group.action, group.outcome, "nobody", networkOf(group.address)]);
      const counted = window.groups.get(nobody);
      if (!counted) {
        window.groups.set(nobody, group);
        continue;
      }
      merge(counted, group);
      // Later attempts with this name are counted there too.
      window.groups.set(key, counted);
    }
  }

  function takeEntries(window: Window, isOver: boolean): AuditEntry[] {
    const entries: AuditEntry[] = [];
    for (const group of new Set(window.groups.values())) {
      const { action, outcome, user, workspaceId, accountId, address, requestId } = group;
      const target = accountId === undefined ? group.target : { type: "user", id: accountId };
      const count = group.count - group.written;
      if (count === 0 || (group.written > 0 && !isOver)) continue;
      group.written = group.count;
      entries.push({
        id: newId(),
        at: group.lastAt,
        action,
        outcome,
        user,
        workspaceId,
        target,
        address,
        requestId,
        count,
      });
    }
    return entries;
  }

  async function flush(isLast: boolean): Promise<void> {
    const failures: unknown[] = [];
    for (const [kind, window] of windows) {
      try {
        await resolveUsernames(window);
      } catch (error) {
        failures.push(error);
        continue;
      }
      const isOver = isLast || monotonic() >= window.endsAt;
      waiting.push(...takeEntries(window, isOver));
      if (!isOver) continue;
      windows.delete(kind);
      if (window.groups.size > busyGroups) openWindow(kind, Math.min(2 * window.lengthMs, longestWindowMs));
    }
    if (waiting.length > maxWaiting) {
      givenUp.inc(waiting.length - maxWaiting);
      waiting = waiting.slice(-maxWaiting);
    }
    while (waiting.length > 0) {
      await o.store(waiting.slice(0, entriesAtOnce));
      waiting = waiting.slice(entriesAtOnce);
    }
    if (failures.length > 0) throw failures[0];
  }

  return {
    recordAction(action) {
      const group = groupFor(action);
      merge(group, { target: action.target, address: action.address, lastAt: now(), count: 1 });
    },
    flush: () => flush(false),
    flushAll: () => flush(true),
  };
}

/** Stores what is recorded within a second. Once stopped, it has stored everything. */
export function startAuditRecorder(recorder: AuditRecorder, logger: Logger): { stop(): Promise<void> } {
  const task = startPeriodicTask({
    what: "write to the audit log",
    everyMs: flushMs,
    logger,
    work: () => recorder.flush(),
  });
  return {
    async stop() {
      await task.stop();
      await recorder
        .flushAll()
        .catch((error: unknown) => logger.error({ err: error }, "entries of the audit log were lost"));
    },
  };
}

function networkOf(address: string | undefined): string {
  return address === undefined ? "" : networksOf(address)[0].name;
}

/** Adds actions to a group. */
function merge(
  group: Group,
  { target, address, lastAt, count }: Pick<Group, "target" | "address" | "lastAt" | "count">,
) {
  if (group.target?.id !== target?.id) group.target = undefined;
  if (group.address !== address) group.address = undefined;
  if (lastAt > group.lastAt) group.lastAt = lastAt;
  group.count += count;
}
