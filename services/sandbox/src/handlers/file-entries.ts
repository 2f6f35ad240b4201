import type { ServiceImpl } from "@connectrpc/connect";
import type { FileService } from "@sandgate/proto/sandbox/v1/files";
import { decodeFileCursor, encodeFileCursor } from "../domain/file-cursors.ts";
import { createFileCall, type Files, fileUse, folderMs, type Within } from "../operations/file-calls.ts";
import { boundEntries, boundEntry } from "../operations/helper-files.ts";
import type { SandboxHelpers } from "../operations/sandbox-helpers.ts";

/** Entries of a page. */
const defaultLimit = 100;

type Answered = "getEntry" | "listEntries" | "makeDirectory" | "moveEntry" | "deleteEntry" | "setMode";

/** What answers for files and folders, but for the contents of files. */
export function createFileEntryHandlers({
  helpers,
}: {
  helpers: SandboxHelpers;
}): Pick<ServiceImpl<typeof FileService>, Answered> {
  const call = createFileCall(helpers);

  return {
    getEntry(request, context) {
      const { path, follow, user } = request;
      return call(context, request, async (client, within) => {
        const { entry } = await client.stat({ path, follow, user }, within);
        return { entry: boundEntry(entry) };
      });
    },

    listEntries(request, context) {
      const { path, depth, cursor, user } = request;
      const limit = request.limit || defaultLimit;
      const asked = { path, depth, limit, cursor: decodeFileCursor(path, cursor), user };
      const list = async (client: Files, within: Within) => {
        const { entries, nextCursor } = await client.list(asked, within);
        return { entries: boundEntries(entries, limit), nextCursor: encodeFileCursor(path, nextCursor) };
      };
      return call(context, request, list, { timeoutMs: folderMs });
    },

    makeDirectory(request, context) {
      const { path, mode, parents, user } = request;
      const make = async (client: Files, within: Within) => {
        const asked = { path, parents, user, ...(mode !== undefined && { mode }) };
        const { entry, created } = await client.makeDirectory(asked, within);
        return { entry: boundEntry(entry), created };
      };
      return call(context, request, make, { use: fileUse("file.write", path) });
    },

    moveEntry(request, context) {
      const { from, to, overwrite, user } = request;
      const move = async (client: Files, within: Within) => {
        const { entry } = await client.move({ from, to, overwrite, user }, within);
        return { entry: boundEntry(entry) };
      };
      return call(context, request, move, { use: fileUse("file.move", from, to) });
    },

    deleteEntry(request, context) {
      const { path, recursive, precondition, user } = request;
      const remove = async (client: Files, within: Within) => {
        await client.remove({ path, recursive, user, ...(precondition && { precondition }) }, within);
        return {};
      };
      return call(context, request, remove, { use: fileUse("file.delete", path), timeoutMs: folderMs });
    },

    setMode(request, context) {
      const { path, mode, precondition, user } = request;
      const change = async (client: Files, within: Within) => {
        const { entry } = await client.setMode({ path, mode, user, ...(precondition && { precondition }) }, within);
        return { entry: boundEntry(entry) };
      };
      return call(context, request, change, { use: fileUse("file.write", path) });
    },
  };
}
