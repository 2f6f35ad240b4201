/** What a sandbox has on the disk besides its image. */
export interface DiskUse {
  /** What the storage doesn't keep within its limit. Undefined: nothing that can be measured. */
  bytes?: number;
  /** Undefined: they can't be counted. */
  inodes?: number;
}

/** The disk that an engine keeps containers and images on. Any method may throw RUNTIME_UNAVAILABLE. */
export interface RuntimeDisk {
  /**
   * Measures a running sandbox; undefined: it isn't running. The more files there are, the longer it takes; after two
   * minutes it throws RUNTIME_UNAVAILABLE. Throws the signal's reason when it aborts.
   */
  measure(sandboxId: string, signal: AbortSignal): Promise<DiskUse | undefined>;

  /** Finds the folder on this machine that has containers and images. Undefined where it can't be seen from here. */
  findFolder(): Promise<string | undefined>;
}
