import { type Agent, type ClientRequestArgs, type IncomingMessage, request, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type Duplex, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { JoinedBytes, largeBytes } from "../limits/joined-bytes.ts";
import { receiveWithoutLimit } from "../limits/receive-limit.ts";
import { breakOff, linger } from "../live/bodies.ts";
import type { PooledOptions } from "./agent.ts";
import { type Forwarded, toClient, toServer } from "./headers.ts";

/** How long the other side of a WebSocket's connection may take to end once one has. */
const closeMs = 5_000;
/** What a client may send before its WebSocket is open. More waits in its connection, and then its leaving isn't seen. */
const maxEarlyBytes = 64 * 1024;

/** What may be sent again when the connection broke before an answer (RFC 9110, 9.2.2). */
const repeatable = new Set(["GET", "HEAD", "OPTIONS"]);

/** Where a request is passed on to, and how. */
export interface ProxyTarget {
  /** Opens a connection to the server. What it fails with is what the request fails with. */
  connect(): Duplex;
  /** What keeps connections for later requests with the same key. Without one, each request has its own. */
  pool?: { agent: Agent; key: string };
  /** Path and query. */
  path: string;
  /** The Host header that the server gets. */
  host: string;
  forwarded: Forwarded;
  /** Headers of the request that get another value, or are left out, by their names in lower case. */
  replaced: Readonly<Record<string, string | undefined>>;
  /** A header of the answer as the client gets it, if at all. Names are in lower case. */
  changeAnswer(name: string, value: string): string | undefined;
  /** Headers that are added to the answer, names and values one after the other. */
  added: readonly string[];
  /** Called before anything of the answer is sent. */
  onAnswer?(): void;
  /** Ends the request: its connections are cut. */
  signal: AbortSignal;
}

/**
 * Passes a request on, and its answer back, both while they come. Throws while nothing was answered: VALIDATION_ERROR,
 * UPSTREAM_ERROR, what `connect` failed with, or the signal's reason. After that, what fails breaks the answer off.
 */
export async function proxyRequest(raw: IncomingMessage, response: ServerResponse, target: ProxyTarget): Promise<void> {
  receiveWithoutLimit(raw);
  try {
    const { answer, rest } = await send(raw, response, target, false);
    if (rest) {
      rest.destroy();
      throw notHttp(new Error("the server switches protocols unasked"));
    }
    await sendAnswer(raw, response, target, answer);
  } finally {
    linger(raw);
  }
}

/**
 * Passes the request for a WebSocket on, and then all bytes both ways until one side ends, the signal aborts or the
 * connection breaks. An answer that refuses it is passed back. Throws as `proxyRequest`.
 * @param response is assigned to the request's socket
 */
export async function proxyUpgrade(raw: IncomingMessage, response: ServerResponse, target: ProxyTarget): Promise<void> {
  const { socket } = raw;
  const giveBack = readEarly(socket);
  const { answer, rest } = await send(raw, response, target, true);
  if (!rest) {
    // The connection can't take another request.
    await sendAnswer(raw, response, { ...target, added: [...target.added, "Connection", "close"] }, answer);
    socket.destroySoon();
    return;
  }
  let headers: string[];
  try {
    if (answer.statusCode !== 101 || answer.headers.upgrade?.toLowerCase() !== "websocket") {
      throw new Error("the server switches to another protocol");
    }
    headers = ["Connection", "Upgrade", "Upgrade", "websocket", ...answerHeaders(answer, target)];
  } catch (error) {
    rest.destroy();
    throw notHttp(error);
  }
  target.onAnswer?.();
  response.statusCode = 101;
  socket.write(`HTTP/1.1 101 Switching Protocols\r\n${linesOf(headers)}\r\n`, "latin1");
  giveBack();
  await joinSockets(socket, rest, target.signal);
}

/**
 * Reads what a client sends before its WebSocket is open, since its end is seen by reading alone: its connection is
 * destroyed then. Returns what stops that and leaves the bytes to the next reader.
 */
function readEarly(socket: Socket): () => void {
  const early = new JoinedBytes();
  const keep = (chunk: Buffer) => {
    early.add(chunk);
    if (early.length > maxEarlyBytes) socket.pause();
  };
  const leave = () => void socket.destroy();
  socket.on("data", keep).once("end", leave);
  if (socket.readableEnded) leave();
  return () => {
    socket.off("data", keep).off("end", leave).pause();
    if (early.length > 0) socket.unshift(early.take());
  };
}

interface Answered {
  answer: IncomingMessage;
  /** The connection, when the protocol was switched. */
  rest?: Duplex;
}

function send(
  raw: IncomingMessage,
  response: ServerResponse,
  target: ProxyTarget,
  isUpgrade: boolean,
): Promise<Answered> {
  const { pool, connect, path, signal } = target;
  const { method = "GET" } = raw;
  const headers = toServer(raw, { ...target, isUpgrade });
  const hasBody = "content-length" in raw.headers || "transfer-encoding" in raw.headers;
  // The server may close a connection that is kept just when it is used again.
  const kept = !hasBody && !isUpgrade && repeatable.has(method) ? pool : undefined;
  return new Promise((resolve, reject) => {
    signal.throwIfAborted();
    // It emits `close` once, which may have been before this.
    if (response.destroyed) throw notHttp(new Error("the client has left"));
    const ask = (via: ClientRequestArgs) => {
      const sent = request({ method, path, headers, setHost: false, ...via });
      let isAnswered = false;
      const leave = () => sent.destroy();
      signal.addEventListener("abort", leave);
      response.once("close", leave);
      const settle = () => {
        signal.removeEventListener("abort", leave);
        response.off("close", leave);
      };
      const answerWith = (answered: Answered) => {
        isAnswered = true;
        settle();
        resolve(answered);
      };
      sent.once("response", (answer) => answerWith({ answer }));
      sent.once("upgrade", (answer, rest, head) => {
        // Node removed its own listener. What the connection is joined to ends with it.
        rest.on("error", () => {});
        if (head.length > 0) rest.unshift(head);
        answerWith({ answer, rest });
      });
      sent.on("error", (error) => {
        settle();
        if (signal.aborted) reject(signal.reason);
        else if (sent.reusedSocket && !isAnswered && !response.destroyed) ask({ createConnection: connect });
        else reject(notHttp(error));
      });
      if (hasBody) raw.pipe(sent);
      else sent.end();
    };
    try {
      const pooled: PooledOptions | undefined = kept && { agent: kept.agent, host: kept.key, connect };
      ask(pooled ?? { createConnection: connect });
    } catch (cause) {
      throw new DomainError("VALIDATION_ERROR", "The request has headers that can't be passed on.", {
        violations: [{ field: "header", issue: "can't be passed on" }],
        cause,
      });
    }
  });
}

async function sendAnswer(
  raw: IncomingMessage,
  response: ServerResponse,
  target: ProxyTarget,
  answer: IncomingMessage,
): Promise<void> {
  const { statusCode = 0 } = answer;
  try {
    // Node takes a 101 without Upgrade for an answer, and a proxy in front of us would make a tunnel of it.
    if (statusCode < 200) throw new Error("the server switches to a protocol that it doesn't name");
    const headers = answerHeaders(answer, target);
    target.onAnswer?.();
    // Its own reason phrase tells nothing more.
    response.writeHead(statusCode, headers);
  } catch (error) {
    answer.destroy();
    throw notHttp(error);
  }
  // The headers go with the first of the body, which mostly came with them.
  setImmediate(() => {
    if (!response.writableEnded) response.flushHeaders();
  });
  if (endsWithConnection(answer, raw)) failWithConnection(answer);
  await passBody(answer, response, target.signal);
}

/**
 * Passes the body of an answer on until its response is over. What fails, and the signal, breaks the response off. By
 * hand, since `pipeline` takes several times as long for a small one.
 */
function passBody(answer: IncomingMessage, response: ServerResponse, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const cut = () => breakOff(response);
    const end = () => {
      signal.removeEventListener("abort", cut);
      answer.destroy();
      resolve();
    };
    signal.addEventListener("abort", cut);
    answer.once("close", () => {
      if (!answer.readableEnded) cut();
    });
    answer.pipe(joinWrites(response)).once("error", cut);
    response.once("finish", end).once("close", end);
    if (signal.aborted || answer.destroyed) cut();
    if (response.destroyed) end();
  });
}

