import type { Logger } from "@sandgate/kit/base/logging";
import { type PeriodicTask, startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { hourMs, minuteMs, monotonicMs } from "@sandgate/kit/base/time";
import { createWakeup } from "@sandgate/kit/base/wakeup";
import type { ImageStore } from "../runtime/images.ts";

/** How often a use is stored at most for each image. */
const resolutionMs = minuteMs;
/**
 * As how large an image counts at least, for each of its names: however small, it has its files and its place in the
 * engine's list.
 */
const minBytes = 16 * mebibyte;
/** How often the disk is looked at. */
const shortageMs = minuteMs;
/** An image that was used this recently stays: its container may be about to be created. */
const idleMs = 10 * minuteMs;

export interface ImageCacheOptions {
  store: Pick<ImageStore, "list" | "remove">;
  /** When images were used, by their names on the engine. */
  uses: {
    record(use: { name: string; at: Date }): Promise<void>;
    list(): Promise<{ name: string; at: Date }[]>;
    forget(names: readonly string[]): Promise<void>;
  };
  /** Ids of images that sandboxes are going to be created from. */
  findWanted(): Promise<ReadonlySet<string>>;
  /**
   * The host in the names of images that are pulled now. Those of images that were pulled before are known by their
   * uses.
   */
  registryHost(): Promise<string>;
  /** MB that pulled images may take; 0: no limit. */
  maxMb: number;
  /** Describes a disk that has too little free; undefined if there is none. */
  shortage(): Promise<string | undefined>;
  logger: Logger;
}

/**
 * The pulled images on the engine. The least recently used ones are removed while all together exceed their limit, or
 * a disk is short of space or inodes.
 */
export interface ImageCache {
  /** Runs work that pulls or uses an image: the image stays meanwhile, and this counts as its last use. */
  using<T>(name: string, work: () => Promise<T>): Promise<T>;
  /** Has images trimmed soon. */
  requestTrim(): void;
  trim(): Promise<void>;
  /** Trims now, every hour, when requested, and within a minute when a disk is short. */
  start(): PeriodicTask;
}

/** Never removes images that were not pulled through us, nor images that a container or an unfinished sandbox uses. */
export function createImageCache(o: ImageCacheOptions): ImageCache {
  /** By the monotonic clock. */
  const known = new Map<string, { usedAt: number; storedAt: number; holders: number }>();
  const removing = new Map<string, Promise<boolean>>();
  const wakeup = createWakeup();
  /** By the monotonic clock. */
  let trimAt = -Infinity;

  function useOf(name: string) {
    const use = known.get(name) ?? { usedAt: -Infinity, storedAt: -Infinity, holders: 0 };
    known.set(name, use);
    return use;
  }

  async function record(name: string): Promise<void> {
    const use = useOf(name);
    const usedAt = monotonicMs();
    use.usedAt = usedAt;
    if (usedAt - use.storedAt < resolutionMs) return;
    await o.uses.record({ name, at: new Date() });
    use.storedAt = usedAt;
  }

  async function forget(names: readonly string[]): Promise<void> {
    for (const name of names) if (known.get(name)?.holders === 0) known.delete(name);
    await o.uses.forget(names);
  }

  /** Removes an image, unless it has been used meanwhile. Whoever wants it now waits, and finds it gone. */
  async function remove(name: string): Promise<boolean> {
    const { holders, usedAt } = useOf(name);
    if (holders > 0 || monotonicMs() - usedAt < idleMs) return false;
    const work = o.store.remove(name).finally(() => removing.delete(name));
    removing.set(name, work);
    return work;
  }

  /** Lists our images, the least recently used first. An image that a container uses counts as used now. */
  async function listOurs() {
    const host = await o.registryHost();
    const uses = new Map((await o.uses.list()).map(({ name, at }) => [name, at.getTime()]));
    const ours = (await o.store.list()).flatMap((image) => {
      const names = image.names.filter((name) => uses.has(name) || name.startsWith(`${host}/`));
      return names.length === 0 ? [] : [{ ...image, names }];
    });
    for (const { names, isUsed } of ours) {
      for (const name of names) if (isUsed || !uses.has(name)) await record(name);
    }
    const now = Date.now();
    const present = new Set(ours.flatMap(({ names }) => names));
    const gone = [...uses.keys()].filter((name) => !present.has(name) && !known.get(name)?.holders);
    if (gone.length > 0) await forget(gone);
    return ours
      .map((image) => ({
        ...image,
        countedBytes: Math.max(image.sizeBytes, image.names.length * minBytes),
        usedAt: Math.max(...image.names.map((name) => uses.get(name) ?? now)),
      }))
      .sort((one, other) => one.usedAt - other.usedAt);
  }

  async function trim(): Promise<void> {
    const images = await listOurs();
    let bytes = images.reduce((sum, { countedBytes }) => sum + countedBytes, 0);
    const isTooMuch = async () => (o.maxMb > 0 && bytes > o.maxMb * mebibyte) || (await o.shortage()) !== undefined;
    if (!(await isTooMuch())) return;
    const wanted = await o.findWanted();
    for (const { id, names, sizeBytes, countedBytes, usedAt } of images) {
      if (wanted.has(id) || Date.now() - usedAt < idleMs) continue;
      if (!(await isTooMuch())) return;
      const removed = await Promise.all(names.map(remove)).catch((error: unknown) => {
        o.logger.warn({ err: error, names }, "an image can't be removed; will retry");
        return [false];
      });
      if (removed.includes(false)) continue;
      bytes -= countedBytes;
      o.logger.info({ names, sizeBytes }, "an image that was not used for long was removed");
      await forget(names);
    }
  }

  return {
    async using(name, work) {
      const use = useOf(name);
      use.holders += 1;
      try {
        // One that can't be removed is there.
        await removing.get(name)?.catch(() => undefined);
        const result = await work();
        await record(name);
        return result;
      } finally {
        use.holders -= 1;
      }
    },
    requestTrim() {
      trimAt = -Infinity;
      wakeup.wake();
    },
    trim,
    start: () =>
      startPeriodicTask({
        what: "remove images that were not used for long",
        everyMs: 1_000,
        logger: o.logger,
        async work(signal) {
          if (monotonicMs() >= trimAt || (await o.shortage()) !== undefined) {
            trimAt = monotonicMs() + hourMs;
            await trim().catch((error: unknown) => {
              trimAt = -Infinity;
              throw error;
            });
          }
          await wakeup.wait(shortageMs, signal);
        },
      }),
  };
}
