import type { IncomingMessage } from "node:http";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { validationError } from "../errors/envelope.ts";

/** Names and values, one after the other, as they came. */
export type RawHeaders = readonly string[];

/** Headers of one connection (RFC 9110, 7.6.1), and those that say where a body ends, which each side says anew. */
const ofConnection = new Set([
  "connection",
  "content-length",
  "keep-alive",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
]);
/** Of a request: what we say ourselves. */
const ours = new Set(["expect", "forwarded", "host", "x-real-ip"]);
const forwardedPrefix = "x-forwarded-";
/** Without a body a request with one of these needs no length. */
const withoutBody = new Set(["GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "CONNECT"]);

/** How a client reached us. */
export interface Forwarded {
  /** Its address, if that is known. */
  for: string | undefined;
  proto: "http" | "https";
  /** The host that it asked for. */
  host: string;
}

/**
 * The headers of a request as the server in the sandbox gets it.
 * @param o.replaced headers that get another value, or are left out if that is undefined, by their names in lower case
 */
export function toServer(
  raw: IncomingMessage,
  o: {
    host: string;
    forwarded: Forwarded;
    replaced: Readonly<Record<string, string | undefined>>;
    isUpgrade: boolean;
  },
): string[] {
  const isReplaced = (name: string) => {
    // CGI-like servers read both as the same.
    const dashed = name.replaceAll("_", "-");
    return ours.has(dashed) || dashed.startsWith(forwardedPrefix) || Object.hasOwn(o.replaced, dashed);
  };
  const added = Object.entries(o.replaced).flatMap(([name, value]) => (value === undefined ? [] : [name, value]));
  const { for: address, proto, host } = o.forwarded;
  return [
    "Host",
    o.host,
    ...passOn(raw.rawHeaders, (name, value) => (isReplaced(name) ? undefined : value)),
    ...added,
    ...(address === undefined ? [] : ["X-Forwarded-For", address]),
    "X-Forwarded-Proto",
    proto,
    "X-Forwarded-Host",
    host,
    ...(o.isUpgrade ? ["Connection", "Upgrade", "Upgrade", "websocket"] : lengthOf(raw)),
  ];
}

/** What says where the body of a request ends. Throws VALIDATION_ERROR for what others may understand otherwise. */
function lengthOf({ headers, httpVersion, method = "GET" }: IncomingMessage): string[] {
  const { "content-length": length, "transfer-encoding": encoding } = headers;
  if (encoding !== undefined) {
    if (encoding.toLowerCase() !== "chunked" || httpVersion !== "1.1" || length !== undefined) {
      throw validationError([{ field: "header.transfer-encoding", issue: "must be chunked, alone, and of HTTP/1.1" }]);
    }
    return ["Transfer-Encoding", "chunked"];
  }
  if (length !== undefined) return ["Content-Length", length];
  return withoutBody.has(method) ? [] : ["Content-Length", "0"];
}

/** The headers of an answer as the client gets it. Throws UPSTREAM_ERROR for a body that can't be passed on. */
export function toClient(
  answer: IncomingMessage,
  change: (name: string, value: string) => string | undefined,
): string[] {
  const { "content-length": length, "transfer-encoding": encoding } = answer.headers;
  if (encoding !== undefined && (encoding.toLowerCase() !== "chunked" || length !== undefined)) {
    throw new DomainError("UPSTREAM_ERROR", "The server's answer has a Transfer-Encoding other than chunked.", {
      callersFault: true,
    });
  }
  return [...passOn(answer.rawHeaders, change), ...(length === undefined ? [] : ["Content-Length", length])];
}

/** Leaves out what is of the connection, and what `change` returns no value for. It is given names in lower case. */
function passOn(raw: RawHeaders, change: (name: string, value: string) => string | undefined): string[] {
  const named = new Set<string>();
  for (const [name, value] of pairsOf(raw)) {
    if (name.toLowerCase() !== "connection") continue;
    for (const each of value.split(",")) named.add(each.trim().toLowerCase());
  }
  const passed: string[] = [];
  for (const [name, value] of pairsOf(raw)) {
    const key = name.toLowerCase();
    if (ofConnection.has(key) || named.has(key)) continue;
    const changed = change(key, value);
    if (changed !== undefined) passed.push(name, changed);
  }
  return passed;
}

function* pairsOf(raw: RawHeaders): Generator<[string, string]> {
  for (let at = 0; at + 1 < raw.length; at += 2) yield [raw[at] ?? "", raw[at + 1] ?? ""];
}
