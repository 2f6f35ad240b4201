import { posix } from "node:path";
import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, type HandlerContext, type ServiceImpl } from "@connectrpc/connect";
import { DomainError, hasReason } from "@sandgate/kit/base/domain-error";
import { ChangeType, type Entry, EntryType, type WatchResponse_Change } from "@sandgate/proto/helper/v1/file";
import { FileService, type WatchFilesResponse } from "@sandgate/proto/sandbox/v1/files";
import { type Clients, folderMs } from "../../pipeline/base/clients.ts";
import type { RouteRules } from "../../pipeline/base/route-rules.ts";
import { present } from "../../pipeline/messages/contract.ts";
import { readBytes } from "../../resources/files/paths.ts";
import {
  EventType,
  type Filesystem,
  type FilesystemEventSchema,
  type WatchDirRequest,
  type WatchDirResponseSchema,
} from "../gen/filesystem_pb.ts";
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
  "Filesystem.CreateWatcher": { rpc: rpc.createWatcher, audit: "file.read" },
  "Filesystem.GetWatcherEvents": { rpc: rpc.takeWatcherChanges, audit: "file.read" },
  "Filesystem.RemoveWatcher": { rpc: rpc.removeWatcher, audit: "file.read" },
  "Filesystem.Remove": { rpc: rpc.deleteEntry, audit: "file.delete" },
};

const pageSize = 1_000;
/** Of one answer, which is made as a whole. */
const maxListed = 20_000;
const maxDepth = 100;
/** With the longest path that there may be, in base64url. */
const maxWatcherIdLength = 6_000;
/** Why a link can't be followed, besides that there is nothing at its end. */
const errnosOfLinks: readonly string[] = ["EACCES", "ELOOP", "ENAMETOOLONG", "ENOTDIR"];

