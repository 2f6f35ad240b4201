import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer, type RequestListener, type Server } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { readAllowedHosts } from "@sandgate/registry-client/allowed-hosts";
import { createGuardedRequest } from "@sandgate/registry-client/guarded-request";
import { createRegistryClient } from "@sandgate/registry-client/registry-client";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { downloadLayer } from "./layer-download.ts";

const content = randomBytes(300_000);
const packed = gzipSync(content);
const { signal } = new AbortController();
const servers: Server[] = [];
let folder: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "sandgate-layers-"));
});
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});
afterAll(() => rm(folder, { recursive: true }));

function digestOf(bytes: Buffer): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}

/** Downloads what should be `packed` from a registry that answers so, and reads the file. */
async function download(
  listener: RequestListener,
  o: {
    bytes?: Buffer;
    diffId?: string;
    sizeBytes?: number;
    maxUnpackedBytes?: number;
    allow?: string[];
    received?: number[];
  } = {},
): Promise<Buffer> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  servers.push(server);
  await once(server, "listening");
  const address = server.address();
  const host = `127.0.0.1:${typeof address === "object" && address?.port}`;
  const allowed = readAllowedHosts([host, ...(o.allow ?? [])]);
  const client = createRegistryClient(createGuardedRequest(allowed), allowed);
  const source = client.openBlobs({ host, scheme: "http" }, "team/tool", undefined);
  const file = join(folder, "layer");
  const { bytes = packed, diffId = digestOf(content), maxUnpackedBytes = 1_000_000 } = o;
  let unpackedBytes = 0;
  const onUnpacked = async (more: number) => {
    unpackedBytes += more;
    if (unpackedBytes > maxUnpackedBytes) throw new Error("too much");
  };
  const layer = { digest: digestOf(bytes), sizeBytes: o.sizeBytes ?? bytes.length, diffId };
  try {
    await downloadLayer({
      source,
      registryHost: host,
      layer,
      file,
      unpackInTurn: (work) => work(),
      onDownload: async () => {},
      onReceived: (_layer, bytes) => o.received?.push(bytes),
      onUnpacked,
      signal,
    });
  } finally {
    source.close();
  }
  return readFile(file);
}

const problem = (name: string) => expect.objectContaining({ name: "RegistryError", problem: name });

test.each([
  ["gzip", packed],
  ["Zstandard", zstdCompressSync(content)],
  ["no packing", content],
])("a layer with %s is stored as it came", async (_how, bytes) => {
  expect(await download((_request, response) => response.end(bytes), { bytes })).toEqual(bytes);
});

test("bytes that have another digest, or another size, are refused", async () => {
  const other = Buffer.from(packed).fill(0, 100, 101);
  const unlike = other.equals(packed) ? Buffer.from(packed).fill(1, 100, 101) : other;
  await expect(download((_request, response) => response.end(unlike))).rejects.toThrow(problem("not_found"));
  const larger = Buffer.concat([packed, Buffer.from("more")]);
  await expect(download((_request, response) => response.end(larger))).rejects.toThrow(problem("not_found"));
  const sizeBytes = packed.length - 1;
  await expect(download((_request, response) => response.end(packed), { sizeBytes })).rejects.toThrow(
    problem("not_found"),
  );
});

test("a layer that is not what the config says when unpacked, or can't be unpacked, is refused", async () => {
  const serve: RequestListener = (_request, response) => response.end(packed);
  await expect(download(serve, { diffId: digestOf(packed) })).rejects.toThrow(problem("not_found"));
  const broken = packed.subarray(0, -100);
  await expect(download((_request, response) => response.end(broken), { bytes: broken })).rejects.toThrow(
    problem("not_found"),
  );
});

test("a layer that unpacks to too much is refused before it is unpacked to the end", async () => {
  const bytes = gzipSync(Buffer.alloc(100_000_000));
  await expect(download((_request, response) => response.end(bytes), { bytes })).rejects.toThrow("too much");
});

test("a layer that is the text by which engines name a stack of layers is refused", async () => {
  const text = Buffer.from([digestOf(content), digestOf(packed)].join(" "));
  for (const bytes of [text, gzipSync(text)]) {
    const serve: RequestListener = (_request, response) => response.end(bytes);
    await expect(download(serve, { bytes, diffId: digestOf(text) })).rejects.toThrow(problem("not_found"));
  }
});

