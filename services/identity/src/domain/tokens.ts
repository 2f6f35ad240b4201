import { createHash, randomBytes } from "node:crypto";

/** A secret of 256 bits that fits into a URL. */
export function newSecret(): string {
  return randomBytes(32).toString("base64url");
}

/** What is stored in place of a secret. The secrets are random and long, so a fast hash without a salt is enough. */
export function hashSecret(secret: string): Uint8Array {
  return new Uint8Array(createHash("sha256").update(secret).digest());
}
