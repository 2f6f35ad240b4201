// The port to the images of an engine that has one store of them, which this platform fills and trims. Any method may
// throw RUNTIME_UNAVAILABLE, as those of lifecycle.ts may.

/**
 * The label of a pulled image with the paths that it declared as volumes, as a list in JSON. It has no volumes any
 * more, and perhaps no folders there.
 */
export const volumesLabel = "sandgate.io/volumes";
/** How many volumes an image may declare: each is a folder, or a mount, of every container. */
export const maxVolumes = 32;

/** An image that a container can be created from. */
export interface PinnedImage {
  /** The image's id on the engine, or `host/name@sha256:…` where the runtime pulls by itself. */
  pinnedReference: string;
  /** The digest of what the image's reference names. */
  digest: string;
}

/** An image that its registry has given out to the sandbox's workspace. */
export interface PulledImage extends PinnedImage {
  /**
   * How a runtime pulls it by itself. Undefined for an image with a credential, which is asked for again at the pull.
   */
  access?: ImageAccess;
}

/** What a runtime needs for a pull of its own. */
export interface ImageAccess {
  /** The `host[:port]` that the credential belongs to. */
  registryHost: string;
  /** Empty for a pull without a credential. */
  username: string;
  password: string;
  /** Paths that the image declares as volumes. */
  volumes: readonly string[];
}

export interface PullRequest {
  /** `host[:port]/name@sha256:…`. */
  pinnedReference: string;
  /** The `host[:port]` that the credential belongs to. */
  registryHost: string;
  /** Empty for a pull without a credential. */
  username: string;
  password: string;
  /** When it aborts, the pull ends at the engine too; `pull` then throws the signal's reason. */
  signal: AbortSignal;
}

export interface StoredImage {
  /** As in `PinnedImage.pinnedReference`. */
  id: string;
  /** `host/repository@digest`, for each place that the image was pulled from. */
  names: readonly string[];
  /** Of all its layers, those that it shares with other images included. */
  sizeBytes: number;
  /** A container uses it, whatever the container's state and whosever it is. */
  isUsed: boolean;
}

export interface ImageStore {
  /**
   * Finds an image on the engine, without asking a registry. Only for the references of operator-made default images
   * and for pinned references that were authorized: the engine has images of all tenants.
   */
  find(reference: string): Promise<PinnedImage | undefined>;

  /**
   * Pulls an image onto the engine. A pull authorizes nobody: the engine may not ask the registry at all for a digest
   * that it has. Throws IMAGE_PULL_UNAUTHORIZED (the registry refused the credential), IMAGE_NOT_FOUND_IN_REGISTRY,
   * REGISTRY_UNREACHABLE (also when the registry fails or is overloaded; worth a retry) or PROVISIONING_FAILED (an
   * image that this engine can't run, such as one for another architecture).
   */
  pull(request: PullRequest): Promise<void>;

  /** Lists all images of the engine that have a name, also those that it has for others. */
  list(): Promise<StoredImage[]>;

  /**
   * Takes a name from an image, and removes the image with its last name. False: a container uses it, or it has no such
   * name.
   */
  remove(name: string): Promise<boolean>;
}
