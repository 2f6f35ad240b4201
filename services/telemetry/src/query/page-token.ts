import { invalid } from "@sandgate/kit/base/domain-error";
import type { ChunkKind } from "../domain/chunks.ts";
import type { Place } from "./windows.ts";

/** What a read has left for its next pages. */
export interface Rest {
  /** Undefined at its beginning: from the window's end. */
  before: Place | undefined;
  rows: number;
  bytes: number;
}

/** Of each kind; undefined when nothing is left. */
export type Rests = Record<ChunkKind, Rest | undefined>;

const kinds = ["logs", "metrics"] as const;

/** The text with which the next page is asked for; empty when there is none. */
export function formatPageToken(rests: Rests): string {
  return kinds
    .flatMap((kind) => {
      const rest = rests[kind];
      if (!rest) return [];
      const { timeNs = "", sequence = "" } = rest.before ?? {};
      return [`${kind}.${timeNs}.${sequence}.${rest.rows}.${rest.bytes}`];
    })
    .join("_");
}

/** Throws VALIDATION_ERROR for a text that is not of formatPageToken. */
export function parsePageToken(text: string): Rests {
  const rests: Rests = { logs: undefined, metrics: undefined };
  for (const part of text.split("_")) {
    const match = /^(logs|metrics)\.(?:(\d{1,19})\.(\d{1,15})|\.)\.(\d{1,6})\.(\d{1,9})$/.exec(part);
    const [, name, timeNs, sequence, rows, bytes] = match ?? [];
    const kind = kinds.find((each) => each === name);
    if (!kind) throw invalid("page_token", "is not of an earlier page");
    const before = timeNs === undefined ? undefined : { timeNs: BigInt(timeNs), sequence: Number(sequence) };
    rests[kind] = { before, rows: Number(rows), bytes: Number(bytes) };
  }
  return rests;
}
