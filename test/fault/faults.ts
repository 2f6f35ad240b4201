import { expect } from "vitest";
import { type Answer, expectError } from "../conformance/client.ts";
import type { ErrorCode } from "../conformance/codes.ts";

/** Internals that an answer must never show: statements, paths, stack traces and addresses. */
const internals = [
  /\b(select|insert|update|delete|from|into|sqlite|table|constraint|disk|i\/o)\b/i,
  /\/(home|root|tmp|usr|var|services|facade|node_modules)\b/,
  /\.(ts|js|sqlite)\b/,
  /\bat .+:\d+/,
  /\b(econn\w+|enotfound|errcode|stack|connecterror|grpc|rpc|127\.0\.0\.1:\d+)\b/i,
];

/**
 * Expects this error, with nothing internal in its message, hint and headers. The client has checked its envelope.
 * `given`: what the caller has sent, which may be shown.
 */
export function expectFault(answer: Answer, code: ErrorCode, given = ""): void {
  expectError(answer, code);
  const { message, hint } = answer.body.error;
  const shown = [message, hint, ...[...answer.headers].map(([name, value]) => `${name}: ${value}`)]
    .join("\n")
    .replaceAll(given, "");
  for (const pattern of internals) expect(shown).not.toMatch(pattern);
}

interface LogLine {
  level: string;
  service: string;
  request_id?: string;
  msg: string;
  err?: { message: string; stack: string };
}

/** The lines about a request that a process or a logger has written. */
export function linesOf(output: string, requestId: string): LogLine[] {
  return output
    .split("\n")
    .filter((line) => line.startsWith("{") && line.includes(requestId))
    .map((line): LogLine => JSON.parse(line))
    .filter((line) => line.request_id === requestId);
}
