import { randomBytes } from "node:crypto";
import { request } from "node:http";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Answer, expectError, expectInvalid, expectStatus } from "./client.ts";
import { type HostImage, openSandboxHost, requireSandboxHost } from "./sandbox-host.ts";
import { openTarget, type Target, type Tenant } from "./target.ts";

/** What is in the sandbox before the tests, beside what they make. */
const script = `
mkdir -p /site/full /site/closed /data
cd /site
mkfifo fifo
echo inside > full/inner
echo target > data.txt
ln -s data.txt link
ln -s /nowhere dangling
touch ready
exec sleep 86400
`;

describe.runIf(await requireSandboxHost())(
  "files",
  () => {
    let target: Target;
    let owner: Tenant;
    let image: HostImage;
    let id: string;

    const as = (tenant: Tenant) => ({ token: tenant.token, workspace: tenant.workspace });
    const at = (path: string, more = "") => `/sandboxes/${id}/files?path=${encodeURIComponent(path)}${more}`;
    const headersOf = (tenant = owner) => ({
      authorization: `Bearer ${tenant.token}`,
      "x-workspace-id": tenant.workspace,
    });
    const read = (path: string, headers: Record<string, string> = {}) =>
      fetch(target.url + at(path), { headers: { ...headersOf(), ...headers } });
    const write = (path: string, content: string | Buffer, more = "", headers: Record<string, string> = {}) =>
      target.send("PUT", at(path, more), {
        ...as(owner),
        raw: content as string,
        headers: { "content-type": "application/octet-stream", ...headers },
      });

    beforeAll(async () => {
      image = await openSandboxHost().makeImage({ command: ["/bin/sh", "/run"], files: { "/run": script } });
      target = await openTarget();
      owner = await target.newTenant();
      const body = { name: "files", image: image.reference, is_default: true, memory_mb: 256 };
      const image_id = expectStatus(await target.post("/sandbox-images", body, as(target.operator)), 201).id;
      id = expectStatus(await target.post("/sandboxes/provision", { image_id }, as(owner)), 201).id;
      expectStatus(await target.post("/sandboxes/wait", { sandbox_id: id, timeout_seconds: 240 }, as(owner)), 200);
      await until(async () => expect((await read("/site/ready")).status).toBe(200), { intervalMs: 100 });
    });
    afterAll(async () => {
      if (id) await target.delete(`/sandboxes/${id}`, as(owner));
      await target?.close();
      await image?.remove();
    });

    test("40: a file comes back as it was written", async () => {
      for (const length of [0, 1, 18 * 1024 + 1, 120 * 1024, 10 * 1024 * 1024 + 1]) {
        const content = randomBytes(length);
        const path = `/data/of ${length}`;
        const entry = expectStatus(await write(path, content), 201);
        expect(entry).toMatchObject({ path, name: `of ${length}`, type: "file", size: length, mode: "0644", uid: 0 });
        const answer = await read(path);
        expect(answer.status).toBe(200);
        if (length > 0) expect(answer.headers.get("content-length")).toBe(String(length));
        expect(Buffer.from(await answer.arrayBuffer()).equals(content)).toBe(true);
        expectStatus(await write(path, content), 200);
      }
    });

    const run = async (command: string): Promise<string> =>
      expectStatus(await target.post(`/sandboxes/${id}/exec`, { command }, as(owner)), 200).stdout;
    const to = (rest: string) => `/sandboxes/${id}/files${rest}`;
    const entryOf = (path: string) => target.get(to(`/entry?path=${encodeURIComponent(path)}`), as(owner));

    test("38: paths act as for a program inside, from the image's folder on", async () => {
      expect(await (await read("site/full/inner")).text()).toBe("inside\n");
      expect(await (await read("/site/full/../../../../site/link")).text()).toBe("target\n");
      for (const path of ["", "a\0b", "x".repeat(4096)]) {
        expectInvalid(await target.get(at(path), as(owner)), "query.path");
      }
      expectInvalid(await target.get(at("/etc/passwd", "&path_base64=Lw=="), as(owner)), "query.path_base64");
      const link = (await target.get(to("/entry?path=/site/link"), as(owner))).body;
      expect(link).toMatchObject({ type: "symlink", symlink_target: "data.txt" });
      expect((await target.get(to("/entry?path=/site/link&follow=true"), as(owner))).body.type).toBe("file");
    });

    test("39: a reader sees the old or the new file whole, and one that is cut off changes nothing", async () => {
      const size = 4 * 1024 * 1024;
      const contents = ["a", "b"].map((letter) => Buffer.alloc(size, letter));
      expectStatus(await write("/data/whole", contents[0] as Buffer), 201);
      const upload = request(target.url + at("/data/whole"), {
        method: "PUT",
        headers: { ...headersOf(), "content-length": size },
      });
      upload.on("error", () => {});
      // Half of the new content is there.
      await new Promise((resolve) => upload.write(contents[1]?.subarray(0, size / 2), resolve));
      for (let reads = 0; reads < 5; reads++) {
        expect(Buffer.from(await (await read("/data/whole")).arrayBuffer()).equals(contents[0] as Buffer)).toBe(true);
      }
      upload.destroy();
      const names = () => run("ls -a /data | grep -v '^of '");
      await until(async () => expect(await names()).toBe(".\n..\nwhole\n"));
      expect(await run("tr -d a < /data/whole | wc -c")).toBe("0\n");
      const reader = run(
        "for i in $(seq 200); do set -- $(head -c 1 /data/whole; tail -c 1 /data/whole); case $1 in aa|bb) ;; *) echo $1;; esac; wc -c < /data/whole; done | sort -u",
      );
      for (let writes = 0; writes < 10; writes++)
        expectStatus(await write("/data/whole", contents[writes % 2] as Buffer), 200);
      for (const line of (await reader).trim().split("\n")) expect(["ab", "ba", String(size)]).toContain(line);
    });

    test("39: in place only where a rename can't be", async () => {
      const hosts = await run("cat /etc/hosts; stat -c %i /etc/hosts");
      const inode = hosts.trim().split("\n").at(-1);
      expectStatus(await write("/etc/hosts", "127.0.0.1 localhost\n"), 200);
      expect(await run("cat /etc/hosts; stat -c %i /etc/hosts")).toBe(`127.0.0.1 localhost\n${inode}\n`);
    });

    test("41: a replaced file keeps mode and owner, and a link's target is written", async () => {
      await run("cd /data && echo x > kept && chown 1000:1001 kept && chmod 4711 kept && ln -s kept led");
      expect(expectStatus(await write("/data/led", "y"), 200)).toMatchObject({ uid: 1000, gid: 1001, mode: "4711" });
      expect(await run("cat /data/kept; readlink /data/led")).toBe("ykept\n");
      expect(expectStatus(await write("/data/kept", "z", "&mode=0600"), 200).mode).toBe("0600");
      expectError(await write("/data/new/deep/file", "x"), "not_found");
      expect(expectStatus(await write("/data/new/deep/file", "x", "&parents=true"), 201).mode).toBe("0644");
      expect(await run("stat -c %a /data/new /data/new/deep")).toBe("755\n755\n");
      const made = await target.post(to("/directories"), { path: "/data/made" }, as(owner));
      expect(expectStatus(made, 201)).toMatchObject({ type: "directory", mode: "0755" });
      const patched = await target.send("PATCH", at("/data/made"), { ...as(owner), body: { mode: "1700" } });
      expect(expectStatus(patched, 200).mode).toBe("1700");
    });

    test("42: what is no regular file is refused at once", async () => {
      for (const path of ["/site/fifo", "/dev/null", "/site/full"]) {
        expectError(await target.get(at(path), as(owner)), "conflict");
        expectError(await write(path, "x"), "conflict");
      }
    });

    test("43 and 44: a range, several, one that is malformed, and one that can't be met", async () => {
      expectStatus(await write("/data/digits", "0123456789"), 201);
      const part = async (range: string, more: Record<string, string> = {}) => {
        const answer = await read("/data/digits", { range, ...more });
        return [answer.status, await answer.text(), answer.headers.get("content-range")];
      };
      const etag = (await read("/data/digits")).headers.get("etag") ?? "";
      expect(await part("bytes=2-4")).toEqual([206, "234", "bytes 2-4/10"]);
      expect(await part("bytes=-3")).toEqual([206, "789", "bytes 7-9/10"]);
      expect(await part("bytes=8-99")).toEqual([206, "89", "bytes 8-9/10"]);
      for (const whole of ["bytes=0-1,3-4", "bytes=4-2", "lines=1-2", "bytes=x"]) {
        expect(await part(whole)).toEqual([200, "0123456789", null]);
      }
      expect(await part("bytes=0-1", { "if-range": etag })).toEqual([206, "01", "bytes 0-1/10"]);
      expect((await part("bytes=0-1", { "if-range": '"other"' }))[0]).toBe(200);
      const unmet = await target.get(at("/data/digits"), { ...as(owner), headers: { range: "bytes=10-" } });
      expectInvalid(unmet, "header.range");
      expect(await (await read("/proc/version")).text()).toBe(await run("cat /proc/version"));
    });

    test("44: changes on a condition: of twelve at once one wins", async () => {
      const first = await write("/data/raced", "0", "", { "if-none-match": "*" });
      const etag = first.headers.get("etag") ?? "";
      expectStatus(first, 201);
      expectError(await write("/data/raced", "1", "", { "if-none-match": "*" }), "conflict");
      expectError(await write("/data/raced", "1", "", { "if-match": '"other"' }), "conflict");
      expectError(await write("/data/none", "1", "", { "if-match": "*" }), "conflict");
      const answers = await Promise.all(
        Array.from({ length: 12 }, (_, index) => write("/data/raced", `${index}`, "", { "if-match": etag })),
      );
      const won = answers.filter(({ status }) => status === 200);
      expect(won).toHaveLength(1);
      for (const answer of answers) if (answer.status !== 200) expectError(answer, "conflict");
      expect(won[0]?.headers.get("etag")).not.toBe(etag);
      const withEtag = { ...as(owner), headers: { "if-match": etag } };
      expectError(await target.delete(at("/data/raced"), withEtag), "conflict");
      expectError(await target.send("PATCH", at("/data/raced"), { ...withEtag, body: { mode: "0600" } }), "conflict");
    });

    test("45: a download is an attachment whose name adds no header", async () => {
      const name = 'a"; x=y\r\nSet-Cookie: a=b\u{20ac}';
      expectStatus(await write(`/data/${name}`, "x"), 201);
      const answer = await read(`/data/${name}`);
      expect(answer.headers.get("content-disposition")).toMatch(
        /^attachment; filename="[\w .+-]+"; filename\*=UTF-8''[\w.%+-]+$/,
      );
      expect(answer.headers.get("x-content-type-options")).toBe("nosniff");
      expect(answer.headers.get("content-type")).toBe("application/octet-stream");
      expect(answer.headers.get("set-cookie")).toBeNull();
      await run("rm /data/a*");
    });

    test("46: a list is in byte order, follows no link, and its pages have each entry once", async () => {
      await run(
        `mkdir -p /list/a/y && cd /list && touch a- a/z a/y/x b "$(printf 'c\\377')" d && ln -s a link && ln -s / root`,
      );
      const names: string[] = [];
      let cursor = "";
      do {
        const query = `?path=/list&depth=5&limit=2&cursor=${encodeURIComponent(cursor)}`;
        const page = expectStatus(
          await target.get(to(`/entries${cursor === "" ? query.replace("&cursor=", "") : query}`), as(owner)),
          200,
        );
        for (const { path, path_base64: bytes } of page.entries) {
          names.push(bytes === undefined ? path : Buffer.from(bytes, "base64").toString("latin1"));
        }
        cursor = page.next_cursor ?? "";
      } while (cursor !== "");
      const wanted = ["a", "a/y", "a/y/x", "a/z", "a-", "b", "c\xff", "d", "link", "root"];
      expect(names).toEqual(wanted.map((name) => `/list/${name}`));
      const odd = Buffer.from("/list/c\xff", "latin1").toString("base64");
      const found = await target.get(to(`/entry?path_base64=${encodeURIComponent(odd)}`), as(owner));
      expect(expectStatus(found, 200)).toMatchObject({ name: "c\u{fffd}", name_base64: "Y/8=" });
    });

    test("47: deletes links rather than what they lead to, and moves over something only if told to", async () => {
      await run("mkdir -p /gone/full && cd /gone && touch full/x a b && ln -s full link");
      expectError(await target.delete(at("/gone/full"), as(owner)), "conflict");
      expectError(await target.delete(at("/", "&recursive=true"), as(owner)), "conflict");
      expectStatus(await target.delete(at("/gone/link", "&recursive=true"), as(owner)), 204);
      expect(await run("ls /gone/full")).toBe("x\n");
      expectStatus(await target.delete(at("/gone/full", "&recursive=true"), as(owner)), 204);
      expectError(await target.post(to("/move"), { from: "/gone/a", to: "/gone/b" }, as(owner)), "conflict");
      const moved = await target.post(to("/move"), { from: "/gone/a", to: "/gone/b", overwrite: true }, as(owner));
      expect(expectStatus(moved, 200).path).toBe("/gone/b");
      expect(await run("ls /gone")).toBe("b\n");
    });

    test("48: what the system refuses is named, and a full disk leaves nothing partial", async () => {
      await run("cd /data && ln -s loop loop");
      const refused = async (answer: Answer, errno: string) => {
        expectError(answer, "conflict");
        expect(answer.body.error.message).toContain(errno);
      };
      expectError(await entryOf("/no/such"), "not_found");
      await refused(await entryOf("/site/data.txt/x"), "ENOTDIR");
      await refused(await target.get(at("/data/loop"), as(owner)), "ELOOP");
      await refused(await write(`/data/${"n".repeat(300)}`, "x"), "ENAMETOOLONG");
      await refused(await write("/.sandgate/x", "x"), "EROFS");
      const away = { from: "/site/data.txt", to: "/dev/shm/away" };
      await refused(await target.post(to("/move"), away, as(owner)), "EXDEV");
      const full = await write("/dev/shm/large", Buffer.alloc(80 * 1024 * 1024));
      await refused(full, "ENOSPC");
      expect(await run("ls -a /dev/shm")).toBe(".\n..\n");
    });
  },
  300_000,
);
