import { DomainError } from "@sandgate/kit/base/domain-error";

/** For how long a measurement counts, less what was taken since: others write to the disk too. */
const maxAgeMs = 1_000;

/** What one pull takes of the room on the disk. */
export interface RoomOfPull {
  /** Throws RUNTIME_UNAVAILABLE unless there is room for so many bytes now. Takes none. */
  check(bytes: number): Promise<void>;
  /**
   * Takes room for bytes that are written now, and for bytes that the engine is going to write; the latter until `end`. Throws
   * RUNTIME_UNAVAILABLE when there isn't as much.
   */
  take(writtenBytes: number, plannedBytes: number): Promise<void>;
  /** Gives back what was planned. */
  end(): void;
}

/**
 * Shares the room on the disk among pulls. Room is taken as bytes come, not by the sizes that a manifest has: a registry that
 * gives out nothing could keep all others from the disk.
 *
 * @param measureRoom bytes that are free, besides what is kept for others
 */
export function createDiskRoom(measureRoom: () => Promise<number>): () => RoomOfPull {
  let plannedBytes = 0;
  /** What is left of the last measurement. */
  let left = 0;
  let measuredAt = Number.NEGATIVE_INFINITY;
  let measuring: Promise<void> | undefined;

  function measure(): Promise<void> {
    measuring ??= measureRoom()
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
      async take(written, planned) {
        await require(written + planned);
        left -= written + planned;
        plannedBytes += planned;
        own += planned;
      },
      end() {
        plannedBytes -= own;
        left += own;
        own = 0;
      },
    };
  };
}