/** Files and folders as E2B's envd has them. */
export function createFileHandlers(o: {
  clients: Pick<Clients, "files">;
  folders: Folders;
}): ServiceImpl<typeof Filesystem> {
  const { files } = o.clients;

  /** Where a request leads, and as whom. */
  async function placeOf(given: string, context: HandlerContext): Promise<FilePlace> {
    const { sandbox, request } = envdCallOf(context);
    const { user, path } = await o.folders.find(sandbox, userOf(request), given, optionsFor(context));
    return { sandbox, user, path: Buffer.from(path) };
  }

  async function describe(entry: Entry, place: FilePlace, context: HandlerContext) {
    if (entry.type !== EntryType.SYMLINK) return toEntryInfo(entry);
    const leadsTo = await files
      .getEntry({ ...place, path: entry.path, follow: true }, optionsFor(context))
      .catch((error: unknown) => {
        if (!leadsNowhere(error)) throw error;
      });
    return toEntryInfo(entry, leadsTo?.entry);
  }

  async function stat(place: FilePlace, context: HandlerContext): Promise<Entry> {
    return present((await files.getEntry(place, optionsFor(context))).entry);
  }

  /** Throws what watches of something else than a folder are refused with. */
  async function placeToWatch(request: WatchRequest, context: HandlerContext): Promise<FilePlace> {
    if (request.includeEntry || request.allowNetworkMounts) {
      throw new ConnectError("entries in events, and network mounts, are not supported", Code.InvalidArgument);
    }
    const place = await placeOf(request.path, context);
    await files.listEntries({ ...place, limit: 1 }, optionsFor(context));
    return place;
  }

  async function makeFolder(place: FilePlace, context: HandlerContext) {
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
      const place = await placeOf(path, context);
      return { entry: await describe(await stat(place, context), place, context) };
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
      for (const entry of entries) described.push(await describe(entry, place, context));
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
      await stat(from, context);
      const parent = { ...to, path: Buffer.from(posix.dirname(to.path.toString())) };
      await makeFolder(parent, context);
      const { entry } = await files.moveEntry(
        { sandbox: from.sandbox, user: from.user, from: from.path, to: to.path, overwrite: true },
        optionsFor(context),
      );
      return { entry: await describe(present(entry), to, context) };
    },

    async *watchDir(request, context) {
      const call = envdCallOf(context);
      const place = await placeToWatch(request, context);
      const { recursive } = request;
      const changes = files.watchFiles({ ...place, recursive }, optionsFor(context, { timeoutMs: 0 }));
      const ping = (): WatchEvent => ({ event: { case: "keepalive", value: {} } });
      yield* keepAlive(toWatchEvents(changes, place.path.toString()), pingMsOf(call), ping);
    },

    async createWatcher(request, context) {
      const place = await placeToWatch(request, context);
      const { watcherId } = await files.createWatcher({ ...place, recursive: request.recursive }, optionsFor(context));
      // Names are told as seen from the folder, which no replica remembers.
      return { watcherId: `${watcherId}.${place.path.toString("base64url")}` };
    },

    async getWatcherEvents({ watcherId: given }, context) {
      const { sandbox } = envdCallOf(context);
      const { watcherId, folder } = readWatcherId(given);
      const { changes } = await files.takeWatcherChanges({ sandbox, watcherId }, optionsFor(context));
      return { events: changes.flatMap((change) => toFileEvents(change, folder)) };
    },

    async removeWatcher({ watcherId: given }, context) {
      const { sandbox } = envdCallOf(context);
      const { watcherId } = readWatcherId(given);
      await files.removeWatcher({ sandbox, watcherId }, optionsFor(context));
      return {};
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
type FileEvent = MessageInitShape<typeof FilesystemEventSchema>;
type WatchRequest = Pick<WatchDirRequest, "path" | "recursive" | "includeEntry" | "allowNetworkMounts">;
/** A file or folder, as operations take it. */
type FilePlace = { sandbox: string; user: string; path: Buffer<ArrayBuffer> };

const eventTypes: Partial<Record<ChangeType, EventType>> = {
  [ChangeType.CREATE]: EventType.CREATE,
  [ChangeType.WRITE]: EventType.WRITE,
  [ChangeType.DELETE]: EventType.REMOVE,
  [ChangeType.ATTRIB]: EventType.CHMOD,
};

/** A change as envd tells it: a move is the old name's RENAME and the new one's CREATE. */
function toFileEvents({ type, path, to }: WatchResponse_Change, folder: string): FileEvent[] {
  const toEvent = (type: EventType, changed: Uint8Array): FileEvent => ({
    name: posix.relative(folder, readBytes(changed).text),
    type,
  });
  if (type === ChangeType.OVERFLOW) throw new ConnectError("changes were lost", Code.DataLoss);
  if (type === ChangeType.MOVE) {
    return [toEvent(EventType.RENAME, path), ...(to.length > 0 ? [toEvent(EventType.CREATE, to)] : [])];
  }
  const known = eventTypes[type];
  return known === undefined ? [] : [toEvent(known, path)];
}

async function* toWatchEvents(changes: AsyncIterable<WatchFilesResponse>, folder: string): AsyncGenerator<WatchEvent> {
  for await (const { event } of changes) {
    if (event.case === "ready") yield { event: { case: "start", value: {} } };
    if (event.case !== "change") continue;
    for (const value of toFileEvents(event.value, folder)) yield { event: { case: "filesystem", value } };
  }
}

function readWatcherId(given: string): { watcherId: string; folder: string } {
  const [watcherId = "", folder = ""] = given.length > maxWatcherIdLength ? [] : given.split(".");
  if (!/^\w{1,64}$/.test(watcherId)) throw new ConnectError("there is no such watcher", Code.NotFound);
  return { watcherId, folder: Buffer.from(folder, "base64url").toString() };
}

function leadsNowhere(error: unknown): boolean {
  if (hasReason(error, "NOT_FOUND")) return true;
  return hasReason(error, "CONFLICT") && error.errno !== undefined && errnosOfLinks.includes(error.errno);
}

function orNone(error: unknown): undefined {
  if (!hasReason(error, "NOT_FOUND")) throw error;
}

function notAFolder(cause: DomainError): DomainError {
  return new DomainError("CONFLICT", "The path is no folder.", { errno: "ENOTDIR", cause });
}
