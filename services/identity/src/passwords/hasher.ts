import { argon2, randomBytes, timingSafeEqual } from "node:crypto";
import { promisify } from "node:util";
import { DomainError } from "@sandgate/kit/base/domain-error";
import pLimit from "p-limit";

/** The cost of one hash. Memory is in KiB. */
export interface Argon2Work {
  memory: number;
  passes: number;
  parallelism: number;
}

/** The first recommendation of the OWASP password storage cheat sheet for argon2id with little memory. */
const owaspWork: Argon2Work = { memory: 19_456, passes: 2, parallelism: 1 };

const saltBytes = 16;
const hashBytes = 32;
const argon2Version = 19;

const argon2Async = promisify(argon2);

interface StoredHash extends Argon2Work {
  salt: Buffer;
  hash: Buffer;
}

export interface PasswordHasher {
  /** A PHC string (`$argon2id$v=19$m=…,t=…,p=…$salt$hash`) to store. */
  hash(password: string): Promise<string>;
  /**
   * Whether the password is the stored one. An absent hash costs the same work and never matches, so that the time of
   * the answer doesn't reveal whether a user exists.
   */
  verify(password: string, stored: string | undefined): Promise<boolean>;
}

/**
 * Hashes on libuv's threads, `concurrency` at once. With `queueLength` more waiting, both methods throw RATE_LIMITED:
 * a queue without a bound would only turn an overload into timeouts.
 */
export function createPasswordHasher({
  work = owaspWork,
  concurrency = 1,
  queueLength = 50,
}: {
  work?: Argon2Work;
  concurrency?: number;
  queueLength?: number;
} = {}): PasswordHasher {
  const limit = pLimit(concurrency);

  function enqueue<T>(task: () => Promise<T>): Promise<T> {
    if (limit.activeCount + limit.pendingCount >= concurrency + queueLength) {
      throw new DomainError("RATE_LIMITED", "Too many passwords are being checked at the moment.", {
        hint: "Wait as long as the Retry-After header says, then send the request again.",
        retryAfterSeconds: 2,
      });
    }
    return limit(task);
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

  const nobody: StoredHash = { ...work, salt: randomBytes(saltBytes), hash: randomBytes(hashBytes) };

  return {
    hash: async (password) =>
      enqueue(async () => {
        const salt = randomBytes(saltBytes);
        return formatHash({ ...work, salt, hash: await derive(password, salt, hashBytes, work) });
      }),
    verify: async (password, stored) =>
      enqueue(async () => {
        const expected = stored === undefined ? nobody : parseHash(stored);
        const actual = await derive(password, expected.salt, expected.hash.length, expected);
        return timingSafeEqual(actual, expected.hash) && stored !== undefined;
      }),
  };
}

function formatHash({ memory, passes, parallelism, salt, hash }: StoredHash): string {
  const cost = `m=${memory},t=${passes},p=${parallelism}`;
  return `$argon2id$v=${argon2Version}$${cost}$${unpadded(salt)}$${unpadded(hash)}`;
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

/** A random password, for an account that was given none. */
export function newPassword(): string {
  return randomBytes(18).toString("base64url");
}
