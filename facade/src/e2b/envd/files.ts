import { posix } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, type HandlerContext, type ServiceImpl } from "@connectrpc/connect";
import { DomainError, hasReason } from "@sandgate/kit/base/domain-error";
import { ChangeType, type Entry, EntryType } from "@sandgate/proto/helper/v1/file";
import { FileService, type WatchFilesResponse } from "@sandgate/proto/sandbox/v1/files";
import type { Clients } from "../../pipeline/base/clients.ts";
import type { RouteRules } from "../../pipeline/base/route-rules.ts";
import { present } from "../../pipeline/messages/contract.ts";
import { readBytes } from "../../resources/files/paths.ts";
import { EventType, type Filesystem, type WatchDirResponseSchema } from "../gen/filesystem_pb.ts";
import { userOf } from "./access.ts";
import { envdCallOf, optionsFor, pingMsOf } from "./calls.ts";
import { toEntryInfo } from "./entries.ts";
import type { Folders } from "./folders.ts";
import { keepAlive } from "./keep-alive.ts";

const { method: rpc } = FileService;

/** What each call does. */
export const fileRules: Readonly<Record<string, RouteRules>> = {
  "Filesystem.Stat": { rpc: rpc.getEntry, audit: "file.read" },
  "Filesystem.ListDir": { rpc: rpc.listEntries, audit: "file.list" },
  "Filesystem.MakeDir": { rpc: rpc.makeDirectory, audit: "file.write" },
  "Filesystem.Move": { rpc: rpc.moveEntry, audit: "file.move" },
  "Filesystem.WatchDir": { rpc: rpc.watchFiles, audit: "file.read" },
  "Filesystem.Remove": { rpc: rpc.deleteEntry, audit: "file.delete" },
};

const pageSize = 1_000;
/** Of one answer, which is made as a whole. */
const maxListed = 20_000;
const maxDepth = 100;
/** Of a call that goes through all of a folder; the sandbox service's own limit is shorter. */
const folderMs = 130_000;

