import { FileService } from "@sandgate/proto/sandbox/v1/files";
import { folderMs } from "../../pipeline/base/clients.ts";
import { callFor } from "../../pipeline/base/request-context.ts";
import { ofThingInSandbox } from "../../pipeline/errors/in-sandbox.ts";
import { present } from "../../pipeline/messages/contract.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { sandboxIdOf } from "../sandboxes/mapping.ts";
import { SandboxParams } from "../sandboxes/schemas.ts";
import { fromMode, toEntry } from "./mapping.ts";
import { checkPaths, checkQueryPath, pathOf, placeOf } from "./paths.ts";
import { DirectoryBody, EntriesQuery, Entry, EntryList, MoveBody } from "./schemas.ts";

const { method: rpc } = FileService;
const tags = ["Files"];

/** What is in folders: lists it, adds a folder, and moves it from one to another. */
export const fileFolderRoutes: RoutePlugin = async (app, { clients: { files } }) => {
  app.get(
    "/sandboxes/:sandbox_id/files/entries",
    {
      config: { rules: { rpc: rpc.listEntries, audit: "file.list", errors: ofThingInSandbox, check: checkQueryPath } },
      schema: {
        tags,
        summary: "List a folder",
        description:
          "In the order of the names' bytes within each folder, a folder before what is in it. Links are listed, not followed.",
        headers: WorkspaceHeaders,
        params: SandboxParams,
        querystring: EntriesQuery,
        response: { 200: EntryList },
      },
    },
    async (request) => {
      const { depth, limit, cursor = "" } = request.query;
      const { entries, nextCursor } = await files.listEntries(
        { ...placeOf(request), depth, limit, cursor },
        callFor(request, { timeoutMs: folderMs }),
      );
      return { entries: entries.map(toEntry), next_cursor: nextCursor || null };
    },
  );

  app.post(
    "/sandboxes/:sandbox_id/files/directories",
    {
      config: {
        rules: {
          rpc: rpc.makeDirectory,
          audit: "file.write",
          errors: ofThingInSandbox,
          check: ({ body }) => checkPaths("body", body, "path"),
        },
      },
      schema: {
        tags,
        summary: "Make a folder",
        headers: WorkspaceHeaders,
        params: SandboxParams,
        body: DirectoryBody,
        response: { 201: Entry },
      },
    },
    async (request, reply) => {
      const { mode, parents = false } = request.body;
      const { entry } = await files.makeDirectory(
        { sandbox: sandboxIdOf(request.params.sandbox_id), path: pathOf(request.body), parents, ...fromMode(mode) },
        callFor(request),
      );
      return reply.code(201).send(toEntry(present(entry)));
    },
  );

  app.post(
    "/sandboxes/:sandbox_id/files/move",
    {
      config: {
        rules: {
          rpc: rpc.moveEntry,
          audit: "file.move",
          errors: ofThingInSandbox,
          check: ({ body }) => checkPaths("body", body, "from", "to"),
        },
      },
      schema: {
        tags,
        summary: "Move or rename a file or folder",
        headers: WorkspaceHeaders,
        params: SandboxParams,
        body: MoveBody,
        response: { 200: Entry },
      },
    },
    async (request) => {
      const { overwrite = false } = request.body;
      const { entry } = await files.moveEntry(
        {
          sandbox: sandboxIdOf(request.params.sandbox_id),
          from: pathOf(request.body, "from"),
          to: pathOf(request.body, "to"),
          overwrite,
        },
        callFor(request),
      );
      return toEntry(present(entry));
    },
  );
};
