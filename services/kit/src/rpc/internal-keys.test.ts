import { execFile } from "node:child_process";
import { copyFile, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { test } from "@sandgate/test-support/test";
import { decodeProtectedHeader } from "jose";
import { expect, onTestFinished } from "vitest";
import { createLogger } from "../base/logging.ts";
import { addKey, dropKey, makeKeys, openTokenSigner, openTokenVerifier } from "./internal-keys.ts";

const logger = createLogger({ service: "test", level: "silent" });
const nobody = { passedOn: false };
const refused = { reason: "CALLER_NOT_ALLOWED" };
let folder: string;

test.beforeEach(async ({ folder: own }) => {
  folder = own;
});

async function openSigner(file: string) {
  const signer = await openTokenSigner({ caller: "facade", file: join(folder, file), logger, rereadEveryMs: 10 });
  onTestFinished(signer.close);
  return signer;
}

async function openVerifier() {
  const file = join(folder, "jwks.json");
  const verifier = await openTokenVerifier({ audience: "workspace", file, logger, rereadEveryMs: 10 });
  onTestFinished(verifier.close);
  return verifier;
}

const keyIdOf = (authorization: string): unknown => decodeProtectedHeader(authorization.slice("Bearer ".length)).kid;

/** The kid of the first token that is signed with another key than `old`. */
async function waitForKey(signer: Awaited<ReturnType<typeof openSigner>>, old: string): Promise<unknown> {
  for (;;) {
    const keyId = keyIdOf(await signer.mint("workspace", nobody));
    if (keyId !== old) return keyId;
    await delay(5);
  }
}

test("what is made is enough for every caller, and private", async () => {
  await makeKeys(folder);
  for (const file of await readdir(folder)) {
    const { mode } = await stat(join(folder, file));
    expect([file, mode & 0o777]).toEqual([file, file === "jwks.json" ? 0o644 : 0o600]);
  }
  expect(await readFile(join(folder, "jwks.json"), "utf8")).not.toContain('"d"');
  const authorization = await (await openSigner("facade.jwk.json")).mint("workspace", nobody);
  expect(await (await openVerifier()).verify(authorization)).toEqual({ service: "facade" });
  await expect(makeKeys(folder)).rejects.toThrow("EEXIST");
});

test("a caller's key changes while all keep running", async () => {
  await makeKeys(folder);
  const signer = await openSigner("facade.jwk.json");
  const verifier = await openVerifier();
  const old = await signer.mint("workspace", nobody);
  await verifier.verify(old);

  const added = await addKey(folder, "facade");
  expect(added).toBe("facade.2.jwk.json");
  const early = await (await openSigner(added)).mint("workspace", nobody);
  while (!(await verifier.verify(early).catch(() => undefined))) await delay(5);
  await verifier.verify(old);

  await copyFile(join(folder, added), join(folder, "facade.jwk.json"));
  expect(await waitForKey(signer, "facade")).toBe("facade.2");
  expect(await verifier.verify(await signer.mint("workspace", nobody))).toEqual({ service: "facade" });

  await dropKey(folder, "facade");
  while (await verifier.verify(old).catch(() => undefined)) await delay(5);
  await expect(verifier.verify(old)).rejects.toMatchObject(refused);
  await verifier.verify(await signer.mint("workspace", nobody));
});

test("a key that is added after the newest was dropped has a number of its own", async () => {
  await makeKeys(folder);
  expect(await addKey(folder, "workspace")).toBe("workspace.2.jwk.json");
  await dropKey(folder, "workspace.2");
  expect(await addKey(folder, "workspace")).toBe("workspace.3.jwk.json");
});

test("a change that can't be used changes nothing", async () => {
  await makeKeys(folder);
  const signer = await openSigner("facade.jwk.json");
  const verifier = await openVerifier();
  await writeFile(join(folder, "jwks.json"), '{"keys": [');
  await writeFile(join(folder, "facade.jwk.json"), "");
  await delay(50);
  await verifier.verify(await signer.mint("workspace", nobody));
});

test("files of another caller, without a private key, or with one where none belongs are refused", async () => {
  await makeKeys(folder);
  await expect(openSigner("identity.jwk.json")).rejects.toThrow("not a key of facade");
  const { d, ...open } = JSON.parse(await readFile(join(folder, "facade.jwk.json"), "utf8"));
  await writeFile(join(folder, "public.json"), JSON.stringify(open));
  await expect(openSigner("public.json")).rejects.toThrow("not a private Ed25519 key");
  await expect(openSigner("missing.json")).rejects.toThrow("missing.json can't be used: ENOENT");
  await writeFile(join(folder, "jwks.json"), JSON.stringify({ keys: [{ ...open, d }] }));
  await expect(openVerifier()).rejects.toThrow("holds a private key");
});

test("the command makes, adds and drops, and says how it is used", async () => {
  const run = (...args: string[]) =>
    promisify(execFile)(process.execPath, [join(import.meta.dirname, "internal-keys.ts"), ...args]);
  expect((await run("make", folder)).stdout.split("\n")).toContain("image-registry.jwk.json");
  expect((await run("add", folder, "sandbox")).stdout).toBe("sandbox.2.jwk.json\n");
  await run("drop", folder, "sandbox");
  await expect(run("drop", folder, "sandbox")).rejects.toThrow('There is no public key "sandbox"');
  await expect(run()).rejects.toThrow("make <folder>");
});
