import type { Violation } from "@sandgate/kit/base/domain-error";
import type { FastifyRequest } from "fastify";
import { checkQueryPath } from "./paths.ts";

// RFC 9110, 8.8.3: a tag in quotes, perhaps weak.
const entityTag = /^(?:W\/)?"[\x21\x23-\x7e\x80-\xff]*"$/;
const singleRange = /^bytes=(\d*)-(\d*)$/i;
const maxOffset = BigInt(Number.MAX_SAFE_INTEGER);

/** What must hold of a file that is changed, of headers that were checked. */
export function preconditionOf({ headers }: Pick<FastifyRequest, "headers">) {
  const { "if-match": match, "if-none-match": noneMatch } = headers;
  const tags = typeof match === "string" ? splitTags(match) : [];
  return { ifMatch: tags.map(toOpaqueTag), ifNoneMatch: noneMatch !== undefined };
}

/** A weak tag never matches here, so it stays different from all that files have. */
function toOpaqueTag(tag: string): string {
  return tag.startsWith('"') ? tag.slice(1, -1) : tag;
}

/** What is wrong with a request that changes the file of its query, beyond the types of its fields. */
export function checkChange(request: FastifyRequest): Violation[] {
  return [...checkQueryPath(request), ...checkIfMatch(request)];
}

function checkIfMatch({ headers }: Pick<FastifyRequest, "headers">): Violation[] {
  const { "if-match": match } = headers;
  if (typeof match !== "string") return [];
  const tags = splitTags(match);
  const isValid = tags.length > 0 && (match.trim() === "*" || tags.every((tag) => entityTag.test(tag)));
  return isValid ? [] : [{ field: "header.if-match", issue: "must be * or ETags in quotes, separated by commas" }];
}

/** No tag of ours has a comma. */
function splitTags(header: string): string[] {
  return header
    .split(",")
    .map((tag) => tag.trim())
    .filter((tag) => tag !== "");
}

/** The range of bytes that a request asks for. None where the header is malformed or names several. */
export function rangeOf({ headers }: Pick<FastifyRequest, "headers">) {
  const { range, "if-range": condition } = headers;
  const [, first = "", last = ""] = singleRange.exec(range?.trim() ?? "") ?? [];
  if (first === "" && last === "") return {};
  const ifRange = typeof condition === "string" ? { ifRange: toOpaqueTag(condition.trim()) || "none" } : {};
  if (first === "") return { range: { length: bound(last) }, ...ifRange };
  const start = bound(first);
  if (last === "") return { range: { start }, ...ifRange };
  const end = bound(last);
  return end < start ? {} : { range: { start, length: end - start + 1n }, ...ifRange };
}

function bound(digits: string): bigint {
  const number = BigInt(digits);
  return number < maxOffset ? number : maxOffset;
}
