import { request } from "node:http";
import { buffer } from "node:stream/consumers";
import { gzipSync } from "node:zlib";
import { until } from "@sandgate/test-support/until";
import { extract, type Header, pack } from "tar-stream";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Answer, expectError, expectInvalid, expectStatus } from "./client.ts";
import { readEvents, type StreamEvent } from "./event-stream.ts";
import { type Box, openBox } from "./sandbox-box.ts";
import { requireSandboxHost } from "./sandbox-host.ts";
import { isReplicated, requireSettings } from "./target.ts";

type Entry = Partial<Header> & { name: string; content?: string };

const mebibyte = 1024 * 1024;
const maxBodies = 32;
const octets = { "content-type": "application/x-tar" };

function tarOf(...entries: Entry[]): Promise<Buffer> {
  const archive = pack();
  for (const { content = "", ...header } of entries) archive.entry(header, content);
  archive.finalize();
  return buffer(archive);
}

/** What an archive has, by name. */
async function readTar(archive: Buffer): Promise<Map<string, Header & { content: string }>> {
  const found = new Map<string, Header & { content: string }>();
  const entries = extract();
  entries.end(archive);
  for await (const entry of entries) {
    const content = (await buffer(entry)).toString();
    found.set(entry.header.name, { ...entry.header, content });
  }
  return found;
}

const at = (path: string, more = "") => `files/archive?path=${encodeURIComponent(path)}${more}`;

function put(box: Box, path: string, archive: Buffer, headers: Record<string, string> = {}): Promise<Answer> {
  const options = { ...box.as(), headers: { ...octets, ...headers }, raw: archive as unknown as string };
  return box.target.send("PUT", box.path(at(path)), options);
}

