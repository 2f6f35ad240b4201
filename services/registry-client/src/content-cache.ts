import { LRUCache } from "lru-cache";

/** Contents by the host that gave them out and their digest. The least recently used go first. */
export interface ContentCache {
  get(host: string, digest: string): Buffer | undefined;
  set(host: string, digest: string, content: Buffer): void;
}

/** What an entry takes besides its content, about; contents may be of a few bytes, and then there are many. */
const entryBytes = 512;

export function createContentCache(maxBytes: number): ContentCache {
  const contents = new LRUCache<string, Buffer>({
    maxSize: maxBytes,
    sizeCalculation: (content) => content.length + entryBytes,
  });
  return {
    get: (host, digest) => contents.get(`${host} ${digest}`),
    set: (host, digest, content) => contents.set(`${host} ${digest}`, content),
  };
}
