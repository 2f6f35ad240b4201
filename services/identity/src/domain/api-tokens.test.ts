import { Permission } from "@sandgate/proto/common/v1/access";
import { describe, expect, test } from "vitest";
import { hashApiToken, hintOf, isApiToken, isExpired, newApiToken, readPermissions } from "./api-tokens.ts";
import { hashSecret } from "./tokens.ts";

const at = (ms: number) => new Date(ms);

describe("an API token", () => {
  test("is sgt_, 30 characters of base62 and 6 of a checksum", () => {
    for (let i = 0; i < 200; i++) {
      const token = newApiToken();
      expect(token).toMatch(/^sgt_[0-9A-Za-z]{36}$/);
      expect(isApiToken(token)).toBe(true);
    }
  });

  test("can be told from a mistyped one without the database", () => {
    const token = newApiToken();
    for (let i = 0; i < token.length; i++) {
      const other = token[i] === "a" ? "b" : "a";
      expect(isApiToken(token.slice(0, i) + other + token.slice(i + 1))).toBe(false);
    }
    for (const text of ["", "sgt_", token.slice(0, -1), `${token}0`, `${token}\n`, token.toUpperCase()]) {
      expect(isApiToken(text)).toBe(false);
    }
  });

  test("has a checksum that is the CRC32 of what stands before it, in base62 with digits, capitals, small letters", () => {
    // CRC-32 of "sgt_" and thirty zeros is 0x070ABC40: computed with Python's zlib.
    expect(isApiToken(`sgt_${"0".repeat(30)}07zifQ`)).toBe(true);
  });

  test("shows a hint that is not enough to guess it", () => {
    const token = newApiToken();
    expect(token.startsWith(hintOf(token))).toBe(true);
    expect(hintOf(token)).toHaveLength(8);
  });

  test("with permissions isn't found by the hash that versions without permissions look for", () => {
    const token = newApiToken();
    expect(hashApiToken(token, { permissions: undefined })).toEqual(hashSecret(token));
    expect(hashApiToken(token, { permissions: [Permission.READ] })).not.toEqual(hashSecret(token));
    expect(hashApiToken(token, { permissions: [Permission.READ] })).toEqual(hashApiToken(token, { permissions: [] }));
  });

  test("has its permissions in order, and all when none is named", () => {
    expect(readPermissions([Permission.MANAGE, Permission.READ])).toEqual([Permission.READ, Permission.MANAGE]);
    expect(readPermissions([])).toBeUndefined();
  });

  test("expires at its time, or never", () => {
    expect(isExpired({ expiresAt: at(1000) }, at(999))).toBe(false);
    expect(isExpired({ expiresAt: at(1000) }, at(1000))).toBe(true);
    expect(isExpired({ expiresAt: undefined }, at(8.64e15))).toBe(false);
  });
});
