import { argon2, randomBytes, timingSafeEqual } from "node:crypto";
import { promisify } from "node:util";
import { DomainError } from "@sandgate/kit/base/domain-error";

/** The work of one hash. Memory is in KiB. */
export interface Argon2Work {
  memory: number;
  passes: number;
  parallelism: number;
}

/** The first recommendation of the OWASP password storage cheat sheet for argon2id with little memory. */
const OWASP_WORK: Argon2Work = { memory: 19_456, passes: 2, parallelism: 1 };

const SALT_BYTES = 16;
const HASH_BYTES = 32;
const ARGON2_VERSION = 19;

const argon2Async = promisify(argon2);

interface StoredHash extends Argon2Work {
  salt: Buffer;
  hash: Buffer;
}

export interface PasswordHasher {
  /** A PHC string (`$argon2id$v=19$m=…,t=…,p=…$salt$hash`) to store. */
  hash(password: string): Promise<string>;
  /**
   * Whether the password is the stored one. An absent hash costs the same work and is never right, so that the time of
   * the answer doesn't tell whether a user exists.
   */
  verify(password: string, stored: string | undefined): Promise<boolean>;
}

/**
 * Hashes on libuv's threads, `concurrency` at once. With `queueLength` more waiting, both methods throw RATE_LIMITED:
 * a queue without a bound would only turn an overload into timeouts.
 */
export function createPasswordHasher({
  work = OWASP_WORK,
  concurrency = 2,
  queueLength = 100,
}: {
  work?: Argon2Work;
  concurrency?: number;
  queueLength?: number;
} = {}): PasswordHasher {
  const waiting: (() => void)[] = [];
  let running = 0;

  async function takeTurn<T>(task: () => Promise<T>): Promise<T> {
    if (running >= concurrency) {
      if (waiting.length >= queueLength) {
        throw new DomainError("RATE_LIMITED", "Too many passwords are being checked at the moment.", {
          hint: "Wait for the seconds in Retry-After, then send the request again.",
          retryAfterSeconds: 2,
        });
      }
      await new Promise<void>((resolve) => waiting.push(resolve));
    } else {
      running++;
    }
    try {
      return await task();
    } finally {
      const next = waiting.shift();
      if (next) next();
      else running--;
    }
  }

  function derive(password: string, salt: Buffer, length: number, cost: Argon2Work): Promise<Buffer> {
    return argon2Async("argon2id", {
      // The same password typed on another keyboard may come in another Unicode form (NIST SP 800-63B).
      message: password.normalize("NFKC"),
      nonce: salt,
      tagLength: length,
      memory: cost.memory,
      passes: cost.passes,
      parallelism: cost.parallelism,
    });
  }

  const nobody: StoredHash = { ...work, salt: randomBytes(SALT_BYTES), hash: randomBytes(HASH_BYTES) };

  return {
    hash: (password) =>
      takeTurn(async () => {
        const salt = randomBytes(SALT_BYTES);
        return formatHash({ ...work, salt, hash: await derive(password, salt, HASH_BYTES, work) });
      }),
    verify: (password, stored) =>
      takeTurn(async () => {
        const expected = stored === undefined ? nobody : parseHash(stored);
        const actual = await derive(password, expected.salt, expected.hash.length, expected);
        return timingSafeEqual(actual, expected.hash) && stored !== undefined;
      }),
  };
}

function formatHash({ memory, passes, parallelism, salt, hash }: StoredHash): string {
  const cost = `m=${memory},t=${passes},p=${parallelism}`;
  return `$argon2id$v=${ARGON2_VERSION}$${cost}$${unpadded(salt)}$${unpadded(hash)}`;
}

function parseHash(text: string): StoredHash {
  const match = /^\$argon2id\$v=19\$m=(\d+),t=(\d+),p=(\d+)\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$/.exec(text);
  const [, memory, passes, parallelism, salt, hash] = match ?? [];
  if (salt === undefined || hash === undefined) throw new Error("A stored password hash can't be read.");
  return {
    memory: Number(memory),
    passes: Number(passes),
    parallelism: Number(parallelism),
    salt: Buffer.from(salt, "base64"),
    hash: Buffer.from(hash, "base64"),
  };
}

function unpadded(bytes: Buffer): string {
  return bytes.toString("base64").replaceAll("=", "");
}

/** A password for an account that nobody has chosen one for. */
export function newPassword(): string {
  return randomBytes(18).toString("base64url");
}
