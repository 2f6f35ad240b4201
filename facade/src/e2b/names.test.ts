import { randomBytes } from "node:crypto";
import { newId } from "@sandgate/kit/base/ids";
import { expect, test } from "vitest";
import type { Clients } from "../pipeline/base/clients.ts";
import { createNames } from "./names.ts";

function namesOf(...keys: Uint8Array[]) {
  const deriveKeys = async () => ({ keys });
  return createNames({ sandbox: { deriveKeys } as unknown as Clients["sandbox"] });
}

const key = randomBytes(32);
const names = namesOf(key);

test("a sandbox's name leads back to it, and a changed one to none", async () => {
  const id = newId();
  const name = await names.toSandboxName(id);
  expect(name).toMatch(/^[a-z0-9]{50}$/);
  expect(await names.fromSandboxName(name)).toBe(id);
  for (let at = 0; at < name.length; at++) {
    const other = `${name.slice(0, at)}${name[at] === "a" ? "b" : "a"}${name.slice(at + 1)}`;
    expect(await names.fromSandboxName(other)).toBeUndefined();
  }
  for (const other of [id, "", name.toUpperCase(), `0${name}`, `${name}0`, "z".repeat(50)]) {
    expect(await names.fromSandboxName(other)).toBeUndefined();
  }
});

test("an access token is for one sandbox and one API token, and no other kind of token stands for it", async () => {
  const [sandbox, other, token] = [newId(), newId(), newId()];
  const access = await names.toAccessToken(sandbox, token);
  expect(await names.fromAccessToken(sandbox, access)).toBe(token);
  expect(await names.fromAccessToken(other, access)).toBeUndefined();
  const traffic = await names.toTrafficToken(sandbox);
  expect(await names.fromAccessToken(sandbox, traffic)).toBeUndefined();
  expect(await names.isTrafficToken(sandbox, traffic)).toBe(true);
  expect(await names.isTrafficToken(other, traffic)).toBe(false);
  expect(await names.isTrafficToken(sandbox, access)).toBe(false);
});

test("names hold while their key is in the ring, and not a moment longer", async () => {
  const [id, newKey] = [newId(), randomBytes(32)];
  const name = await names.toSandboxName(id);
  const changed = namesOf(newKey, key);
  expect(await changed.fromSandboxName(name)).toBe(id);
  expect(await changed.toSandboxName(id)).not.toBe(name);
  expect(await namesOf(newKey).fromSandboxName(name)).toBeUndefined();
});
