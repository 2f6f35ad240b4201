import { readFile } from "node:fs/promises";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { CommandTimedOut, type ProcessRecord, type Sandbox, SandgateError } from "@sandgate/client";
import { z } from "zod";
import { named } from "../args.ts";
import { type Context, findSandbox } from "../context.ts";
import { exitCodeOf } from "../foreground.ts";
import { setUp } from "../setup.ts";

/** More than this of an answer would fill an agent's context. */
const maxCharacters = 30_000;
const maxOutputs = 8;
/** What is kept of each. */
const maxKeptCharacters = 2 * 1024 * 1024;
const defaultTimeoutSeconds = 120;
const defaultImage = "default";

const instructions =
  "Sandboxes are isolated Linux containers. Make one with create_sandbox, then run commands and read and write files in it. A sandbox lives until its time ends or stop_sandbox is called.";

/** Serves until the client closes its end. */
export async function run(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals } = setUp(args, signal, {});
  named(positionals);
  const { version } = JSON.parse(await readFile(new URL("../../package.json", import.meta.url), "utf8"));
  const server = new McpServer({ name: "sandgate", version }, { instructions });
  addTools(server, context);
  const closed = new Promise<void>((resolve) => {
    server.server.onclose = resolve;
    process.stdin.once("end", resolve);
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
  await server.connect(new StdioServerTransport());
  await closed;
  await server.close();
  return 0;
}

interface Result {
  [key: string]: unknown;
  content: { type: "text"; text: string }[];
  isError?: boolean;
}

const text = (given: string): Result => ({ content: [{ type: "text", text: given }] });
const json = (given: unknown): Result => text(JSON.stringify(given, null, 2));

/** What the agent can do something about is an answer; anything else is the server's failure. */
async function answer(work: () => Promise<Result>): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof SandgateError)) throw error;
    const details = error.details.map(({ field, issue }) => `\n${field}: ${issue}`).join("");
    const hint = error.hint === undefined ? "" : `\nhint: ${error.hint}`;
    return { ...text(`${error.code}: ${error.message}${details}${hint}`), isError: true };
  }
}

/** Where a text is cut so that no character is split: at an index, or behind the character that it is within. */
function cutAt(text: string, index: number): number {
  return (text.codePointAt(index - 1) ?? 0) > 0xffff ? index + 1 : index;
}

/** A part of a text that fits, with a note on how to go on. `length` is how long the text was before its end was dropped. */
function cut(kept: string, offset: number, limit = maxCharacters, length = kept.length): string {
  const start = Math.min(cutAt(kept, offset), kept.length);
  const end = Math.min(cutAt(kept, start + limit), kept.length);
  const part = kept.slice(start, end);
  if (end >= length) return part;
  const rest = `${length - end} more characters of ${length}`;
  return `${part}\n[${rest}${end < kept.length ? `; go on with offset ${end}` : ", which were not kept"}]`;
}

/** Reads a part of a text that fits, and no more. `next` is the offset to go on from; undefined at the end. */
async function readPart(
  texts: AsyncIterable<string>,
  offset: number,
  limit = maxCharacters,
): Promise<{ part: string; next: number | undefined }> {
  let part = "";
  let skipped = 0;
  for await (const text of texts) {
    const start = Math.min(cutAt(text, Math.max(0, offset - skipped)), text.length);
    skipped += start;
    part += text.slice(start);
    const end = cutAt(part, limit);
    if (part.length > end) return { part: part.slice(0, end), next: skipped + end };
  }
  return { part, next: undefined };
}

async function* decode(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  for await (const chunk of bytes) yield decoder.decode(chunk, { stream: true });
  yield decoder.decode();
}

const sandbox = z.string().describe("The sandbox's name or id");
const offset = z.number().int().min(0).default(0).describe("How many characters to skip");
const limit = z.number().int().min(1).max(maxCharacters).optional().describe("How many characters to give at most");

function show({ id, record }: Sandbox) {
  const { name, state, image, createdAt, expiresAt, labels } = record;
  return { id, name, state, image, created_at: createdAt, expires_at: expiresAt, labels };
}

function addTools(server: McpServer, context: Context): void {
  const { sandgate, signal } = context;
  const find = (name: string) => findSandbox(context, name);

  server.registerTool(
    "create_sandbox",
    {
      description: "Make a sandbox from an image, and wait until it is ready.",
      inputSchema: {
        image: z.string().default(defaultImage).describe("The name of an image"),
        name: z.string().optional().describe("Lower-case letters, digits and dashes; made up unless given"),
      },
    },
    ({ image, name }, { signal: cancelled }) =>
      answer(async () => json(show(await sandgate.sandboxes.create(image, { name, signal: cancelled })))),
  );
  server.registerTool(
    "list_sandboxes",
    { description: "List the sandboxes that live.", annotations: { readOnlyHint: true } },
    ({ signal: cancelled }) =>
      answer(async () => {
        const state = ["provisioning", "ready"] as const;
        return json((await sandgate.sandboxes.list({ state, signal: cancelled })).map(show));
      }),
  );
  server.registerTool(
    "stop_sandbox",
    {
      description: "Stop a sandbox; its files are gone.",
      inputSchema: { sandbox },
      annotations: { destructiveHint: true },
    },
    (o) =>
      answer(async () => {
        const found = await find(o.sandbox);
        await found.stop({ signal });
        return text(`${found.name} is stopped.`);
      }),
  );
  addCommandTool(server, find);
  addFileTools(server, find);
  server.registerTool(
    "open_port",
    {
      description: "Open a port on which a server in the sandbox listens at an address of its own.",
      inputSchema: {
        sandbox,
        port: z.number().int().min(1).max(65_535),
        public: z.boolean().default(false).describe("Whether anybody who knows the address may open it"),
      },
    },
    (o) =>
      answer(async () => {
        const { ports } = await find(o.sandbox);
        const preview = await ports.open(o.port, { public: o.public });
        const { url, expiresAt } = preview;
        if (preview.public) return json({ url, expires_at: expiresAt });
        // A browser's address, which works once, and what programs send.
        const link = await ports.link(preview.id);
        return json({ url, expires_at: expiresAt, link: link.url, header: `X-Sandgate-Token: ${preview.token}` });
      }),
  );
}

