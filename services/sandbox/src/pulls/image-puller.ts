import { createHash } from "node:crypto";
import { mkdir, mkdtemp, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { DomainError, hasReason } from "@sandgate/kit/base/domain-error";
import { createFairLimit } from "@sandgate/kit/base/fair-limit";
import { mebibyte } from "@sandgate/kit/base/sizes";
import type { AuthorizePullResponse } from "@sandgate/proto/imageregistry/v1/image_registry";
import {
  type BlobSource,
  pullFailureReasons,
  type RegistryClient,
  RegistryError,
} from "@sandgate/registry-client/registry-client";
import pLimit from "p-limit";
import type { ImageAccess, ImageStore, PulledImage } from "../runtime/images.ts";
import { createDiskRoom, type RoomOfPull } from "./disk-room.ts";
import type { ImageCache } from "./image-cache.ts";
import { downloadLayer, isDiskError, type Layer } from "./layer-download.ts";
import type { PullEndpoint, ServedFile } from "./pull-endpoint.ts";
import { volumesOf, withoutVolumes } from "./without-volumes.ts";

export interface PullOrder {
  readonly workspaceId: string;
  /** Empty: pulled without a credential. */
  readonly registryId: string;
  /** host/repository:tag or host/repository@digest. */
  readonly reference: string;
}

/** What brings images to an engine. */
export interface EngineOfPulls {
  endpoint: PullEndpoint;
  store: Pick<ImageStore, "find" | "pull">;
  cache: Pick<ImageCache, "using" | "requestTrim">;
}

/** What makes images ready to run. */
export interface ImagePuller {
  /**
   * Makes sure that the image is on the engine, or without one that the registry gives out each of its layers to the workspace. Throws
   * IMAGE_PULL_UNAUTHORIZED, IMAGE_NOT_FOUND_IN_REGISTRY, REGISTRY_UNREACHABLE, PROVISIONING_FAILED (too large, or not for this
   * engine) or RUNTIME_UNAVAILABLE.
   */
  pull(order: PullOrder, signal: AbortSignal): Promise<PulledImage>;
  /** How a runtime pulls the image itself. Throws the same. */
  findAccess(order: PullOrder, signal: AbortSignal): Promise<ImageAccess>;
}

export interface ImagePullerOptions {
  /** image-registry's AuthorizePull. */
  authorizePull(order: PullOrder, signal: AbortSignal): Promise<AuthorizePullResponse>;
  /** image-registry's RecordVerifiedLayers. */
  recordVerified(registryHost: string, layers: readonly Layer[], signal: AbortSignal): Promise<void>;
  client: Pick<RegistryClient, "openBlobs">;
  /** Undefined where each container's image is pulled by the runtime, from the image's own registry. */
  engine: EngineOfPulls | undefined;
  /** Layers are kept here while their image is pulled, in a folder of this process. */
  folder: string;
  /** MB that the layers of an image may have together. */
  maxImageMb: number;
  /** Bytes that are free for images on the disks of the folder and of the engine, besides what is kept for others. */
  measureRoom: () => Promise<number>;
}

/** More than engines run. */
const maxLayers = 127;
/** How large an image's layers may be when unpacked, as a multiple of how large they may be packed. */
const maxUnpackedRatio = 4;
/** Downloads at once. */
const perPull = 3;
const perWorkspace = 6;
/** Layers unpacked at once, to verify them: Zstandard takes up to 128 MiB for each, and the process has four threads for it. */
const unpacking = { perKey: 2, total: 6 };
/** After that many pulls by the engine that ended for want of a layer, all layers are downloaded. */
const roundsForMissing = 3;
/**
 * An engine downloads a layer once for all the pulls that want it then, so one that is denied to one of them fails the others
 * too. They are made again, this often in all.
 */
const attempts = 4;
const pauseMs = 200;

/**
 * Brings images to the engine. Layers that a registry has not been seen to give out yet are downloaded and verified
 * first, whether the engine has them or not, since it may have them from another tenant. Then the engine pulls from the
 * endpoint, which has only what was verified: only the guarded client connects to addresses that a tenant names, and no
 * registry, however slow, holds one of the engine's few downloads at once.
 */
export function createImagePuller(o: ImagePullerOptions): ImagePuller {
  const limitOrders = createFairLimit({ perKey: 1 });
  const limitDownloads = createFairLimit({ perKey: perWorkspace });
  const limitUnpacking = createFairLimit(unpacking);
  let ownFolder: Promise<string> | undefined;
  const openRoom = createDiskRoom(o.measureRoom);

  function openOwnFolder(): Promise<string> {
    ownFolder ??= makeOwnFolder(o.folder);
    ownFolder.catch(() => {
      ownFolder = undefined;
    });
    return ownFolder;
  }

  async function authorize(order: PullOrder, signal: AbortSignal) {
    const pull = await o.authorizePull(order, signal);
    if (pull.manifest.length === 0) {
      throw new DomainError(
        "UPSTREAM_ERROR",
        "image-registry runs an earlier version, which doesn't list an image's layers.",
      );
    }
    const layers = new Map(
      pull.layers.map(({ digest, sizeBytes, diffId }) => [digest, { digest, diffId, sizeBytes: Number(sizeBytes) }]),
    );
    checkSize([...layers.values()], pull.layers.length);
    const unverified = [...layers.values()].filter(
      ({ digest }) => !pull.layers.some((layer) => layer.digest === digest && layer.verified),
    );
    return { pull, layers, unverified };
  }
  type Authorized = Awaited<ReturnType<typeof authorize>>;

  function checkSize(layers: readonly Layer[], count: number): void {
    const bytes = sizeOf(layers);
    if (count > maxLayers) {
      throw new DomainError("PROVISIONING_FAILED", `The image has ${count} layers; ${maxLayers} are allowed.`);
    }
    if (bytes > o.maxImageMb * mebibyte) {
      const size = Math.ceil(bytes / mebibyte);
      throw new DomainError("PROVISIONING_FAILED", `The image's layers have ${size} MB; ${o.maxImageMb} are allowed.`);
    }
  }

  /** The image as the engine is given it, and what the engine calls it. */
  async function localImageOf({ endpoint }: EngineOfPulls, { pull }: Authorized) {
    const name = repositoryName(pull.registryHost, pull.repository);
    const digest = pull.pinnedReference.slice(pull.pinnedReference.lastIndexOf("@") + 1);
    const { manifest, config } = withoutVolumes({
      manifest: { digest, content: pull.manifest },
      config: { digest: pull.configDigest, content: pull.config },
    });
    return { local: `${await listen(endpoint)}/${name}@${manifest.digest}`, name, manifest, config };
  }
  type LocalImage = Awaited<ReturnType<typeof localImageOf>>;

  /** Undefined: the engine doesn't have it by that name. */
  async function findPulled(
    { store }: EngineOfPulls,
    local: string,
    { pull }: Authorized,
  ): Promise<PulledImage | undefined> {
    const image = await store.find(local);
    return image && { ...image, digest: pull.digest };
  }

  /** Finds the image on the engine, or brings it there. */
  async function findOrPull(
    engine: EngineOfPulls,
    order: PullOrder,
    local: string,
    first: Authorized,
    signal: AbortSignal,
  ) {
    const known = await findPulled(engine, local, first);
    if (known && first.unverified.length === 0) return known;
    // One at a time: those that wait find what the first has brought.
    return limitOrders(
      `${order.workspaceId} ${local}`,
      async () => {
        const authorized = await authorize(order, signal);
        const image = await localImageOf(engine, authorized);
        const before = await findPulled(engine, image.local, authorized);
        if (before && authorized.unverified.length === 0) return before;
        await bring(authorized, order, signal, (layers, download) =>
          pullToEngine(engine, authorized, image, layers, download, signal),
        );
        engine.cache.requestTrim();
        const after = await findPulled(engine, image.local, authorized);
        if (!after) throw new DomainError("RUNTIME_UNAVAILABLE", "The image was not there after it was pulled.");
        return after;
      },
      signal,
    );
  }

  /** Downloads layers into the folder, and returns their files. The first failure ends all. */
  async function downloadAll(
    pull: AuthorizePullResponse,
    source: BlobSource,
    layers: readonly Layer[],
    folder: string,
    room: RoomOfPull,
    onUnpacked: (bytes: number) => Promise<void>,
    order: PullOrder,
    signal: AbortSignal,
  ): Promise<[digest: string, file: ServedFile][]> {
    const failed = new AbortController();
    const either = AbortSignal.any([signal, failed.signal]);
    const limitOwn = pLimit(perPull);
    const downloads = layers.map((layer) =>
      limitOwn(() =>
        limitDownloads(
          order.workspaceId,
          async (): Promise<[string, ServedFile]> => {
            const path = join(folder, layer.digest.replace(":", "-"));
            await downloadLayer({
              source,
              registryHost: pull.registryHost,
              layer,
              file: path,
              unpackInTurn: (work) => limitUnpacking(order.workspaceId, work, either),
              // The engine stores what we have verified, as it came and unpacked.
              onDownload: (bytes) => room.take(bytes, o.engine ? bytes : 0),
              onUnpacked,
              signal: either,
            });
            return [layer.digest, { path, sizeBytes: layer.sizeBytes }];
          },
          either,
        ),
      ),
    );
    try {
      return await Promise.all(downloads);
    } catch (error) {
      failed.abort(error);
      // None may write on when the folder is removed.
      await Promise.allSettled(downloads);
      throw error;
    }
  }

  /** Downloads and verifies what is not verified, and runs work while the downloaded files are there. */
  async function bring(
    { pull, unverified }: Authorized,
    order: PullOrder,
    signal: AbortSignal,
    work: (
      files: ReadonlyMap<string, ServedFile>,
      download: (wanted: readonly Layer[]) => Promise<void>,
    ) => Promise<void>,
  ): Promise<void> {
    const { registryHost, registryScheme, repository, username, password } = pull;
    const scheme = registryScheme === "https" || registryScheme === "http" ? registryScheme : undefined;
    const credential = username === "" ? undefined : { username, password };
    const source = o.client.openBlobs({ host: registryHost, scheme }, repository, credential);
    const folder = await mkdtemp(join(await openOwnFolder(), "image-"));
    const files = new Map<string, ServedFile>();
    let unpackedBytes = 0;
    const room = openRoom();
    const onUnpacked = async (bytes: number) => {
      unpackedBytes += bytes;
      const mostMb = o.maxImageMb * maxUnpackedRatio;
      if (unpackedBytes > mostMb * mebibyte) {
        throw new DomainError("PROVISIONING_FAILED", `The image's layers have more than ${mostMb} MB when unpacked.`);
      }
      // What an engine unpacks is on this machine's disk.
      if (o.engine) await room.take(0, bytes);
    };
    const download = async (wanted: readonly Layer[]) => {
      // Before anything is downloaded in vain.
      await room.check((o.engine ? 2 : 1) * sizeOf(wanted));
      const got = await downloadAll(pull, source, wanted, folder, room, onUnpacked, order, signal);
      for (const [digest, file] of got) files.set(digest, file);
      await o.recordVerified(registryHost, wanted, signal);
    };
    try {
      if (unverified.length > 0) await download(unverified);
      await work(files, download);
    } finally {
      room.end();
      source.close();
      await rm(folder, { recursive: true, force: true });
    }
  }

  async function pullToEngine(
    { endpoint, store }: EngineOfPulls,
    { pull, layers }: Authorized,
    { local, name, manifest, config }: LocalImage,
    files: ReadonlyMap<string, ServedFile>,
    download: (wanted: readonly Layer[]) => Promise<void>,
    signal: AbortSignal,
  ): Promise<void> {
    let failures = 0;
    for (let round = 1; ; round++) {
      const open = endpoint.open({
        name,
        manifest: { ...manifest, mediaType: pull.manifestType },
        config,
        layers: new Map([...layers.keys()].map((digest) => [digest, files.get(digest)])),
      });
      try {
        await store.pull({
          pinnedReference: local,
          registryHost: await endpoint.listen(),
          username: open.username,
          password: open.password,
          signal,
        });
        return;
      } catch (error) {
        signal.throwIfAborted();
        const missing = open.missing();
        if (missing.length > 0) {
          const wanted = round < roundsForMissing ? missing : [...layers.keys()];
          await download([...layers.values()].filter(({ digest }) => wanted.includes(digest) && !files.has(digest)));
        } else {
          failures += 1;
          if (failures === attempts || hasReason(error, "PROVISIONING_FAILED")) throw atEndpoint(error);
          await delay(pauseMs * failures, undefined, { signal });
        }
      } finally {
        open.end();
      }
    }
  }

  /** Without an engine: nothing is kept, but a layer that was not verified is downloaded once for all. */
  async function verify(order: PullOrder, first: Authorized, signal: AbortSignal): Promise<PulledImage> {
    const imageOf = ({ pull }: Authorized): PulledImage => {
      const { pinnedReference, digest, username } = pull;
      return { pinnedReference, digest, ...(username === "" && { access: accessOf(pull) }) };
    };
    if (first.unverified.length === 0) return imageOf(first);
    return limitOrders(
      `${order.workspaceId} ${first.pull.pinnedReference}`,
      async () => {
        const authorized = await authorize(order, signal);
        if (authorized.unverified.length > 0) await bring(authorized, order, signal, async () => {});
        return imageOf(authorized);
      },
      signal,
    );
  }

  return {
    async pull(order, signal) {
      try {
        const authorized = await authorize(order, signal);
        const { engine } = o;
        if (!engine) return await verify(order, authorized, signal);
        const { local } = await localImageOf(engine, authorized);
        return await engine.cache.using(local, () => findOrPull(engine, order, local, authorized, signal));
      } catch (error) {
        signal.throwIfAborted();
        throw toDomainError(error);
      }
    },
    async findAccess(order, signal) {
      return accessOf(await o.authorizePull(order, signal));
    },
  };
}

function accessOf({ registryHost, username, password, config }: AuthorizePullResponse): ImageAccess {
  return { registryHost, username, password, volumes: volumesOf(config) };
}

function sizeOf(layers: readonly Layer[]): number {
  return layers.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
}

async function listen(endpoint: PullEndpoint): Promise<string> {
  try {
    return await endpoint.listen();
  } catch (cause) {
    throw new DomainError("RUNTIME_UNAVAILABLE", "The port that the engine pulls images from can't be listened on.", {
      cause,
    });
  }
}

/**
 * An engine's error about our endpoint says nothing about the image's registry. Only that the engine can't run the image is
 * about the image.
 */
function atEndpoint(error: unknown): unknown {
  if (!(error instanceof DomainError) || hasReason(error, "PROVISIONING_FAILED")) return error;
  return new DomainError("RUNTIME_UNAVAILABLE", "The container engine did not accept the image.", { cause: error });
}

function toDomainError(error: unknown): unknown {
  if (error instanceof RegistryError) {
    const { problem, message, retryAfterSeconds } = error;
    return new DomainError(pullFailureReasons[problem], message, { cause: error, retryAfterSeconds });
  }
  if (isDiskError(error)) {
    return new DomainError("RUNTIME_UNAVAILABLE", "The image's layers can't be stored.", {
      cause: error,
    });
  }
  return error;
}

/** Engines accept at most this many characters before the digest of a reference. */
const maxNameCharacters = 200;

/** A registry's repository as one of the endpoint's: `ghcr.io/team/tool`, `registry.example_5000/tool`. */
function repositoryName(registryHost: string, repository: string): string {
  const host = registryHost.replace(/[^a-z0-9.-]+/g, "_").replace(/^_+|_+$/g, "");
  const name = `${host}/${repository}`;
  return name.length <= maxNameCharacters ? name : `long/${createHash("sha256").update(name).digest("hex")}`;
}

/** A folder for this process alone. Those of processes that have ended go. */
async function makeOwnFolder(parent: string): Promise<string> {
  await mkdir(parent, { recursive: true, mode: 0o700 });
  for (const name of await readdir(parent)) {
    const pid = Number(/^pull-(\d+)-/.exec(name)?.[1] ?? process.pid);
    if (pid === process.pid || !isAlive(pid)) await rm(join(parent, name), { recursive: true, force: true });
  }
  return mkdtemp(join(parent, `pull-${process.pid}-`));
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error instanceof Error && "code" in error && error.code === "EPERM";
  }
}
