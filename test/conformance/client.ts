import { randomUUID } from "node:crypto";
import { expect } from "vitest";
import { codes, type ErrorCode } from "./codes.ts";

export interface Answer {
  status: number;
  headers: Headers;
  /** The parsed JSON body; undefined when it is empty. */
  // biome-ignore lint/suspicious/noExplicitAny: the body is what the test expects it to be
  body: any;
  text: string;
}

export interface RequestOptions {
  token?: string | undefined;
  workspace?: string | undefined;
  headers?: Record<string, string>;
  /** Sent as JSON. */
  body?: unknown;
  /** Sent as it is. */
  raw?: string;
}

/** Sends requests, and checks of every answer its request id and, of an error, its envelope. */
export interface Client {
  /** Where the next request goes. */
  readonly url: string;
  send(method: string, path: string, options?: RequestOptions): Promise<Answer>;
  get(path: string, options?: RequestOptions): Promise<Answer>;
  post(path: string, body: unknown, options?: RequestOptions): Promise<Answer>;
  put(path: string, body: unknown, options?: RequestOptions): Promise<Answer>;
  delete(path: string, options?: RequestOptions): Promise<Answer>;
}

/** A client of one server, or of several in turn. */
export function createClient(...urls: [string, ...string[]]): Client {
  let turn = 0;
  const nextUrl = () => urls[turn++ % urls.length] ?? urls[0];

  async function send(method: string, path: string, options: RequestOptions = {}): Promise<Answer> {
    const hasBody = options.body !== undefined || options.raw !== undefined;
    const response = await fetch(nextUrl() + path, {
      method,
      redirect: "manual",
      headers: {
        ...(options.token === undefined ? {} : { authorization: `Bearer ${options.token}` }),
        ...(options.workspace === undefined ? {} : { "x-workspace-id": options.workspace }),
        ...(hasBody ? { "content-type": "application/json" } : {}),
        ...options.headers,
      },
      ...(hasBody ? { body: options.raw ?? JSON.stringify(options.body) } : {}),
    });
    const text = await response.text();
    const isJson = response.headers.get("content-type")?.includes("json") && text !== "";
    const answer = {
      status: response.status,
      headers: response.headers,
      body: isJson ? JSON.parse(text) : undefined,
      text,
    };
    checkAnswer(answer, `${method} ${path}`);
    return answer;
  }
  return {
    get url() {
      return nextUrl();
    },
    send,
    get: (path, options) => send("GET", path, options),
    post: (path, body, options) => send("POST", path, { ...options, body }),
    put: (path, body, options) => send("PUT", path, { ...options, body }),
    delete: (path, options) => send("DELETE", path, options),
  };
}

function checkAnswer(answer: Answer, what: string): void {
  const requestId = answer.headers.get("x-request-id");
  expect(requestId, `${what}: X-Request-Id`).toMatch(/^[A-Za-z0-9._-]{1,128}$/);
  const error = answer.body?.error;
  if (answer.status < 400 || error === undefined) {
    return;
  }
  const code: ErrorCode = error.code;
  expect(codes, `${what}: a code of the table`).toHaveProperty(code);
  expect(answer.status, `${what}: ${code}'s status`).toBe(codes[code].status);
  expect(error.retryable, `${what}: ${code}'s retryable`).toBe(codes[code].retryable);
  expect(error.message, what).toEqual(expect.stringMatching(/\S/));
  expect(error.hint, `${what}: hint`).toEqual(expect.stringMatching(/\S/));
  expect(error.docs_url, `${what}: docs_url`).toMatch(new RegExp(`^https?://.*#${code}$`));
  expect(error.request_id, `${what}: request_id`).toBe(requestId);
  expect(answer.body.detail, `${what}: detail`).toBe(error.message);
  if (code === "invalid_credentials" && error.details !== undefined) {
    expect(error.details, what).toEqual([{ issue: expect.stringMatching(/\S/), field: "body.otp" }]);
  } else if (code === "validation_error") {
    expect(error.details.length, `${what}: details`).toBeGreaterThan(0);
    for (const item of error.details) {
      expect(item, what).toEqual({
        issue: expect.stringMatching(/\S/),
        field: expect.stringMatching(/^(body|query|path|header)(\.|$)/),
      });
    }
  } else {
    expect(error, `${what}: details`).not.toHaveProperty("details");
  }
  if (answer.status === 401) {
    expect(answer.headers.get("www-authenticate"), `${what}: WWW-Authenticate`).toMatch(/^Bearer/);
  }
  if (answer.status === 429) {
    expect(Number(answer.headers.get("retry-after")), `${what}: Retry-After`).toBeGreaterThanOrEqual(1);
  }
}

/** Expects an error of this code; the envelope was checked when it came. */
export function expectError(answer: Answer, code: ErrorCode): void {
  expect(answer.body?.error?.code ?? `${answer.status} ${answer.text}`).toBe(code);
}

/** Expects a validation error on just these fields. */
export function expectInvalid(answer: Answer, ...fields: string[]): void {
  expectError(answer, "validation_error");
  const found: string[] = answer.body.error.details.map((item: { field: string }) => item.field);
  expect(found.sort()).toEqual(fields.sort());
}

/** Expects success, and returns the body. */
export function expectStatus(answer: Answer, status: number): Answer["body"] {
  expect(answer.status, answer.text).toBe(status);
  return answer.body;
}

export const uuid = expect.stringMatching(/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/);
export const isoMilliseconds = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
export const isoMicroseconds = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/);

/** A name that no other run has used. */
export function uniqueName(prefix: string): string {
  return `${prefix}-${randomUUID().slice(0, 8)}`;
}
