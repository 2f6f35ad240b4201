/** Bytes that a sandbox has written. "limited": the storage keeps it within its limit. Undefined: it isn't running. */
export type DiskUse = number | "limited" | undefined;

/** The disk that an engine keeps containers and images on. Any method may throw RUNTIME_UNAVAILABLE. */
export interface RuntimeDisk {
  /**
   * Measures what a running sandbox has on the disk besides its image. The more files there are, the longer it takes;
   * after two minutes it throws RUNTIME_UNAVAILABLE. Throws the signal's reason when it aborts.
   */
  measure(sandboxId: string, signal: AbortSignal): Promise<DiskUse>;

  /** Finds the folder on this machine that has containers and images. Undefined where it can't be seen from here. */
  findFolder(): Promise<string | undefined>;
}