test.each([
  ["bzip2", Buffer.concat([Buffer.from("BZh9"), content])],
  ["xz", Buffer.concat([Buffer.from([0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00]), content])],
])("a layer that some engines would unpack as %s is refused", async (_how, bytes) => {
  const serve: RequestListener = (_request, response) => response.end(bytes);
  await expect(download(serve, { bytes, diffId: digestOf(bytes) })).rejects.toThrow(problem("not_found"));
});

test("frames of Zstandard that an engine unpacks, and we don't, are refused", async () => {
  const skipped = Buffer.from([0x5a, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4]);
  const frame = zstdCompressSync(content);
  const zeros = Buffer.alloc(1_000);
  for (const [parts, unpacked] of [
    [[skipped, frame], digestOf(Buffer.concat([skipped, frame]))],
    [[frame, skipped, frame], digestOf(content)],
    [[zstdCompressSync(zeros), frame], digestOf(zeros)],
  ] as const) {
    const bytes = Buffer.concat(parts);
    const serve: RequestListener = (_request, response) => response.end(bytes);
    await expect(download(serve, { bytes, diffId: unpacked })).rejects.toThrow(problem("not_found"));
  }
});

test("a download that was cut off goes on where it was", async () => {
  const ranges: (string | undefined)[] = [];
  const received: number[] = [];
  const half = Math.floor(packed.length / 2);
  const serve: RequestListener = (request, response) => {
    ranges.push(request.headers.range);
    const from = Number(/\d+/.exec(request.headers.range ?? "")?.[0] ?? 0);
    response.writeHead(from > 0 ? 206 : 200, { "content-length": packed.length - from });
    if (from > 0) return response.end(packed.subarray(from));
    return response.write(packed.subarray(0, half), () => setTimeout(() => response.destroy(), 50));
  };
  const bytes = await download(serve, { received });
  expect(bytes).toEqual(packed);
  expect(ranges).toHaveLength(2);
  expect(received).toEqual(received.toSorted((one, other) => one - other));
  expect(received.at(-1)).toBe(packed.length);
});

test("a download goes on where it was when the registry comes back, but not when it refuses", async () => {
  const half = Math.floor(packed.length / 2);
  const serve = (refusal: number, ranges: (string | undefined)[]): RequestListener => {
    return (request, response) => {
      ranges.push(request.headers.range);
      if (ranges.length === 2) return response.writeHead(refusal).end();
      const from = Number(/\d+/.exec(request.headers.range ?? "")?.[0] ?? 0);
      response.writeHead(from > 0 ? 206 : 200, { "content-length": packed.length - from });
      if (from > 0) return response.end(packed.subarray(from));
      return response.write(packed.subarray(0, half), () => setTimeout(() => response.destroy(), 50));
    };
  };
  const ranges: string[] = [];
  expect(await download(serve(503, ranges))).toEqual(packed);
  expect(ranges).toHaveLength(3);
  expect(ranges[2]).toBe(ranges[1]);
  await expect(download(serve(404, []))).rejects.toThrow(problem("not_found"));
});

test("a registry that can't resume starts from the beginning", async () => {
  let asked = 0;
  const bytes = await download((_request, response) => {
    asked += 1;
    response.writeHead(200, { "content-length": packed.length });
    if (asked > 1) return response.end(packed);
    return response.write(packed.subarray(0, 1_000), () => setTimeout(() => response.destroy(), 50));
  });
  expect(bytes).toEqual(packed);
});

test("a redirect to an address that nobody allowed is refused, and nothing is asked there", async () => {
  let asked = 0;
  const inside = createServer((_request, response) => {
    asked += 1;
    response.end(packed);
  }).listen(0, "127.0.0.1");
  servers.push(inside);
  await once(inside, "listening");
  const address = inside.address();
  const host = `127.0.0.1:${typeof address === "object" && address?.port}`;
  const redirect: RequestListener = (_request, response) =>
    response.writeHead(307, { location: `http://${host}/layer` }).end();
  await expect(download(redirect)).rejects.toThrow(problem("refused_address"));
  expect(asked).toBe(0);
  expect(await download(redirect, { allow: [host] })).toEqual(packed);
});
