import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { Tinypool } from "tinypool";
import { isOwnName } from "../domain/passwords.ts";

/** The lowest zxcvbn score that is accepted. It takes more than 10⁶ guesses, and each guess is a sign-in. */
const leastScore = 2;
/** How many characters are judged. The work grows with the cube of the length. */
const judgedLength = 64;
const queueLength = 50;
/** How long the thread lives without work. Its word lists take 30 MB. */
const idleMs = 30_000;

export interface PasswordStrength {
  /**
   * Throws VALIDATION_ERROR on `password` for one that is common, easy to guess or made of the user's name, and
   * RATE_LIMITED when too many wait to be judged.
   */
  require(password: string, username: string): Promise<void>;
  close(): Promise<void>;
}

/** Judges new passwords by zxcvbn with its list of common ones, on a thread that lives only while there are any. */
export function createPasswordStrength(): PasswordStrength {
  const pool = new Tinypool({
    filename: new URL("./strength.worker.ts", import.meta.url).href,
    name: "scoreOf",
    minThreads: 0,
    maxThreads: 1,
    maxQueue: queueLength,
    idleTimeout: idleMs,
  });
  return {
    async require(password, username) {
      if (isOwnName(password, username))
        throw invalid("password", "must not be your user name or its part before the @");
      if (pool.queueSize >= queueLength) {
        throw new DomainError("RATE_LIMITED", "Too many passwords are being set at the moment.", {
          retryAfterSeconds: 2,
        });
      }
      const known = [username, ...username.split(/[^\p{L}\p{N}]+/u), "sandgate"];
      const score: number = await pool.run({ password: password.slice(0, judgedLength), known });
      if (score < leastScore) {
        throw invalid("password", "is too easy to guess: use several uncommon words or a random password");
      }
    },
    close: () => pool.destroy(),
  };
}
