import { createHash } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { DomainError, hasReason } from "@sandgate/kit/base/domain-error";
import { createFairLimit } from "@sandgate/kit/base/fair-limit";
import type { ImageStore, PulledImage } from "../runtime/images.ts";
import type { ImageCache } from "./image-cache.ts";
import type { VerifiedLayers, WithVerifiedLayers } from "./layer-downloads.ts";
import type { AuthorizedPull, AuthorizePull, PullOrder } from "./pull-authorization.ts";
import type { PullEndpoint } from "./pull-endpoint.ts";
import { type ImageDocuments, withoutVolumes } from "./without-volumes.ts";

/** Where pulled images go. */
export interface PullDestination {
  /** The registry on this machine that the engine pulls from. */
  endpoint: PullEndpoint;
  store: Pick<ImageStore, "find" | "pull">;
  cache: Pick<ImageCache, "using" | "requestTrim">;
}

/** After that many pulls by the engine that ended for want of a layer, all layers are downloaded. */
const roundsForMissing = 3;
/**
 * An engine downloads a layer once for all the pulls that want it then, so a layer that is denied to one of them fails
 * the others too. They are made again, this often in all.
 */
const attempts = 4;
const pauseMs = 200;
/** Engines accept at most this many characters before the digest of a reference. */
const maxNameCharacters = 200;

/** The image as the endpoint serves it. */
interface ServedDocuments extends ImageDocuments {
  /** Its repository's name there. */
  name: string;
  /** What the engine calls it. */
  localReference: string;
}

/**
 * Makes what finds an authorized image on the engine, or pulls it there from the endpoint, which has only what was
 * verified.
 */
export function createEnginePulls(o: {
  destination: PullDestination;
  authorize: AuthorizePull;
  withVerifiedLayers: WithVerifiedLayers;
}): (order: PullOrder, authorized: AuthorizedPull, signal: AbortSignal) => Promise<PulledImage> {
  const { endpoint, store, cache } = o.destination;
  const limitOrders = createFairLimit({ perKey: 1 });

  async function documentsOf({ pull }: AuthorizedPull): Promise<ServedDocuments> {
    const name = repositoryName(pull.registryHost, pull.repository);
    const digest = pull.pinnedReference.slice(pull.pinnedReference.lastIndexOf("@") + 1);
    const { manifest, config } = withoutVolumes({
      manifest: { digest, content: pull.manifest },
      config: { digest: pull.configDigest, content: pull.config },
    });
    return { manifest, config, name, localReference: `${await listen(endpoint)}/${name}@${manifest.digest}` };
  }

  /** Undefined: the engine doesn't have it by that name. */
  async function find(localReference: string, { pull }: AuthorizedPull): Promise<PulledImage | undefined> {
    const image = await store.find(localReference);
    return image && { ...image, digest: pull.digest };
  }

  async function pull(order: PullOrder, signal: AbortSignal): Promise<PulledImage> {
    const authorized = await o.authorize(order, signal);
    const documents = await documentsOf(authorized);
    const known = await find(documents.localReference, authorized);
    if (known && authorized.unverified.length === 0) return known;
    await o.withVerifiedLayers(authorized, order, signal, (layers) =>
      pullToEngine(authorized, documents, layers, signal),
    );
    cache.requestTrim();
    const pulled = await find(documents.localReference, authorized);
    if (!pulled) throw new DomainError("RUNTIME_UNAVAILABLE", "The image was missing after its pull.");
    return pulled;
  }

  async function pullToEngine(
    authorized: AuthorizedPull,
    { name, localReference, manifest, config }: ServedDocuments,
    verified: VerifiedLayers,
    signal: AbortSignal,
  ): Promise<void> {
    const all = [...authorized.layers.values()];
    let failures = 0;
    for (let round = 1; ; round++) {
      const open = endpoint.open({
        name,
        manifest: { ...manifest, mediaType: authorized.pull.manifestType },
        config,
        layers: new Map(all.map(({ digest }) => [digest, verified.files.get(digest)])),
      });
      try {
        const { username, password } = open;
        const registryHost = await endpoint.listen();
        return await store.pull({ pinnedReference: localReference, registryHost, username, password, signal });
      } catch (error) {
        signal.throwIfAborted();
        const missing = open.missing();
        if (missing.length > 0) {
          const wanted = round < roundsForMissing ? all.filter(({ digest }) => missing.includes(digest)) : all;
          await verified.add(wanted.filter(({ digest }) => !verified.files.has(digest)));
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

  return async (order, authorized, signal) => {
    const { localReference } = await documentsOf(authorized);
    return cache.using(localReference, async () => {
      const known = await find(localReference, authorized);
      if (known && authorized.unverified.length === 0) return known;
      // One at a time: those that wait find what the first has pulled.
      return limitOrders(`${order.workspaceId} ${localReference}`, () => pull(order, signal), signal);
    });
  };
}

async function listen(endpoint: PullEndpoint): Promise<string> {
  try {
    return await endpoint.listen();
  } catch (cause) {
    throw new DomainError(
      "RUNTIME_UNAVAILABLE",
      "The platform can't listen on the port that the engine pulls images from.",
      {
        cause,
      },
    );
  }
}

/**
 * An engine's error about our endpoint says nothing about the image's registry. Only that the engine can't run the
 * image is about the image.
 */
function atEndpoint(error: unknown): unknown {
  if (!(error instanceof DomainError) || hasReason(error, "PROVISIONING_FAILED")) return error;
  return new DomainError("RUNTIME_UNAVAILABLE", "The container engine did not accept the image.", { cause: error });
}

/** A registry's repository as one of the endpoint's: `ghcr.io/team/tool`, `registry.example_5000/tool`. */
function repositoryName(registryHost: string, repository: string): string {
  const host = registryHost.replace(/[^a-z0-9.-]+/g, "_").replace(/^_|_$/g, "");
  const name = `${host}/${repository}`;
  return name.length <= maxNameCharacters ? name : `long/${createHash("sha256").update(name).digest("hex")}`;
}
