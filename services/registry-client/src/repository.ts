import { createHash } from "node:crypto";
import type { LRUCache } from "lru-cache";
import type { ContentCache } from "./content-cache.ts";
import { discard, type GuardedResponse, readBody } from "./guarded-request.ts";
import { hasDigest } from "./manifest.ts";
import { isDigest } from "./reference.ts";
import { problemOf, RegistryError } from "./registry-error.ts";
import type { Send } from "./session.ts";

const manifestTypes = [
  "application/vnd.oci.image.index.v1+json",
  "application/vnd.oci.image.manifest.v1+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
  "application/vnd.docker.distribution.manifest.v2+json",
].join(", ");

/** What registries gave out. */
export interface RegistryCaches {
  /** Only for the host that gave it out: that another one names a digest doesn't show that it has the content. */
  readonly contents: ContentCache;
  /** Tags whose manifests were read, by `host/path:tag`. */
  readonly tags: LRUCache<string, true>;
}

export type Repository = ReturnType<typeof openRepository>;

/** Opens a repository below `base`, in one session. What the registry refuses or lacks is thrown as a RegistryError. */
export function openRepository(o: {
  host: string;
  base: URL;
  send: Send;
  caches: RegistryCaches;
  signal: AbortSignal;
}) {
  const { host, base, send, signal } = o;
  const { contents, tags } = o.caches;

  async function get(path: string): Promise<Buffer> {
    const response = await send(new URL(path, base), { headers: headersFor(path), signal });
    if (response.status === 200) return readBody(response);
    discard(response);
    throw problemOf(response, host, path);
  }

  async function head(path: string): Promise<GuardedResponse> {
    const response = await send(new URL(path, base), { method: "HEAD", headers: headersFor(path), signal });
    discard(response);
    return response;
  }

  /** Asks whether the registry would give this out. */
  async function check(path: string): Promise<void> {
    const asked = await head(path);
    if (asked.status === 200) return;
    // Some registries redirect to storage with a signature for GET alone, and some don't know HEAD.
    if (asked.url.host === base.host && ![405, 501].includes(asked.status)) throw problemOf(asked, host, path);
    const begun = await send(new URL(path, base), { headers: { ...headersFor(path), range: "bytes=0-0" }, signal });
    begun.body.destroy();
    if (begun.status !== 200 && begun.status !== 206) throw problemOf(begun, host, path);
  }

  /** What has this digest; `isGivenOut` settles once the registry has given it out, or would do so again. */
  async function fetchContent(path: string, digest: string): Promise<{ content: Buffer; isGivenOut: Promise<void> }> {
    const content = contents.get(host, digest);
    if (content) {
      const isGivenOut = check(path);
      isGivenOut.catch(() => {});
      return { content, isGivenOut };
    }
    const body = await get(path);
    if (!hasDigest(body, digest)) {
      throw new RegistryError("not_found", `The registry ${host} answers with something other than ${digest}.`);
    }
    contents.set(host, digest, body);
    return { content: body, isGivenOut: Promise.resolve() };
  }

  return {
    checkBlob: (digest: string) => check(`blobs/${digest}`),
    fetchBlob: (digest: string) => fetchContent(`blobs/${digest}`, digest),
    fetchManifest: (digest: string) => fetchContent(`manifests/${digest}`, digest),

    /**
     * What a tag names now. Registries count the manifests that they give out, so a known one is only asked for (HEAD).
     */
    async fetchTagged(tag: string): Promise<{ digest: string; content: Buffer }> {
      const path = `manifests/${tag}`;
      const name = `${host}${base.pathname}:${tag}`;
      if (tags.get(name)) {
        const asked = await head(path);
        const digest = String(asked.headers["docker-content-digest"]);
        const content = asked.status === 200 && isDigest(digest) ? contents.get(host, digest) : undefined;
        if (content) return { digest, content };
        if ([401, 403, 404, 429].includes(asked.status)) throw problemOf(asked, host, path);
      }
      const content = await get(path);
      const digest = `sha256:${createHash("sha256").update(content).digest("hex")}`;
      contents.set(host, digest, content);
      tags.set(name, true);
      return { digest, content };
    },
  };
}

function headersFor(path: string): Readonly<Record<string, string>> {
  return path.startsWith("manifests/") ? { accept: manifestTypes } : {};
}
