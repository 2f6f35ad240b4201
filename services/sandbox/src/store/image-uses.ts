/** When a pulled image was last used, by a name that it has on the engine. */
export interface ImageUse {
  name: string;
  at: Date;
}

export interface ImageUses {
  /** Records the use of a pulled image, unless a later one is known. */
  record(use: ImageUse): Promise<void>;
  /** Of all images that were not forgotten. */
  list(): Promise<ImageUse[]>;
  /** Forgets the uses of images that the engine doesn't have any more. */
  forget(names: readonly string[]): Promise<void>;
}
