import { createReadStream } from "node:fs";
import { chmod, mkdir, readdir, stat } from "node:fs/promises";
import { basename, join, posix } from "node:path";
import type { Entry, Sandbox } from "@sandgate/client";
import { named, UsageError } from "../args.ts";
import { findSandbox } from "../context.ts";
import { bytes, createStatus, say, write } from "../output.ts";
import { setUp } from "../setup.ts";

/** How many files are copied at a time. */
const atOnce = 4;

interface Copy {
  sandbox: Sandbox;
  recursive: boolean;
  signal: AbortSignal;
  note(count: number): void;
}

export async function run(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals, values } = setUp(args, signal, { recursive: { type: "boolean", short: "r" } });
  const [from = "", to = ""] = named(positionals, "FROM", "TO");
  const [source, target] = [toRemote(from), toRemote(to)];
  const remote = source ?? target;
  if (!remote || (source && target)) throw new UsageError("one of both must be SANDBOX:PATH");
  const sandbox = await findSandbox(context, remote.sandbox);
  const status = createStatus();
  let copied = 0;
  const note = (count: number) => {
    copied += count;
    status.show(`${bytes(copied)} copied`);
  };
  const copy = { sandbox, recursive: values.recursive ?? false, signal, note };
  await (source ? copyOut(copy, source.path, to) : copyIn(copy, from, remote.path)).finally(status.clear);
  return 0;
}

/** A single letter before the colon is a drive of Windows, and a path begins with `.` or `/`. */
function toRemote(text: string): { sandbox: string; path: string } | undefined {
  const at = text.indexOf(":");
  if (at < 2 || /^[./]/.test(text)) return undefined;
  return { sandbox: text.slice(0, at), path: text.slice(at + 1) || "." };
}

async function copyOut(copy: Copy, path: string, to: string): Promise<void> {
  const { sandbox, recursive, signal, note } = copy;
  if (to === "-") {
    const content = await sandbox.files.read(path, { format: "stream", signal });
    for await (const chunk of content) await write(chunk);
    return;
  }
  const entry = await sandbox.files.stat(path, { follow: true, signal });
  const isFolder = await stat(to).then(
    (found) => found.isDirectory(),
    () => false,
  );
  // As cp does: into a folder that is there, else under the new name.
  const target = isFolder ? join(to, posix.basename(entry.path)) : to;
  if (entry.type !== "directory") {
    note(await sandbox.files.download(path, target, { signal }));
    await chmod(target, Number.parseInt(entry.mode, 8) & 0o777);
    return;
  }
  if (!recursive) throw new UsageError(`${path} is a folder: use -r`);
  await mkdir(target, { recursive: true });
  const copyEntry = async (each: Entry): Promise<void> => {
    const local = join(target, ...posix.relative(entry.path, each.path).split("/"));
    if (each.type === "file") {
      note(await sandbox.files.download(each.path, local, { signal }));
      await chmod(local, Number.parseInt(each.mode, 8) & 0o777);
    } else say(`skipped ${each.path}, which is no file (${each.type})`);
  };
  await forEach(async function* () {
    for await (const each of sandbox.files.list(entry.path, { depth: 100, signal })) {
      // A folder comes before what is in it.
      if (each.type === "directory")
        await mkdir(join(target, ...posix.relative(entry.path, each.path).split("/")), { recursive: true });
      else yield each;
    }
  }, copyEntry);
}

async function copyIn(copy: Copy, from: string, path: string): Promise<void> {
  const { sandbox, recursive, signal, note } = copy;
  if (from === "-") {
    await sandbox.files.write(path, process.stdin as AsyncIterable<Uint8Array>, { signal });
    return;
  }
  const local = await stat(from);
  const isFolder = await sandbox.files.stat(path, { follow: true, signal }).then(
    ({ type }) => type === "directory",
    () => false,
  );
  const target = isFolder ? posix.join(path, basename(from)) : path;
  const copyFile = async (file: string, remotePath: string, mode: number, size: number): Promise<void> => {
    await sandbox.files.write(remotePath, createReadStream(file), { mode: mode & 0o777, signal });
    note(size);
  };
  if (!local.isDirectory()) return copyFile(from, target, local.mode, local.size);
  if (!recursive) throw new UsageError(`${from} is a folder: use -r`);
  await sandbox.files.makeDir(target, { parents: true, signal });
  await forEach(
    async function* () {
      for (const each of await readdir(from, { recursive: true, withFileTypes: true })) {
        const file = join(each.parentPath, each.name);
        const remotePath = posix.join(target, ...file.slice(from.length).split(/[\\/]/));
        if (each.isDirectory()) await sandbox.files.makeDir(remotePath, { parents: true, signal });
        else yield { file, remotePath, isFile: each.isFile() };
      }
    },
    async ({ file, remotePath, isFile }) => {
      if (!isFile) return say(`skipped ${file}, which is no file`);
      const { mode, size } = await stat(file);
      await sandbox.files.upload(file, remotePath, { mode: mode & 0o777, parents: true, signal });
      note(size);
    },
  );
}

/** Does something with each item, with several at a time. */
async function forEach<T>(items: () => AsyncGenerator<T>, use: (item: T) => Promise<void>): Promise<void> {
  const running = new Set<Promise<void>>();
  for await (const item of items()) {
    const one = use(item).finally(() => running.delete(one));
    // It is awaited below, where its failure ends all.
    one.catch(() => {});
    running.add(one);
    if (running.size >= atOnce) await Promise.race(running);
  }
  await Promise.all(running);
}