function addCommandTool(server: McpServer, find: (name: string) => Promise<Sandbox>): void {
  /** What the last commands printed. */
  const outputs = new Map<string, Output>();
  server.registerTool(
    "run_command",
    {
      description:
        "Run a command with /bin/sh in a sandbox, and get its exit code and output. Output that is too long is cut: the same call with an offset shows more of the same output, and runs nothing.",
      inputSchema: {
        sandbox,
        command: z.string().min(1),
        cwd: z.string().optional().describe("The folder in which it runs; the image's unless given"),
        timeout_seconds: z.number().int().min(1).max(86_400).default(defaultTimeoutSeconds),
        offset,
        limit,
      },
    },
    (o, { signal }) =>
      answer(async () => {
        const found = await find(o.sandbox);
        const key = JSON.stringify([found.id, o.command, o.cwd]);
        const show = ({ head, output, length, isError }: Output) => ({
          ...text(`${head}\n${cut(output, o.offset, o.limit, length)}`),
          isError,
        });
        const kept = outputs.get(key);
        if (o.offset > 0) {
          const gone =
            "The output of this command in this folder is not kept. Without an offset the command runs again.";
          return kept ? show(kept) : { ...text(gone), isError: true };
        }
        const made = await runFor(found, o, signal);
        outputs.delete(key);
        outputs.set(key, made);
        const [oldest = ""] = outputs.keys();
        if (outputs.size > maxOutputs) outputs.delete(oldest);
        return show(made);
      }),
  );
}

/** What a command printed on both streams, as it came. */
interface Output {
  head: string;
  /** The first of it. */
  output: string;
  /** How many characters it printed. */
  length: number;
  isError: boolean;
}

async function runFor(
  { commands }: Sandbox,
  o: { command: string; cwd?: string | undefined; timeout_seconds: number },
  signal: AbortSignal,
): Promise<Output> {
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder(), pty: new TextDecoder() };
  let output = "";
  let length = 0;
  const add = (part: string) => {
    // What follows something that was dropped is dropped, too.
    if (output.length === length) output += part.slice(0, cutAt(part, maxKeptCharacters - length));
    length += part.length;
  };
  let ended: ProcessRecord | undefined;
  const timeoutMs = o.timeout_seconds * 1000;
  for await (const event of commands.stream(o.command, { cwd: o.cwd, timeoutMs, signal })) {
    if (event.type === "output") add(decoders[event.stream].decode(event.data, { stream: true }));
    if (event.type === "exit") ended = event.process;
  }
  for (const decoder of Object.values(decoders)) add(decoder.decode());
  try {
    return { head: `exit code ${exitCodeOf(ended)}`, output, length, isError: false };
  } catch (error) {
    if (!(error instanceof CommandTimedOut)) throw error;
    return { head: `timed out after ${o.timeout_seconds} s`, output, length, isError: true };
  }
}

function addFileTools(server: McpServer, find: (name: string) => Promise<Sandbox>): void {
  const path = z.string().min(1).describe("A path; a relative one starts at the image's folder");
  server.registerTool(
    "read_file",
    {
      description: "Read a text file of a sandbox.",
      inputSchema: { sandbox, path, offset, limit },
      annotations: { readOnlyHint: true },
    },
    (o, { signal }) =>
      answer(async () => {
        const { files } = await find(o.sandbox);
        const bytes = await files.read(o.path, { format: "stream", signal });
        const { part, next } = await readPart(decode(bytes), o.offset, o.limit);
        if (next === undefined) return text(part);
        const { size } = await files.stat(o.path, { follow: true, signal });
        return text(`${part}\n[more of a file of ${size} bytes; go on with offset ${next}]`);
      }),
  );
  server.registerTool(
    "write_file",
    {
      description:
        "Write a text file in a sandbox. Folders that are missing are made; a file that is there is replaced.",
      inputSchema: { sandbox, path, content: z.string() },
    },
    (o, { signal }) =>
      answer(async () => {
        const { files } = await find(o.sandbox);
        const entry = await files.write(o.path, o.content, { parents: true, signal });
        return text(`${entry.path} has ${entry.size} bytes.`);
      }),
  );
  server.registerTool(
    "list_files",
    {
      description: "List a folder of a sandbox.",
      inputSchema: { sandbox, path: path.default("."), offset, limit },
      annotations: { readOnlyHint: true },
    },
    (o, { signal }) =>
      answer(async () => {
        const { files } = await find(o.sandbox);
        let lines = "";
        // What is listed is bounded, whatever the folder has.
        for await (const { type, name, size } of files.list(o.path, { signal })) {
          lines += `${type === "directory" ? `${name}/` : `${name}  ${size}`}\n`;
          if (lines.length > o.offset + 2 * maxCharacters) break;
        }
        return text(cut(lines, o.offset, o.limit));
      }),
  );
}
