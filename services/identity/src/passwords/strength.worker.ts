import { ZxcvbnFactory } from "@zxcvbn-ts/core";
import { adjacencyGraphs, dictionary } from "@zxcvbn-ts/language-common";

const judge = new ZxcvbnFactory({
  dictionary: { commonPasswords: dictionary["passwords-common"] },
  graphs: adjacencyGraphs,
});

/** Scores from 0 (guessed at once) to 4. It runs in a thread of its own, as some passwords take a third of a second. */
export function scoreOf(o: { password: string; known: string[] }): number {
  return judge.check(o.password, o.known).score;
}
