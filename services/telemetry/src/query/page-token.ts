import { invalid } from "@sandgate/kit/base/domain-error";
import type { ChunkKind } from "../domain/chunks.ts";
import type { RowPosition } from "./windows.ts";

/** What a read has left for its next pages. */
export interface Remainder {
  /** Undefined at its beginning: from the window's end. */
  before: RowPosition | undefined;
  rows: number;
  bytes: number;
}

/** Of each kind; undefined when nothing is left. */
export type Remainders = Record<ChunkKind, Remainder | undefined>;

const kinds = ["logs", "metrics"] as const;

/** The text with which the next page is asked for; empty when there is none. */
export function formatPageToken(remainders: Remainders): string {
  return kinds
    .flatMap((kind) => {
      const remainder = remainders[kind];
      if (!remainder) return [];
      const { timeNs = "", sequence = "" } = remainder.before ?? {};
      return [`${kind}.${timeNs}.${sequence}.${remainder.rows}.${remainder.bytes}`];
    })
    .join("_");
}

/** Throws VALIDATION_ERROR for a text that is not of formatPageToken. */
export function parsePageToken(text: string): Remainders {
  const remainders: Remainders = { logs: undefined, metrics: undefined };
  for (const part of text.split("_")) {
    const match = /^(logs|metrics)\.(?:(\d{1,19})\.(\d{1,15})|\.)\.(\d{1,6})\.(\d{1,9})$/.exec(part);
    const [, name, timeNs, sequence, rows, bytes] = match ?? [];
    const kind = kinds.find((each) => each === name);
    if (!kind) throw invalid("page_token", "is not of an earlier page");
    const before = timeNs === undefined ? undefined : { timeNs: BigInt(timeNs), sequence: Number(sequence) };
    remainders[kind] = { before, rows: Number(rows), bytes: Number(bytes) };
  }
  return remainders;
}
