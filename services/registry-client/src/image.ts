import { mebibyte } from "@sandgate/kit/base/sizes";
import { type Descriptor, ManifestRefused, readDiffIds, readManifest } from "./manifest.ts";
import type { Reference } from "./reference.ts";
import type { Repository } from "./repository.ts";

const maxConfigBytes = mebibyte;

export interface Layer extends Descriptor {
  /** The digest of its unpacked content, as the image's config has it. Engines tell layers apart by this. */
  readonly diffId: string;
}

/** An image as its registry gives it out to a credential. */
export interface RegistryImage {
  /** Of what the reference names, an index perhaps. */
  readonly digest: string;
  /** Of the image for this architecture. */
  readonly manifestDigest: string;
  readonly manifest: Buffer;
  readonly mediaType: string;
  readonly config: Descriptor & { readonly content: Buffer };
  readonly layers: readonly Layer[];
}

/** The image's manifest: of an index, the one for this architecture. */
async function chooseImage(repository: Repository, digest: string, content: Buffer) {
  const named = readManifest(content);
  if (named.kind === "image") {
    return { manifestDigest: digest, manifest: content, image: named, isGivenOut: Promise.resolve() };
  }
  const [manifestDigest] = named.candidates;
  if (manifestDigest === undefined) throw new ManifestRefused("has no image for linux on this architecture");
  const { content: manifest, isGivenOut } = await repository.fetchManifest(manifestDigest);
  const image = readManifest(manifest);
  if (image.kind === "index") throw new ManifestRefused("is an index within an index");
  return { manifestDigest, manifest, image, isGivenOut };
}

/** Reads an image. Layers that `chooseAsked` returns, given all, are asked for (HEAD). Throws a ManifestRefused. */
export async function readImage(
  repository: Repository,
  { tag = "latest", digest: pinned }: Reference,
  chooseAsked: (layers: readonly Layer[]) => Promise<readonly string[]>,
): Promise<RegistryImage> {
  const named = pinned === undefined ? await repository.fetchTagged(tag) : await repository.fetchManifest(pinned);
  // First and alone, since its answer gives the authorization for the others.
  if ("isGivenOut" in named) await named.isGivenOut;
  const digest = "digest" in named ? named.digest : (pinned ?? "");
  const { manifestDigest, manifest, image, isGivenOut } = await chooseImage(repository, digest, named.content);
  const { config, mediaType } = image;
  if (config.size > maxConfigBytes) throw new ManifestRefused("names a config that is too large");
  const { content, isGivenOut: isConfigGivenOut } = await repository.fetchBlob(config.digest);
  // An engine would refuse it, having asked for the size that the manifest has.
  if (content.length !== config.size) throw new ManifestRefused("names a config of another size");
  const diffIds = readDiffIds(content);
  if (diffIds.length !== image.layers.length) throw new ManifestRefused("has other layers than the image's config");
  const layers = image.layers.map((layer, index) => ({ ...layer, diffId: diffIds[index] ?? "" }));
  const asked = await chooseAsked(layers);
  await Promise.all([isGivenOut, isConfigGivenOut, ...asked.map(repository.checkBlob)]);
  return { digest, manifestDigest, manifest, mediaType, config: { ...config, content }, layers };
}