/** Files and folders as E2B's envd has them. */
export function createFileHandlers(o: {
  clients: Pick<Clients, "files">;
  folders: Folders;
}): Partial<ServiceImpl<typeof Filesystem>> {
  const { files } = o.clients;

  /** The sandbox, and the path that a request names, absolute. */
  async function placeOf(path: string, context: HandlerContext) {
    const { sandbox, request } = envdCallOf(context);
    const absolute = await o.folders.resolve(sandbox, userOf(request), path, optionsFor(context));
    return { sandbox, path: Buffer.from(posix.normalize(absolute)) };
  }

  async function describe(entry: Entry, context: HandlerContext) {
    if (entry.type !== EntryType.SYMLINK) return toEntryInfo(entry);
    const { sandbox } = envdCallOf(context);
    const leadsTo = await files
      .getEntry({ sandbox, path: entry.path, follow: true }, optionsFor(context))
      .catch(orNone);
    return toEntryInfo(entry, leadsTo?.entry);
  }

  async function stat(place: { sandbox: string; path: Uint8Array }, follow: boolean, context: HandlerContext) {
    return present((await files.getEntry({ ...place, follow }, optionsFor(context))).entry);
  }

  async function makeFolder(place: { sandbox: string; path: Uint8Array }, context: HandlerContext) {
    try {
      return await files.makeDirectory({ ...place, parents: true }, optionsFor(context));
    } catch (error) {
      // Something else than a folder is in its way.
      if (hasReason(error, "CONFLICT") && error.errno === "EEXIST") throw notAFolder(error);
      throw error;
    }
  }

  return {
    async stat({ path }, context) {
      return { entry: await describe(await stat(await placeOf(path, context), false, context), context) };
    },

    async listDir({ path, depth }, context) {
      const place = await placeOf(path, context);
      const entries: Entry[] = [];
      for (let cursor = ""; ; ) {
        const page = await files.listEntries(
          { ...place, depth: Math.min(depth, maxDepth), limit: pageSize, cursor },
          optionsFor(context, { timeoutMs: folderMs }),
        );
        entries.push(...page.entries);
        if (entries.length > maxListed) {
          throw new ConnectError(`more than ${maxListed} entries: list with less depth`, Code.OutOfRange);
        }
        cursor = page.nextCursor;
        if (cursor === "") break;
      }
      const described = [];
      for (const entry of entries) described.push(await describe(entry, context));
      return { entries: described };
    },

    async makeDir({ path }, context) {
      const { entry, created } = await makeFolder(await placeOf(path, context), context);
      if (!created) throw new ConnectError("the folder is there already", Code.AlreadyExists);
      return { entry: toEntryInfo(present(entry)) };
    },

    async move({ source, destination }, context) {
      const from = await placeOf(source, context);
      const to = await placeOf(destination, context);
      await stat(from, false, context);
      const parent = { ...to, path: Buffer.from(posix.dirname(to.path.toString())) };
      await makeFolder(parent, context);
      const { entry } = await files.moveEntry(
        { sandbox: from.sandbox, from: from.path, to: to.path, overwrite: true },
        optionsFor(context),
      );
      return { entry: await describe(present(entry), context) };
    },

    async *watchDir({ path, recursive, includeEntry, allowNetworkMounts }, context) {
      if (includeEntry || allowNetworkMounts) {
        throw new ConnectError("entries in events, and network mounts, are not supported", Code.InvalidArgument);
      }
      const call = envdCallOf(context);
      const place = await placeOf(path, context);
      // Of something else than a folder.
      await files.listEntries({ ...place, limit: 1 }, optionsFor(context));
      const changes = files.watchFiles({ ...place, recursive }, optionsFor(context, { timeoutMs: 0 }));
      const ping = (): WatchEvent => ({ event: { case: "keepalive", value: {} } });
      yield* keepAlive(toEvents(changes, place.path.toString()), pingMsOf(call), ping);
    },

    async remove({ path }, context) {
      const place = await placeOf(path, context);
      await files
        .deleteEntry({ ...place, recursive: true }, optionsFor(context, { timeoutMs: folderMs }))
        .catch(orNone);
      return {};
    },
  };
}

type WatchEvent = MessageInitShape<typeof WatchDirResponseSchema>;

const eventTypes: Partial<Record<ChangeType, EventType>> = {
  [ChangeType.CREATE]: EventType.CREATE,
  [ChangeType.WRITE]: EventType.WRITE,
  [ChangeType.DELETE]: EventType.REMOVE,
  [ChangeType.ATTRIB]: EventType.CHMOD,
};

/** Changes as envd tells them: a move is the old name's RENAME and the new one's CREATE. */
async function* toEvents(changes: AsyncIterable<WatchFilesResponse>, folder: string): AsyncGenerator<WatchEvent> {
  const nameOf = (path: Uint8Array) => posix.relative(folder, readBytes(path).text);
  const toEvent = (type: EventType, path: Uint8Array): WatchEvent => ({
    event: { case: "filesystem", value: { name: nameOf(path), type } },
  });
  for await (const { event } of changes) {
    if (event.case === "ready") yield { event: { case: "start", value: {} } };
    if (event.case !== "change") continue;
    const { type, path, to } = event.value;
    if (type === ChangeType.OVERFLOW) throw new ConnectError("changes were lost", Code.DataLoss);
    if (type === ChangeType.MOVE) {
      yield toEvent(EventType.RENAME, path);
      if (to.length > 0) yield toEvent(EventType.CREATE, to);
    } else {
      const known = eventTypes[type];
      if (known !== undefined) yield toEvent(known, path);
    }
  }
}

function orNone(error: unknown): undefined {
  if (!hasReason(error, "NOT_FOUND")) throw error;
}

function notAFolder(cause: DomainError): DomainError {
  return new DomainError("CONFLICT", "The path is no folder.", { errno: "ENOTDIR", cause });
}
