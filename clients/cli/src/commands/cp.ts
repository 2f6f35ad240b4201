import { chmod, lstat, mkdir, readdir, rm, stat } from "node:fs/promises";
import { basename, join, posix, relative, sep } from "node:path";
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
  // When one file fails, those that are on their way end too.
  const failed = new AbortController();
  const either = AbortSignal.any([signal, failed.signal]);
  const copy = { sandbox, recursive: values.recursive ?? false, signal: either, note };
  await (source ? copyOut(copy, source.path, to) : copyIn(copy, from, remote.path)).finally(() => {
    status.clear();
    failed.abort();
  });
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
  const target = isFolder ? localPath(to, posix.dirname(entry.path), entry.path) : to;
  const copyFile = async (remotePath: string, local: string, mode: string): Promise<void> => {
    note(await sandbox.files.download(remotePath, local, { signal }));
    // A device or a pipe keeps its own mode.
    if ((await stat(local)).isFile()) await chmod(local, Number.parseInt(mode, 8) & 0o777);
  };
  if (entry.type !== "directory") {
    return copyFile(path, target, entry.mode);
  }
  if (!recursive) throw new UsageError(`${path} is a folder: use -r`);
  await mkdir(target, { recursive: true });
  const copyEntry = async (each: Entry): Promise<void> => {
    if (each.type !== "file") return say(`skipped ${each.path}, which is no file (${each.type})`);
    const local = localPath(target, entry.path, each.path);
    // A link that is there may lead out of the folder.
    const found = await lstat(local).catch(() => undefined);
    if (found?.isSymbolicLink()) await rm(local);
    await copyFile(each.path, local, each.mode);
  };
  await forEach(async function* () {
    for await (const each of sandbox.files.list(entry.path, { depth: 100, signal })) {
      // A folder comes before what is in it.
      if (each.type === "directory") await mkdir(localPath(target, entry.path, each.path), { recursive: true });
      else yield each;
    }
  }, copyEntry);
}

/**
 * Where something that is below a folder of a sandbox goes below a local one. A sandbox may say anything, so this throws
 * for what would lie outside.
 */
function localPath(target: string, folder: string, path: string): string {
  const names = posix.relative(folder, path).split("/");
  // A drive of Windows, or its separator, is no part of a name.
  if (names.includes("..") || (sep === "\\" && names.some((name) => /[\\:]/.test(name)))) {
    throw new Error(`${path} would lie outside of ${target}`);
  }
  return join(target, ...names);
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
  // As cp does: of `..`, what is in it.
  const name = basename(from) === ".." ? "." : basename(from);
  const target = isFolder ? posix.join(path, name) : path;
  const copyFile = async (file: string, remotePath: string, parents: boolean): Promise<void> => {
    const { mode, size } = await stat(file);
    await sandbox.files.upload(file, remotePath, { mode: mode & 0o777, parents, signal });
    note(size);
  };
  if (!local.isDirectory()) return copyFile(from, target, false);
  if (!recursive) throw new UsageError(`${from} is a folder: use -r`);
  await sandbox.files.makeDir(target, { parents: true, signal });
  await forEach(
    async function* () {
      for (const each of await readdir(from, { recursive: true, withFileTypes: true })) {
        const file = join(each.parentPath, each.name);
        const remotePath = posix.join(target, ...relative(from, file).split(sep));
        if (each.isDirectory()) await sandbox.files.makeDir(remotePath, { parents: true, signal });
        else yield { file, remotePath, isFile: each.isFile() };
      }
    },
    async ({ file, remotePath, isFile }) => {
      if (!isFile) return say(`skipped ${file}, which is no file`);
      await copyFile(file, remotePath, true);
    },
  );
}

/** Does something with each item, with several at a time. Throws the first failure. */
async function forEach<T>(items: () => AsyncGenerator<T>, use: (item: T) => Promise<void>): Promise<void> {
  const running = new Set<Promise<void>>();
  for await (const item of items()) {
    // One that failed stays, so that its failure is thrown below.
    const one = use(item).then(() => void running.delete(one));
    one.catch(() => {});
    running.add(one);
    if (running.size >= atOnce) await Promise.race(running);
  }
  await Promise.all(running);
}
