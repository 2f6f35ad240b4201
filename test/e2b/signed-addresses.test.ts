import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { Sandbox } from "e2b";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { expectStatus } from "../conformance/client.ts";
import { type Asked, askHost, openHost, openProgramHost, type ProgramHost, toKey } from "./program.ts";

describe.runIf(await requireServer("docker", probeEngine))("signed addresses of files", () => {
  let host: ProgramHost;
  let sandbox: Sandbox;
  /** The same, of a program that knows the domain alone. */
  let signing: Sandbox;

  beforeAll(async () => {
    host = await openProgramHost();
    sandbox = await Sandbox.create();
    signing = await connectByDomain(sandbox);
  });
  afterAll(() => host?.close());

  async function connectByDomain({ sandboxId }: Sandbox, o: { apiKey?: string } = {}): Promise<Sandbox> {
    const { E2B_SANDBOX_URL: url } = process.env;
    delete process.env.E2B_SANDBOX_URL;
    try {
      return await Sandbox.connect(sandboxId, o);
    } finally {
      process.env.E2B_SANDBOX_URL = url;
    }
  }

  /** Opens an address as whoever was given it does, knowing nothing else. */
  const ask = (address: string, o?: Asked) => {
    const { host: hostName, pathname, search } = new URL(address);
    return askHost(host.platform.url, hostName, pathname + search, o);
  };
  const form = (name: string, content: string): Asked => ({
    method: "POST",
    headers: { "content-type": "multipart/form-data; boundary=b" },
    body: `--b\r\nContent-Disposition: form-data; name="file"; filename="${name}"\r\n\r\n${content}\r\n--b--\r\n`,
  });
  const change = (address: string, name: string, value: string) => {
    const url = new URL(address);
    url.searchParams.set(name, value);
    return url.href;
  };

  test("a file is written and read by them", async () => {
    const written = await ask(await signing.uploadUrl("/tmp/one"), form("ignored", "first"));
    expect(written.status).toBe(200);
    expect(JSON.parse(written.body)).toEqual([{ name: "one", type: "file", path: "/tmp/one" }]);
    const bytes = { method: "POST", headers: { "content-type": "application/octet-stream" }, body: "second" };
    expect((await ask(await signing.uploadUrl("two", { user: "root" }), bytes)).status).toBe(200);
    expect((await ask(await signing.uploadUrl(), form("/tmp/three", "third"))).status).toBe(200);
    expect(await ask(await signing.downloadUrl("/tmp/one"))).toEqual({ status: 200, body: "first" });
    const timed = await signing.downloadUrl("two", { user: "root", useSignatureExpiration: 60 });
    expect(await ask(timed)).toEqual({ status: 200, body: "second" });
    expect(await sandbox.files.read("/tmp/three")).toBe("third");
  });

  test("one is for a path, an operation, a user, a time and a sandbox, and opens nothing else", async () => {
    await sandbox.files.write("/tmp/one", "first");
    const read = await signing.downloadUrl("/tmp/one", { useSignatureExpiration: 60 });
    const later = String(Math.floor(Date.now() / 1000) + 3_600);
    const other = await connectByDomain(await Sandbox.create());
    const refused = [
      change(read, "path", "/etc/passwd"),
      change(read, "username", "root"),
      change(read, "signature_expiration", later),
      change(read, "signature", `v1_${"A".repeat(43)}`),
      change(read, "signature", ""),
      `${read}&path=/etc/passwd`,
      read.replace(sandbox.sandboxId, other.sandboxId),
    ];
    for (const address of refused) expect((await ask(address)).status).toBe(401);
    expect((await ask(read, form("one", "changed"))).status).toBe(401);
    const written = await signing.uploadUrl("/tmp/one");
    expect((await ask(written)).status).toBe(401);
    expect((await ask(read.replace("/files?", "/health?"))).status).toBe(401);
    expect((await ask(read.replace("/files?", "/process.Process/List?"), { method: "POST" })).status).toBe(401);
    expect(await sandbox.files.read("/tmp/one")).toBe("first");
    const expired = await ask(await signing.downloadUrl("/tmp/one", { useSignatureExpiration: -5 }));
    expect(expired.status).toBe(401);
    expect(JSON.parse(expired.body)).toEqual({ code: 401, message: "signature is already expired" });
    await other.kill();
    expect((await ask(await other.downloadUrl("/tmp/one"))).status).toBe(502);
  });

  test("each token that may use the sandbox signs some, which end with it, open ones too", async () => {
    const { operator } = host;
    const session = { token: await operator.openSession(), workspace: operator.as.workspace };
    const order = { description: "signs", permissions: ["use", "provision"] };
    await sandbox.files.write("/tmp/one", "first");
    expect((await ask(await signing.downloadUrl("/tmp/one"))).status).toBe(200);
    const made = expectStatus(await operator.post("/api-tokens/", order, session), 201);
    const same = await connectByDomain(sandbox, { apiKey: toKey(made.token) });
    // At once, though those who could sign before were just looked for.
    expect((await ask(await same.downloadUrl("/tmp/one"))).status).toBe(200);
    await sandbox.commands.run("head -c 100000000 /dev/zero > /tmp/large");
    const address = await same.downloadUrl("/tmp/large", { useSignatureExpiration: 600 });
    expect(address).not.toBe(await signing.downloadUrl("/tmp/large", { useSignatureExpiration: 600 }));
    const { host: hostName, pathname, search } = new URL(address);
    const open = await openHost(host.platform.url, hostName, pathname + search);
    expect(open.statusCode).toBe(200);
    await once(open, "readable");
    expectStatus(await operator.delete(`/api-tokens/${made.id}`, session), 204);
    await expect.poll(async () => (await ask(address)).status).toBe(401);
    // So slowly that the file isn't at its end before that is seen.
    const readOn = async () => {
      for await (const _ of open) await delay(5);
    };
    await expect(readOn()).rejects.toThrow("aborted");
    expect((await ask(await signing.downloadUrl("/tmp/large"))).status).toBe(200);
  });
});
