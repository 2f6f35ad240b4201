import type { Answer } from "../conformance/client.ts";

export type Kind = "workspace" | "image" | "token" | "sandbox";

/** Something that a caller has asked for, and what the caller knows about it. */
export interface Thing {
  readonly kind: Kind;
  readonly name: string;
  readonly workspace: Thing | undefined;
  /** Known once its creation was acknowledged. Without one it may or may not have been created. */
  id?: string;
  /** Whether it was deleted, or a sandbox stopped. */
  gone: "no" | "maybe" | "yes";
  /** Asks for its creation again with the same Idempotency-Key; undefined when the outcome is unknown. */
  ask(): Promise<Answer | undefined>;
  /** The first answer. */
  answer?: Answer["body"];
}

/** What the callers, which never crash, know. */
export interface Journal {
  readonly things: Thing[];
  /** Answers that no crash explains. */
  readonly violations: string[];
  requests: number;
  /** Requests whose outcome is unknown: an answer of 500 and above, or none. */
  unknown: number;
}

/** The things of a kind whose creation was acknowledged, of all kinds unless one is named. */
export function acknowledgedIn({ things }: Journal, kind?: Kind): Thing[] {
  return things.filter((thing) => thing.id !== undefined && (kind === undefined || thing.kind === kind));
}
