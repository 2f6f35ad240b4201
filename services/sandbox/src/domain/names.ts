import { randomInt } from "node:crypto";
import { invalid } from "@sandgate/kit/base/domain-error";

const uuidForm = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

const adjectives = [
  "amber",
  "bold",
  "brisk",
  "calm",
  "clear",
  "deft",
  "eager",
  "fair",
  "fleet",
  "gentle",
  "keen",
  "light",
];
const nouns = [
  "acorn",
  "badger",
  "cedar",
  "comet",
  "dune",
  "falcon",
  "harbor",
  "lark",
  "maple",
  "otter",
  "reef",
  "willow",
];

/** A name for a sandbox that was given none: two words and a number, about 14 million of them. */
export function generateName(): string {
  const pick = (words: readonly string[]) => words[randomInt(words.length)];
  return `${pick(adjectives)}-${pick(nouns)}-${randomInt(100_000)}`;
}

/** Refuses a name that could be mistaken for an id. Its other rules are in the contract. */
export function checkName(name: string): void {
  if (uuidForm.test(name)) {
    throw invalid("name", "must not look like a UUID, which is the format of ids");
  }
}
