import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import type { Sandbox } from "@sandgate/client";
import { named, toNumber, toSeconds, UsageError } from "../args.ts";
import { findSandbox } from "../context.ts";
import { say, write } from "../output.ts";
import { setUp } from "../setup.ts";

export async function port(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals, values } = setUp(args, signal, {
    public: { type: "boolean" },
    open: { type: "boolean" },
    ttl: { type: "string" },
  });
  const [name = "", number] = named(positionals, "SANDBOX", "PORT");
  const ttlSeconds = toSeconds(values.ttl, "--ttl");
  const portNumber = toNumber(number, "PORT") ?? 0;
  const sandbox = await findSandbox(context, name);
  const preview = await sandbox.ports.open(portNumber, { public: values.public, ttlSeconds, signal });
  if (context.format === "json") await write(`${JSON.stringify(preview, null, 2)}\n`);
  else await write(`${preview.url}\n`);
  if (context.format === "table" && !preview.public) say(`Send X-Sandgate-Token: ${preview.token}`);
  if (values.open) {
    const { url } = preview.public ? preview : await sandbox.ports.link(preview.id, { signal });
    openInBrowser(url);
  }
  return 0;
}

function openInBrowser(url: string): void {
  const opener = { darwin: "open", win32: "explorer" }[process.platform as string] ?? "xdg-open";
  const opened = spawn(opener, [url], { stdio: "ignore", detached: true });
  opened.on("error", () => say(`Open ${url}`));
  opened.unref();
}

export async function forward(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals } = setUp(args, signal, {});
  const [name = "", ports = ""] = named(positionals, "SANDBOX", "[LOCAL:]PORT");
  const [, local, remote] = /^(?:(\d+):)?(\d+)$/.exec(ports) ?? [];
  if (remote === undefined) throw new UsageError(`${ports}: [LOCAL:]PORT is expected`);
  const sandbox = await findSandbox(context, name);
  const server = createServer({ allowHalfOpen: true }, (socket) => void pass(sandbox, Number(remote), socket, signal));
  server.listen(Number(local ?? remote), "127.0.0.1");
  await once(server, "listening", { signal });
  const address = server.address();
  const bound = typeof address === "object" ? address?.port : local;
  say(`127.0.0.1:${bound} is forwarded to port ${remote} of ${sandbox.name}. Ctrl-C ends it.`);
  await once(signal, "abort");
  server.close();
  return 0;
}

/** How long an answer may take after all was sent. */
const answerMs = 30_000;

async function pass(sandbox: Sandbox, port: number, socket: Socket, signal: AbortSignal): Promise<void> {
  const end = () => void socket.destroy();
  socket.on("error", end);
  signal.addEventListener("abort", end, { once: true });
  socket.once("close", () => signal.removeEventListener("abort", end));
  socket.pause();
  try {
    const { readable, writable } = await sandbox.ports.connect(port, { signal });
    const { Duplex } = await import("node:stream");
    const { pipeline } = await import("node:stream/promises");
    const remote = Duplex.fromWeb({ readable, writable } as Parameters<typeof Duplex.fromWeb>[0]);
    // Who has sent all may still wait for an answer; the other end can't be told.
    socket.once("end", () => void setTimeout(() => remote.destroy(), answerMs).unref());
    socket.pipe(remote, { end: false });
    await pipeline(remote, socket);
  } catch (error) {
    if (!signal.aborted) say(`error: ${error instanceof Error ? error.message : String(error)}`);
    socket.destroy();
  }
}