describe.runIf(await requireSandboxHost())("archives", () => {
  let box: Box;
  let folders = 0;

  beforeAll(async () => {
    box = await openBox();
  });
  afterAll(() => box?.close());

  const newFolder = async (): Promise<string> => {
    const path = `/tmp/of-${folders++}`;
    await box.exec(`mkdir ${path}`);
    return path;
  };
  const listOf = async (folder: string): Promise<string> =>
    (await box.exec(`cd ${folder} && find . ! -name . -exec stat -c '%n %a %u:%g %Y %F' {} + | sort`)).stdout;

  test("49: a folder goes out and comes back with its modes, owners, times and links", async () => {
    const [from, to] = [await newFolder(), await newFolder()];
    await box.exec(`cd ${from} && mkdir -p venv/bin deep/er empty && echo content > deep/er/file && echo -n > none
      ln -s /usr/bin/python3 venv/bin/python && ln -s ../deep venv/up && mkfifo fifo && chown 1000:1000 deep/er/file
      chmod 4750 deep/er/file && chmod 1777 empty && chmod 500 deep/er
      find . ! -name . ! -type l -exec touch -d '2001-02-03 04:05:06' {} +`);
    const answer = await box.fetch(at(from));
    expect(answer.status).toBe(200);
    expect(answer.headers.get("content-type")).toBe("application/x-tar");
    expect(answer.headers.get("content-disposition")).toMatch(/^attachment; filename="of-\d+\.tar";/);
    expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
    const archive = Buffer.from(await answer.arrayBuffer());
    const entries = await readTar(archive);
    expect([...entries.keys()].sort()).toEqual(
      [
        "deep/",
        "deep/er/",
        "deep/er/file",
        "empty/",
        "none",
        "venv/",
        "venv/bin/",
        "venv/bin/python",
        "venv/up",
      ].sort(),
    );
    expect(entries.get("venv/bin/python")).toMatchObject({ type: "symlink", linkname: "/usr/bin/python3" });
    expect(entries.get("deep/er/file")).toMatchObject({ type: "file", content: "content\n", uid: 1000 });
    expectStatus(await put(box, to, archive), 204);
    await box.exec(`rm ${from}/fifo`);
    const links = /symbolic link/;
    const kept = (text: string) => text.split("\n").filter((line) => !links.test(line));
    expect(kept(await listOf(to))).toEqual(kept(await listOf(from)));
    const leads = `readlink ${to}/venv/bin/python; readlink ${to}/venv/up; cat ${to}/venv/up/er/file`;
    expect((await box.exec(leads)).stdout).toBe("/usr/bin/python3\n../deep\ncontent\n");
  });

  test("one file is an archive of one entry, and HEAD has the headers of GET", async () => {
    const folder = await newFolder();
    await box.exec(`echo one > ${folder}/file`);
    const entries = await readTar(Buffer.from(await (await box.fetch(at(`${folder}/file`))).arrayBuffer()));
    expect([...entries.values()]).toMatchObject([{ name: "file", content: "one\n" }]);
    const head = await box.fetch(at(folder), { method: "HEAD" });
    expect([head.status, head.headers.get("content-type")]).toEqual([200, "application/x-tar"]);
  });

  test("what is no folder or file, or isn't there, is refused", async () => {
    const folder = await newFolder();
    await box.exec(`cd ${folder} && touch file && mkfifo fifo`);
    const archive = await tarOf({ name: "a", content: "a" });
    expectError(await box.target.get(box.path(at(`${folder}/none`)), box.as()), "not_found");
    expectError(await put(box, `${folder}/none`, archive), "not_found");
    expectError(await put(box, `${folder}/file`, archive), "conflict");
    expectError(await box.target.get(box.path(at(`${folder}/fifo`)), box.as()), "conflict");
    expectInvalid(await put(box, "", archive), "query.path");
  });

  test("gzip is by Content-Encoding, and must be whole", async () => {
    const archive = await tarOf({ name: "file", content: "zipped" });
    const zipped = gzipSync(archive);
    for (const coding of ["gzip", "X-GZIP"]) {
      const folder = await newFolder();
      expectStatus(await put(box, folder, zipped, { "content-encoding": coding }), 204);
      expect((await box.exec(["cat", `${folder}/file`])).stdout).toBe("zipped");
    }
    const folder = await newFolder();
    expectStatus(await put(box, folder, archive, { "content-encoding": "identity" }), 204);
    expectInvalid(await put(box, folder, zipped, { "content-encoding": "br" }), "header.content-encoding");
    expectInvalid(await put(box, folder, zipped), "body");
    expectInvalid(await put(box, folder, archive, { "content-encoding": "gzip" }), "body");
    expectInvalid(await put(box, folder, zipped.subarray(0, -9), { "content-encoding": "gzip" }), "body");
  });

  test("49: entries that lead out of the folder, devices and FIFOs are refused, and nothing outside is touched", async () => {
    const outside = await newFolder();
    await box.exec(`echo before > ${outside}/file`);
    const link = (name: string, linkname: string): Entry => ({ name, type: "symlink", linkname });
    const hostile: Record<string, Entry[]> = {
      dots: [{ name: `../${outside.slice(5)}/new`, content: "x" }],
      "dots within": [{ name: `a/../../${outside.slice(5)}/new`, content: "x" }],
      absolute: [{ name: `${outside}/new`, content: "x" }],
      "an absolute folder": [{ name: `${outside}/new`, type: "directory" }],
      "a character device": [{ name: "null", type: "character-device", devmajor: 1, devminor: 3 }],
      "a block device": [{ name: "disk", type: "block-device", devmajor: 8, devminor: 0 }],
      "a FIFO": [{ name: "fifo", type: "fifo" }],
      "through a link": [link("link", outside), { name: "link/new", content: "x" }],
      "through a relative link": [link("link", `../${outside.slice(5)}`), { name: "link/new", content: "x" }],
      "through two links": [link("a", "b"), link("b", outside), { name: "a/new", content: "x" }],
      "a folder through a link": [link("link", outside), { name: "link/new", type: "directory" }],
      "a link through a link": [link("link", outside), link("link/new", "/etc/passwd")],
      "a hard link out": [{ name: "hard", type: "link", linkname: `${outside}/file` }],
      "a hard link up": [{ name: "hard", type: "link", linkname: `../${outside.slice(5)}/file` }],
      "a hard link through a link": [link("link", outside), { name: "hard", type: "link", linkname: "link/file" }],
    };
    for (const [what, entries] of Object.entries(hostile)) {
      const answer = await put(box, await newFolder(), await tarOf(...entries));
      expect([what, answer.status, answer.body?.error?.details?.[0]?.field]).toEqual([what, 422, "body"]);
    }
    expect((await box.exec(`cd ${outside}; ls; cat file; stat -c %h file`)).stdout).toBe("file\nbefore\n1\n");
    // A link of the entry's own name is replaced, not followed.
    const folder = await newFolder();
    expectStatus(await put(box, folder, await tarOf(link("file", `${outside}/file`))), 204);
    expectStatus(await put(box, folder, await tarOf({ name: "file", content: "after" })), 204);
    expect((await box.exec(`cat ${outside}/file ${folder}/file`)).stdout).toBe("before\nafter");
  });

  test("49: one that is cut is refused, and so is what is none", async () => {
    const archive = await tarOf({ name: "file", content: "x".repeat(5_000) }, { name: "last", content: "y" });
    const folder = await newFolder();
    for (const length of [0, 300, 512, 700, 5_632, archive.length - 1_024]) {
      expectInvalid(await put(box, folder, archive.subarray(0, length)), "body");
    }
    expectInvalid(await put(box, folder, Buffer.alloc(20_000, "garbage ")), "body");
    expectStatus(await put(box, folder, await tarOf()), 204);
    // Nothing of a file that was cut is left.
    const cut = await newFolder();
    expectInvalid(await put(box, cut, archive.subarray(0, 700)), "body");
    expect((await box.exec(["ls", "-a", cut])).stdout).toBe(".\n..\n");
    // What follows the end of an archive is not looked at, however much it is.
    expectStatus(await put(box, cut, Buffer.concat([archive, Buffer.alloc(20 * mebibyte)])), 204);
    expect((await box.exec(["wc", "-c", `${cut}/file`])).stdout).toMatch(/^5000 /);
  });

  /** Begins to send a body, and does not go on. */
  function beginUpload(rest: string, first: Buffer, refused: (status: number | undefined) => void) {
    const upload = request(box.target.url + box.path(rest), {
      method: "PUT",
      headers: { authorization: `Bearer ${box.owner.token}`, "x-workspace-id": box.owner.workspace },
    });
    upload.on("error", () => {});
    upload.on("response", (response) => refused(response.statusCode));
    upload.write(first);
    return upload;
  }

  test("32 files and archives are on their way at once, and not one more", async ({ skip }) => {
    skip(isReplicated(), "each replica counts its own");
    const folder = await newFolder();
    await box.exec(`cd ${folder} && mkdir $(seq 0 2 32)`);
    const archive = await tarOf({ name: "file", content: "x".repeat(100_000) });
    const refused: (number | undefined)[] = [];
    const begun = Array.from({ length: maxBodies + 1 }, (_, index) => {
      const [place, count] = [`${folder}/${index}`, (status: number | undefined) => refused.push(status)];
      return index % 2 === 0
        ? beginUpload(at(place), archive.subarray(0, 512), count)
        : beginUpload(`files?path=${encodeURIComponent(place)}`, archive, count);
    });
    try {
      await until(async () => expect(refused).toEqual([409]));
      expectError(await put(box, folder, archive), "conflict");
      expect((await box.fetch("files?path=%2Fetc%2Fpasswd")).status).toBe(409);
      // Other calls go on.
      expect((await box.exec(["echo", "on"])).stdout).toBe("on\n");
    } finally {
      for (const upload of begun) upload.destroy();
    }
    await until(async () => expectStatus(await put(box, folder, archive), 204));
    // Nothing of what was cut off is left.
    const left = `find ${folder} -type f ! -path ${folder}/file`;
    await until(async () => expect((await box.exec(left)).stdout).toBe(""));
  });

  describe("watches", () => {
    /** Follows a folder's changes. `until` reads on to one of this type and path, and returns what came before, too. */
    async function watch(path: string, more = "") {
      const client = new AbortController();
      const answer = await box.fetch(`files/watch?path=${encodeURIComponent(path)}${more}`, { signal: client.signal });
      expect(answer.headers.get("content-type")).toMatch(/^text\/event-stream/);
      const events = readEvents(answer);
      const seen: StreamEvent[] = [];
      const readTo = async (type: string, wanted?: string): Promise<StreamEvent[]> => {
        for (const from = seen.length; ; ) {
          const next = await events.next();
          if (next.done) throw new Error(`no ${type} of ${wanted} came: ${JSON.stringify(seen.slice(from))}`);
          const { value } = next;
          seen.push(value);
          if (value.event === type && (wanted === undefined || value.data.path === wanted)) return seen.slice(from);
        }
      };
      await readTo("ready");
      return { readTo, events, leave: () => client.abort() };
    }
    const ofTypes = (events: StreamEvent[]) => events.map(({ data: { type, path, to } }) => [type, path, to]);

    test("50: tells of what is created, written, moved, deleted and changed, in new folders too", async () => {
      const folder = await newFolder();
      const { readTo, leave } = await watch(folder, "&recursive=true");
      await box.exec(`echo x > ${folder}/file`);
      expect(ofTypes(await readTo("write", `${folder}/file`))).toEqual([
        ["create", `${folder}/file`, null],
        ["write", `${folder}/file`, null],
      ]);
      await box.exec(`chmod 600 ${folder}/file`);
      await readTo("attrib", `${folder}/file`);
      await box.exec(`mv ${folder}/file ${folder}/moved`);
      expect(ofTypes(await readTo("move")).at(-1)).toEqual(["move", `${folder}/file`, `${folder}/moved`]);
      await box.exec(`mkdir -p ${folder}/new/deep && touch ${folder}/new/deep/file`);
      await readTo("create", `${folder}/new/deep/file`);
      await box.exec(`mv ${folder}/new ${folder}/other && touch ${folder}/other/deep/again`);
      await readTo("create", `${folder}/other/deep/again`);
      await box.exec(`rm ${folder}/moved`);
      await readTo("delete", `${folder}/moved`);
      leave();
    });

    test("50: a file that a request puts in place is told of as one that was written there, under its own name", async () => {
      const folder = await newFolder();
      const { readTo, leave } = await watch(folder);
      const path = `files?path=${encodeURIComponent(`${folder}/file`)}`;
      for (const body of ["first", "second"]) expect((await box.fetch(path, { method: "PUT", body })).ok).toBe(true);
      await box.exec(`touch ${folder}/last`);
      expect(ofTypes(await readTo("create", `${folder}/last`))).toEqual([
        ["create", `${folder}/file`, null],
        ["write", `${folder}/file`, null],
        ["write", `${folder}/file`, null],
        ["create", `${folder}/last`, null],
      ]);
      leave();
    });

    test("50: without recursive only what is in the folder itself", async () => {
      const folder = await newFolder();
      await box.exec(`mkdir ${folder}/below`);
      const { readTo, leave } = await watch(folder);
      await box.exec(`touch ${folder}/below/file ${folder}/last`);
      const events = await readTo("create", `${folder}/last`);
      expect(events.map(({ data }) => data.path)).not.toContain(`${folder}/below/file`);
      leave();
    });

    test("46 and 50: a name that isn't UTF-8 has its bytes in base64", async () => {
      const folder = await newFolder();
      const { readTo, leave } = await watch(folder);
      await box.exec(`touch "$(printf '${folder}/a\\377')"`);
      const { data } = (await readTo("create")).at(-1) as StreamEvent;
      expect(data.path).toBe(`${folder}/a\u{fffd}`);
      expect(Buffer.from(data.path_base64, "base64").toString("latin1")).toBe(`${folder}/a\u{ff}`);
      leave();
    });

    test("50: changes that were lost are one overflow, after which it goes on, in folders of meanwhile too", async () => {
      const folder = await newFolder();
      await box.exec(`cd ${folder} && touch a b`);
      const { readTo, leave } = await watch(folder, "&recursive=true");
      // More than fits into all that lies between the sandbox and a client that reads nothing.
      const command = `cd ${folder}; for i in 1 2 3 4 5 6 7 8 9 10; do touch $(yes a b | head -n 10000); done; mkdir meanwhile`;
      await box.exec({ command, timeout_seconds: 100 });
      const events = await readTo("overflow");
      expect(events.at(-1)?.data).toEqual({ type: "overflow", path: null, to: null });
      await box.exec(`touch ${folder}/last`);
      await readTo("create", `${folder}/last`);
      await box.exec(`touch ${folder}/meanwhile/file`);
      await readTo("create", `${folder}/meanwhile/file`);
      leave();
    });

    test("what isn't there is refused, and the end of the sandbox is the last event", async () => {
      const missing = await box.target.get(box.path("files/watch?path=%2Fno%2Fsuch"), box.as());
      expectError(missing, "not_found");
      const id = await box.provision();
      const answer = await box.fetch(`../${id}/files/watch?path=%2Ftmp`);
      const events = readEvents(answer);
      expect((await events.next()).value).toMatchObject({ event: "ready" });
      expectStatus(await box.target.delete(`/sandboxes/${id}`, box.as()), 204);
      expect((await events.next()).value).toMatchObject({ event: "end", data: { reason: "sandbox_stopped" } });
      expect((await events.next()).done).toBe(true);
    });
  });
});

