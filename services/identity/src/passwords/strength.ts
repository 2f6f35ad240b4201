import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { Tinypool } from "tinypool";

/** The least score of zxcvbn: it takes more than 10⁶ guesses, too many for whoever has to sign in for each. */
const leastScore = 2;
/** The work grows with the cube of the length, and what is weak up to here is a repetition or a run. */
const judgedLength = 64;
const queueLength = 50;
/** The word lists take 30 MB, so that the thread ends when no password was set for a while. */
const idleMs = 30_000;

export interface PasswordStrength {
  /**
   * Throws VALIDATION_ERROR on `password` for one that is common, easy to guess or made of the user's name, RATE_LIMITED when
   * too many wait to be judged.
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
      if (pool.queueSize >= queueLength) {
        throw new DomainError("RATE_LIMITED", "Too many passwords are being set at the moment.", {
          retryAfterSeconds: 2,
        });
      }
      const known = [username, ...username.split(/[^\p{L}\p{N}]+/u), "sandgate"];
      const score: number = await pool.run({ password: password.slice(0, judgedLength), known });
      if (score < leastScore) {
        throw invalid("password", "is too easy to guess: take several uncommon words, or a random password");
      }
    },
    close: () => pool.destroy(),
  };
}