/** Writes to a response one at a time, and joins what comes meanwhile, of which small chunks would take far more memory. */
function joinWrites(response: ServerResponse): Writable {
  return new Writable({
    highWaterMark: largeBytes,
    write: (chunk, _encoding, done) => void response.write(chunk, done),
    writev: (parts, done) => void response.write(Buffer.concat(parts.map(({ chunk }) => chunk)), done),
    final: (done) => void response.end(done),
  });
}

/** Whether only the end of its connection says where the body ends (RFC 9112, 6.3). */
function endsWithConnection({ headers, statusCode }: IncomingMessage, { method }: IncomingMessage): boolean {
  if (method === "HEAD" || statusCode === 204 || statusCode === 304) return false;
  return headers["content-length"] === undefined && headers["transfer-encoding"] === undefined;
}

/** Node takes any end of the connection for the end of such a body. */
function failWithConnection(answer: IncomingMessage): void {
  const { socket } = answer;
  if (socket.errored) answer.destroy(socket.errored);
  else socket.once("error", (error) => answer.destroy(error));
}

function answerHeaders(answer: IncomingMessage, { changeAnswer, added }: ProxyTarget): string[] {
  return [...toClient(answer, changeAnswer), ...added];
}

function linesOf(headers: readonly string[]): string {
  let lines = "";
  for (let at = 0; at + 1 < headers.length; at += 2) lines += `${headers[at]}: ${headers[at + 1]}\r\n`;
  return lines;
}

/** Passes bytes both ways until both sides have ended, or one has for some seconds. */
async function joinSockets(client: Socket, server: Duplex, signal: AbortSignal): Promise<void> {
  const late = new AbortController();
  const within = { signal: AbortSignal.any([signal, late.signal]) };
  const end = () => void setTimeout(() => late.abort(), closeMs).unref();
  await Promise.all(
    [pipeline(client, server, within), pipeline(server, client, within)].map((way) =>
      way.then(end, () => late.abort()),
    ),
  );
  client.destroy();
  server.destroy();
}

/** What a client is told when there is no answer to pass on. */
function notHttp(cause: unknown): DomainError {
  if (cause instanceof DomainError) return cause;
  return new DomainError("UPSTREAM_ERROR", "The server in the sandbox did not send a valid HTTP/1.1 response.", {
    hint: "See whether it speaks HTTP on this port, and what it logs.",
    callersFault: true,
    cause,
  });
}
