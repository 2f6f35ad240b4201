import { createHash, randomBytes } from "node:crypto";
import { DomainError } from "@sandgate/kit/base/domain-error";

/** A secret of 256 bits that fits into a URL. */
export function newSecret(): string {
  return randomBytes(32).toString("base64url");
}

/** What is stored in place of a secret. The secrets are random and long, so a fast hash without a salt is enough. */
export function hashSecret(secret: string): Uint8Array {
  return new Uint8Array(createHash("sha256").update(secret).digest());
}

/** The error for a mailed link that is unknown, used or expired. The route mails another. */
export function badLink(route: string): DomainError {
  return new DomainError("INVALID_TOKEN", "The link is invalid, has already been used or has expired.", {
    hint: `Request another mail with POST ${route}.`,
  });
}