describe.runIf(await requireSandboxHost())("archives of a user who isn't root", () => {
  let box: Box;

  beforeAll(async () => {
    box = await openBox({ user: "1000:1000" });
  });
  afterAll(() => box?.close());

  test("49: owners stay the user's", async () => {
    await box.exec("mkdir /dev/shm/own");
    expectStatus(await put(box, "/dev/shm/own", await tarOf({ name: "file", content: "x", uid: 0, gid: 0 })), 204);
    expect((await box.exec("stat -c %u:%g /dev/shm/own/file")).stdout).toBe("1000:1000\n");
  });

  test("49: one that fails while it is read breaks off", async () => {
    const command =
      "mkdir /dev/shm/part && cd /dev/shm/part && head -c 4194304 /dev/urandom > a && touch b && chmod 0 b";
    await box.exec(command);
    const answer = await box.fetch(at("/dev/shm/part"));
    expect(answer.status).toBe(200);
    await expect(answer.arrayBuffer()).rejects.toThrow();
    // One that fails before it begins says why.
    const refused = await box.target.get(box.path(at("/dev/shm/part/b")), box.as());
    expectError(refused, "conflict");
    expect(refused.body.error.message).toContain("EACCES");
  });
});

describe.runIf((await requireSandboxHost()) && (await requireSettings()))("limits of files and archives", () => {
  let box: Box;

  beforeAll(async () => {
    box = await openBox({ settings: { SANDGATE_ARCHIVE_MAX_MB: "4", SANDGATE_FILE_MAX_MB: "2" } });
  });
  afterAll(() => box?.close());

  /** Of unknown length, as it comes. */
  const chunked = (path: string, body: AsyncIterable<Uint8Array>, headers: Record<string, string> = {}) =>
    box.fetch(path, { method: "PUT", body: ReadableStream.from(body), duplex: "half", headers } as RequestInit);

  async function* zeros(length: number) {
    for (let sent = 0; sent < length; sent += mebibyte) yield Buffer.alloc(mebibyte);
  }

  test("a file above the limit is refused, and leaves the old one", async () => {
    const path = "/tmp/file";
    const content = (length: number) => ({
      ...box.as(),
      raw: Buffer.alloc(length, "x") as unknown as string,
      headers: octets,
    });
    const place = `files?path=${encodeURIComponent(path)}`;
    expectStatus(await box.target.send("PUT", box.path(place), content(2 * mebibyte)), 201);
    expectInvalid(await box.target.send("PUT", box.path(place), content(2 * mebibyte + 1)), "body");
    const answer = await chunked(place, zeros(8 * mebibyte));
    expect([answer.status, ((await answer.json()) as Answer["body"]).error.details[0].field]).toEqual([422, "body"]);
    expect((await box.exec(`stat -c %s ${path}; ls -a /tmp`)).stdout).toBe(`${2 * mebibyte}\n.\n..\nfile\n`);
  });

  test("an archive above the limit is refused, also one that gzip made small", async () => {
    await box.exec("mkdir /tmp/bomb");
    const large = await tarOf({ name: "file", content: "\0".repeat(64 * mebibyte) });
    expectInvalid(await put(box, "/tmp/bomb", large), "body");
    const bomb = gzipSync(large);
    expect(bomb.length).toBeLessThan(mebibyte);
    expectInvalid(await put(box, "/tmp/bomb", bomb, { "content-encoding": "gzip" }), "body");
    const ofMany = Array.from({ length: 20 }, (_, index) => ({ name: `${index}`, content: "\0".repeat(mebibyte / 2) }));
    const many = gzipSync(await tarOf(...ofMany));
    expectInvalid(await put(box, "/tmp/bomb", many, { "content-encoding": "gzip" }), "body");
    await box.exec("rm /tmp/bomb/*");
    // A header alone may claim anything.
    const claim = Buffer.from(large.subarray(0, 1024));
    expectInvalid(await put(box, "/tmp/bomb", claim), "body");
    expect((await box.exec(["ls", "-a", "/tmp/bomb"])).stdout).toBe(".\n..\n");
  });
});
