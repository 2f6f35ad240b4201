import { mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { createFairLimit } from "@sandgate/kit/base/fair-limit";
import { mebibyte } from "@sandgate/kit/base/sizes";
import type { AuthorizePullResponse } from "@sandgate/proto/imageregistry/v1/image_registry";
import type { BlobSource, RegistryClient } from "@sandgate/registry-client/registry-client";
import pLimit from "p-limit";
import { createDiskReservations } from "./disk-reservations.ts";
import { cannotStore, downloadLayer, type Layer } from "./layer-download.ts";
import { makeProcessFolder } from "./process-folder.ts";
import { type AuthorizedPull, type PullOrder, sizeOf } from "./pull-authorization.ts";
import type { ServedFile } from "./pull-endpoint.ts";

/** How large an image's layers may be when unpacked, as a multiple of how large they may be packed. */
const maxUnpackedRatio = 4;
/** How many files and folders an image's layers may have for each MB that they may have packed: as ext4 has inodes. */
const maxFilesPerMb = 64;
/** Downloads at once. */
const perPull = 3;
const perWorkspace = 6;
/**
 * Layers unpacked at once, to verify them: Zstandard takes up to 128 MiB for each, and the process has four threads for
 * it.
 */
const unpacking = { perKey: 2, total: 6 };

export interface LayerDownloadsOptions {
  client: Pick<RegistryClient, "openBlobs">;
  /** image-registry's RecordVerifiedLayers. */
  recordVerified(registryHost: string, layers: readonly Layer[], signal: AbortSignal): Promise<void>;
  /** Layers are kept here while their image is pulled, in a folder of this process. */
  folder: string;
  /** MB that the layers of an image may have together. */
  maxImageMb: number;
  /** Bytes that are free for images on the disks of the folder and of the engine, besides what is kept for others. */
  measureAvailable(): Promise<number>;
  /** An engine on this machine stores what is verified here: as it came, and unpacked. */
  hasEngine: boolean;
}

/** The layers of one image that were downloaded and verified. */
export interface VerifiedLayers {
  /** By their digests. */
  readonly files: ReadonlyMap<string, ServedFile>;
  /** Downloads and verifies these too. */
  add(layers: readonly Layer[]): Promise<void>;
}

/** Runs work once the unverified layers of a pull are downloaded and verified, while their files are there. */
export type WithVerifiedLayers = (
  authorized: AuthorizedPull,
  order: Pick<PullOrder, "workspaceId" | "onProgress">,
  signal: AbortSignal,
  work?: (layers: VerifiedLayers) => Promise<void>,
) => Promise<void>;

/** Makes what downloads layers from registries, verifies them, and records that the registry gives them out. */
export function createLayerDownloads(o: LayerDownloadsOptions): WithVerifiedLayers {
  const downloadAll = createParallelDownload();
  const openReservation = createDiskReservations(o.measureAvailable);
  let processFolder: Promise<string> | undefined;

  async function makeImageFolder(): Promise<string> {
    processFolder ??= makeProcessFolder(o.folder);
    processFolder.catch(() => {
      processFolder = undefined;
    });
    try {
      return await mkdtemp(join(await processFolder, "image-"));
    } catch (error) {
      throw cannotStore(error);
    }
  }

  return async ({ pull, unverified }, { workspaceId, onProgress }, callerSignal, work) => {
    const { registryHost } = pull;
    const source = openSource(o.client, pull);
    const folder = await makeImageFolder();
    const files = new Map<string, ServedFile>();
    const stopped = new AbortController();
    const signal = AbortSignal.any([callerSignal, stopped.signal]);
    const reservation = openReservation(workspaceId, signal, () => stopped.abort(tooSlow()));
    const onDownload = (bytes: number) => reservation.reserve(bytes, o.hasEngine ? bytes : 0);
    let unpackedBytes = 0;
    let unpackedFiles = 0;
    const onUnpacked = async (bytes: number, entries: number) => {
      unpackedBytes += bytes;
      unpackedFiles += entries;
      const mostFiles = o.maxImageMb * maxFilesPerMb;
      if (unpackedFiles > mostFiles) {
        const message = `The image's layers have more than ${mostFiles} files and folders.`;
        throw new DomainError("PROVISIONING_FAILED", message);
      }
      const mostMb = o.maxImageMb * maxUnpackedRatio;
      if (unpackedBytes > mostMb * mebibyte) {
        throw new DomainError("PROVISIONING_FAILED", `The image's layers have more than ${mostMb} MB when unpacked.`);
      }
      // What an engine unpacks is on this machine's disk.
      if (o.hasEngine) await reservation.reserve(0, bytes);
    };
    const received = new Map<Layer, number>();
    const onReceived = (layer: Layer, bytes: number) => {
      received.set(layer, bytes);
      onProgress?.({ downloadedBytes: sum(received.values()), totalBytes: sizeOf([...received.keys()]) });
    };
    const add = async (layers: readonly Layer[]) => {
      // Before anything is downloaded in vain.
      await reservation.check((o.hasEngine ? 2 : 1) * sizeOf(layers));
      for (const layer of layers) onReceived(layer, 0);
      const options = { workspaceId, source, registryHost, folder, onDownload, onReceived, onUnpacked, signal };
      reservation.setWaiting(true);
      for (const [digest, file] of await downloadAll(layers, options)) files.set(digest, file);
      reservation.setWaiting(false);
      await o.recordVerified(registryHost, layers, signal);
    };
    try {
      if (unverified.length > 0) await add(unverified);
      await work?.({ files, add });
    } catch (error) {
      stopped.signal.throwIfAborted();
      throw error;
    } finally {
      source.close();
      // Before the space counts as free.
      await rm(folder, { recursive: true, force: true }).finally(reservation.release);
    }
  };
}

function sum(numbers: Iterable<number>): number {
  let total = 0;
  for (const each of numbers) total += each;
  return total;
}

function tooSlow(): DomainError {
  return new DomainError("RUNTIME_UNAVAILABLE", "The image came too slowly while another needed its disk space.");
}

function openSource(client: LayerDownloadsOptions["client"], pull: AuthorizePullResponse): BlobSource {
  const { registryHost: host, registryScheme, repository, username, password } = pull;
  const scheme = registryScheme === "https" || registryScheme === "http" ? registryScheme : undefined;
  return client.openBlobs({ host, scheme }, repository, username === "" ? undefined : { username, password });
}

interface ParallelDownloadOptions {
  workspaceId: string;
  source: BlobSource;
  registryHost: string;
  folder: string;
  onDownload(bytes: number): Promise<void>;
  onReceived(layer: Layer, bytes: number): void;
  onUnpacked(bytes: number, entries: number): Promise<void>;
  signal: AbortSignal;
}

/**
 * Makes what downloads layers into a folder, a few at once, and returns their files by digest. The first failure ends
 * all.
 */
function createParallelDownload() {
  const limitDownloads = createFairLimit({ perKey: perWorkspace });
  const limitUnpacking = createFairLimit(unpacking);

  return async (
    layers: readonly Layer[],
    o: ParallelDownloadOptions,
  ): Promise<[digest: string, file: ServedFile][]> => {
    const failed = new AbortController();
    const signal = AbortSignal.any([o.signal, failed.signal]);
    const limitOwn = pLimit(perPull);
    const download = async (layer: Layer): Promise<[string, ServedFile]> => {
      const path = join(o.folder, layer.digest.replace(":", "-"));
      const unpackInTurn = <T>(work: () => Promise<T>) => limitUnpacking(o.workspaceId, work, signal);
      await downloadLayer({ ...o, layer, file: path, unpackInTurn, signal });
      return [layer.digest, { path, sizeBytes: layer.sizeBytes }];
    };
    const downloads = layers.map((layer) =>
      limitOwn(() => limitDownloads(o.workspaceId, () => download(layer), signal)),
    );
    try {
      return await Promise.all(downloads);
    } catch (error) {
      failed.abort(error);
      // None may write on when the folder is removed.
      await Promise.allSettled(downloads);
      throw error;
    }
  };
}
