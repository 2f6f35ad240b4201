import { randomBytes } from "node:crypto";
import { Secret, TOTP } from "otpauth";

/** What authenticator apps take for granted (RFC 6238): SHA-1, 6 digits, 30 seconds. */
const totp = { algorithm: "SHA1", digits: 6, period: 30 };
const secretBytes = 20;
const otpPattern = /^\d{6}$/;

/** Crockford's alphabet in lower case. No letter is mistaken for a digit or another letter. */
const alphabet = "0123456789abcdefghjkmnpqrstvwxyz";
const recoveryCodeCount = 10;
/** 120 bits: from 112 on, a fast hash without a salt is enough to store (OWASP ASVS 5.0, 6.5.2). */
const recoveryCodeCharacters = 24;
const recoveryCodePattern = new RegExp(`^[${alphabet}]{${recoveryCodeCharacters}}$`);

/** A new secret of 160 bits. */
export function newOtpSecret(): Uint8Array {
  return new Secret({ size: secretBytes }).bytes;
}

/** The secret as it is typed into an app, and as the address that an app reads from a QR code. */
export function presentOtpSecret(secret: Uint8Array, username: string): { secret: string; uri: string } {
  const given = new Secret({ buffer: bufferOf(secret) });
  const app = new TOTP({ ...totp, issuer: "Sandgate", label: username, secret: given });
  return { secret: given.base32, uri: app.toString() };
}

/** The time step of a code: the current one, or the one before or after it. Undefined for a wrong code. */
export function stepOf(secret: Uint8Array, otp: string, now: Date): number | undefined {
  const token = otp.replaceAll(/\s/g, "");
  if (!otpPattern.test(token)) return undefined;
  const timestamp = now.getTime();
  const delta = TOTP.validate({
    ...totp,
    token,
    secret: new Secret({ buffer: bufferOf(secret) }),
    timestamp,
    window: 1,
  });
  return delta === null ? undefined : TOTP.counter({ period: totp.period, timestamp }) + delta;
}

/** Ten codes for a user who has lost the app, each in six groups of four. */
export function newRecoveryCodes(): string[] {
  return Array.from({ length: recoveryCodeCount }, () => {
    // The alphabet has 32 characters, so that each stands for the same number of the 256 values of a byte.
    const code = Array.from(randomBytes(recoveryCodeCharacters), (byte) => alphabet.charAt(byte % alphabet.length));
    return code.join("").replace(/(.{4})(?=.)/g, "$1-");
  });
}

/**
 * The form of a recovery code that is hashed, whatever its case, dashes and spaces. Undefined when the text can't be
 * one.
 */
export function canonicalRecoveryCode(otp: string): string | undefined {
  const code = otp.toLowerCase().replaceAll(/[\s-]/g, "");
  return recoveryCodePattern.test(code) ? code : undefined;
}

function bufferOf(bytes: Uint8Array): ArrayBuffer {
  return new Uint8Array(bytes).buffer;
}
