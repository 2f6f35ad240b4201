import { type FileHandle, open, stat } from "node:fs/promises";
import { setTimeout as delay } from "node:timers/promises";
import { messageOf } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import type { Logger } from "@sandgate/kit/base/logging";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import type { BackgroundTask } from "@sandgate/kit/process/service";
import { type LeaseStore, runLeased } from "@sandgate/kit/storage/leases";
import type { AuditEntry } from "../domain/audit.ts";
import type { AuditLog } from "../store/audit.ts";

/** The name under which the store keeps how far the file is. */
const copy = "file";
const lookEveryMs = 1_000;
const leaseMs = 15_000;
const entriesAtOnce = 500;

/** The file as the process that writes it sees it. */
export interface AuditFile extends BackgroundTask {
  /** "ok", or why the file could not be written last time. */
  state(): string;
}

/**
 * Copies the audit log to a file, a JSON object a line, in the order in which entries were added. The store keeps how
 * far the copy is, and moves on only once lines are on disk. So a crash loses no line, but the last lines may come
 * again, under the same ids. Of several replicas one writes at a time. When the file was moved away, a new one is
 * created in its place.
 */
export function startAuditFile(o: {
  path: string;
  store: { audit: AuditLog; leases: LeaseStore };
  logger: Logger;
}): AuditFile {
  const { path, store, logger } = o;
  const holder = newId();
  let state = "ok";

  const task = startPeriodicTask({
    what: `write the audit log to ${path}`,
    everyMs: lookEveryMs,
    logger,
    async work(signal, markHealthy) {
      const lease = { leases: store.leases, name: "audit.file", holder, ttlMs: leaseMs, signal, logger };
      await runLeased(lease, async (leased) => {
        const lines = createLineFile(path);
        try {
          let sequence = await store.audit.findCopyCursor(copy);
          while (!leased.aborted) {
            const entries = await store.audit.listAfter(sequence, entriesAtOnce);
            const last = entries.at(-1);
            if (last) {
              await lines.append(entries.map(({ entry }) => toLine(entry)));
              await store.audit.setCopyCursor(copy, last.sequence);
              sequence = last.sequence;
            }
            state = "ok";
            markHealthy();
            if (entries.length < entriesAtOnce) {
              await delay(lookEveryMs, undefined, { signal: leased, ref: false }).catch(() => undefined);
            }
          }
        } catch (error) {
          state = messageOf(error);
          throw error;
        } finally {
          await lines.close();
        }
      });
    },
  });
  return { state: () => state, stop: () => task.stop() };
}

/** A file to which whole lines are added. It is opened again when another file, or none, is found at its path. */
function createLineFile(path: string): { append(lines: readonly string[]): Promise<void>; close(): Promise<void> } {
  let opened: FileHandle | undefined;

  async function close(): Promise<void> {
    const closing = opened;
    opened = undefined;
    await closing?.close();
  }

  async function current(): Promise<FileHandle> {
    if (opened && !(await isAt(opened, path))) await close();
    if (opened) return opened;
    // Read too, to see how it ends.
    opened = await open(path, "a+", 0o600);
    const { size } = await opened.stat();
    const end = Buffer.alloc(1);
    if (size > 0) await opened.read(end, 0, 1, size - 1);
    // A line that was cut off by a crash or a full disk is ended; it comes again as a whole.
    if (size > 0 && end.toString() !== "\n") await opened.appendFile("\n");
    return opened;
  }

  return {
    async append(lines) {
      const file = await current();
      await file.appendFile(lines.map((line) => `${line}\n`).join(""));
      await file.datasync();
    },
    close,
  };
}

async function isAt(file: FileHandle, path: string): Promise<boolean> {
  const [here, there] = await Promise.all([file.stat(), stat(path).catch(() => undefined)]);
  return there !== undefined && there.ino === here.ino && there.dev === here.dev;
}

/** The entry as the public API shows it. */
function toLine({ credential, target, ...entry }: AuditEntry): string {
  return JSON.stringify({
    id: entry.id,
    at: entry.at.toISOString(),
    workspace_id: entry.workspaceId ?? null,
    actor: entry.actorId === undefined ? null : { user_id: entry.actorId },
    credential: credential ? { type: credential.kind, id: credential.id } : null,
    address: entry.address ?? null,
    action: entry.action,
    target: target ? { type: target.type, id: target.id, ...target.details } : null,
    outcome: entry.outcome,
    request_id: entry.requestId ?? null,
    count: entry.count,
  });
}
