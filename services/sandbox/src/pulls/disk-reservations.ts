import { DomainError } from "@sandgate/kit/base/domain-error";

/** For how long a measurement counts, less what was reserved since: others write to the disk too. */
const maxAgeMs = 1_000;

/** The disk space of one pull. */
export interface DiskReservation {
  /** Throws RUNTIME_UNAVAILABLE unless so many bytes are free now. Reserves none. */
  check(bytes: number): Promise<void>;
  /**
   * Reserves space for bytes that are written now, and for bytes that the engine is going to write; the latter until
   * `release`. Throws RUNTIME_UNAVAILABLE when there isn't as much.
   */
  reserve(writtenBytes: number, plannedBytes: number): Promise<void>;
  /** Gives back what was planned. */
  release(): void;
}

/**
 * Shares the disk among pulls. Space is reserved as bytes come, not by the sizes in a manifest: a registry that gives
 * out nothing could keep all others from the disk.
 *
 * @param measureAvailable bytes that are free, besides what is kept for others
 */
export function createDiskReservations(measureAvailable: () => Promise<number>): () => DiskReservation {
  let plannedBytes = 0;
  /** What is left of the last measurement. */
  let left = 0;
  let measuredAt = Number.NEGATIVE_INFINITY;
  let measuring: Promise<void> | undefined;

  function measure(): Promise<void> {
    measuring ??= measureAvailable()
      .then((bytes) => {
        left = bytes - plannedBytes;
        measuredAt = performance.now();
      })
      .finally(() => {
        measuring = undefined;
      });
    return measuring;
  }

  async function require(bytes: number): Promise<void> {
    if (left < bytes || performance.now() - measuredAt > maxAgeMs) await measure();
    if (left >= bytes) return;
    throw new DomainError("RUNTIME_UNAVAILABLE", "There isn't enough disk space for the image.");
  }

  return () => {
    let own = 0;
    return {
      check: require,
      async reserve(written, planned) {
        await require(written + planned);
        left -= written + planned;
        plannedBytes += planned;
        own += planned;
      },
      release() {
        plannedBytes -= own;
        left += own;
        own = 0;
      },
    };
  };
}
