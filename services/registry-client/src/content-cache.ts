/** Contents by the host that gave them out and their digest. What was not used for longest goes first. */
export interface ContentCache {
  get(host: string, digest: string): Buffer | undefined;
  set(host: string, digest: string, content: Buffer): void;
}

/** What an entry takes besides its content, about; contents may be of a few bytes, and then there are many. */
const entryBytes = 512;

export function createContentCache(maxBytes: number): ContentCache {
  // A map gives its keys in the order in which they were set.
  const contents = new Map<string, Buffer>();
  let bytes = 0;

  function remove(key: string): void {
    const content = contents.get(key);
    if (content) bytes -= content.length + entryBytes;
    contents.delete(key);
  }

  function put(key: string, content: Buffer): void {
    remove(key);
    contents.set(key, content);
    bytes += content.length + entryBytes;
    for (const oldest of contents.keys()) {
      if (bytes <= maxBytes) break;
      remove(oldest);
    }
  }

  return {
    get(host, digest) {
      const key = `${host} ${digest}`;
      const content = contents.get(key);
      if (content) put(key, content);
      return content;
    },
    set: (host, digest, content) => put(`${host} ${digest}`, content),
  };
}
