import { timestampDate } from "@bufbuild/protobuf/wkt";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { monotonicMs } from "@sandgate/kit/base/time";
import { asFacade } from "@sandgate/kit/rpc/context";
import type { Preview } from "@sandgate/proto/sandbox/v1/previews";
import type { WorkspaceScope } from "../pipeline/admission/workspace-scope.ts";
import type { Clients } from "../pipeline/base/clients.ts";
import { uncheckedMs } from "../pipeline/live/rechecks.ts";
import { present } from "../pipeline/messages/contract.ts";
import { noSuchPreview } from "./access.ts";

/** How often previews in use are checked: what is open ends within a second. */
const recheckMs = 500;
/** As many as one call may name. */
const batchSize = 1_000;

export interface LivePreviews {
  /**
   * A signal that aborts, with the reason, within a second after the preview has expired or was revoked, its sandbox
   * has ended, or its creator is no member any more. Whoever opens it must close it.
   */
  open(preview: Preview): { signal: AbortSignal; close(): void };
}

interface Watched {
  preview: Preview;
  users: number;
  controller: AbortController;
  expiry: NodeJS.Timeout | undefined;
  checkedAtMs: number;
}

/** Watches the previews that have open requests, all of them together. */
export function createLivePreviews(o: {
  clients: Pick<Clients, "previews">;
  scope: Pick<WorkspaceScope, "isMember">;
}): LivePreviews {
  const watched = new Map<string, Watched>();
  let rechecking: NodeJS.Timeout | undefined;

  function forget(watch: Watched): void {
    clearTimeout(watch.expiry);
    if (watched.get(watch.preview.id) === watch) watched.delete(watch.preview.id);
  }

  function end(watch: Watched, reason: DomainError): void {
    // Those who open it from now on look at it afresh.
    forget(watch);
    watch.controller.abort(reason);
  }

  function setExpiry(watch: Watched, expiresAt: Date): void {
    clearTimeout(watch.expiry);
    watch.expiry = setTimeout(() => end(watch, noSuchPreview()), expiresAt.getTime() - Date.now()).unref();
  }

  async function check(batch: readonly Watched[]): Promise<void> {
    const askedAtMs = monotonicMs();
    const requestId = newId();
    try {
      const { previews } = await o.clients.previews.checkPreviews(
        { previewIds: batch.map(({ preview }) => preview.id) },
        asFacade({ requestId, timeoutMs: 2_000 }),
      );
      const ends = new Map(previews.map(({ previewId, expiresAt }) => [previewId, timestampDate(present(expiresAt))]));
      await Promise.all(
        batch.map(async (watch) => {
          const { id, workspaceId, createdBy } = watch.preview;
          const expiresAt = ends.get(id);
          const isOpen = expiresAt && (await o.scope.isMember(workspaceId, createdBy, requestId));
          // It may have been closed meanwhile.
          if (watched.get(id) !== watch) return;
          if (!isOpen) return end(watch, noSuchPreview());
          watch.checkedAtMs = askedAtMs;
          setExpiry(watch, expiresAt);
        }),
      );
    } catch (cause) {
      for (const watch of batch) {
        if (askedAtMs - watch.checkedAtMs > uncheckedMs) end(watch, unchecked(cause));
      }
    }
  }

  async function checkAll(): Promise<void> {
    for (const watch of watched.values()) if (watch.users === 0) forget(watch);
    if (watched.size === 0) {
      clearInterval(rechecking);
      rechecking = undefined;
      return;
    }
    const all = [...watched.values()];
    const batches = Array.from({ length: Math.ceil(all.length / batchSize) }, (_, index) =>
      all.slice(index * batchSize, (index + 1) * batchSize),
    );
    await Promise.all(batches.map(check));
  }

  function begin(preview: Preview): Watched {
    const controller = new AbortController();
    const watch: Watched = { preview, users: 0, controller, expiry: undefined, checkedAtMs: monotonicMs() };
    setExpiry(watch, timestampDate(present(preview.expiresAt)));
    watched.set(preview.id, watch);
    rechecking ??= setInterval(() => void checkAll(), recheckMs).unref();
    return watch;
  }

  return {
    open(preview) {
      const watch = watched.get(preview.id) ?? begin(preview);
      watch.users++;
      let isOpen = true;
      return {
        signal: watch.controller.signal,
        close() {
          if (!isOpen) return;
          isOpen = false;
          // It is forgotten with the next check, since another request mostly comes before.
          watch.users--;
        },
      };
    },
  };
}

function unchecked(cause: unknown): DomainError {
  return new DomainError("UPSTREAM_ERROR", "Whether the preview still lives can't be checked at the moment.", {
    cause,
  });
}
