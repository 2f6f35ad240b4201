import { FileService } from "@sandgate/proto/sandbox/v1/files";
import { callFor } from "../../pipeline/base/request-context.ts";
import { ofThingInSandbox } from "../../pipeline/errors/in-sandbox.ts";
import { present } from "../../pipeline/messages/contract.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { NoContent, WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { sandboxIdOf } from "../sandboxes/mapping.ts";
import { SandboxParams } from "../sandboxes/schemas.ts";
import { checkChange, preconditionOf } from "./conditions.ts";
import { fromMode, toEntry, toEtag } from "./mapping.ts";
import { checkPaths, checkQueryPath, pathOf } from "./paths.ts";
import {
  ChangeHeaders,
  DeleteQuery,
  DirectoryBody,
  EntriesQuery,
  Entry,
  EntryList,
  EntryQuery,
  ModeBody,
  MoveBody,
  PathQuery,
} from "./schemas.ts";

const { method: rpc } = FileService;
const tags = ["Files"];
/** Of a call that goes through all of a folder; the sandbox service's own limit is shorter. */
const folderMs = 130_000;

/** Files and folders, but for their contents. */
export const fileEntryRoutes: RoutePlugin = async (app, { clients: { files } }) => {
  app.patch(
    "/sandboxes/:sandbox_id/files",
    {
      config: { rules: { rpc: rpc.setMode, audit: "file.write", errors: ofThingInSandbox, check: checkChange } },
      schema: {
        tags,
        summary: "Set the permissions of a file or folder",
        description: "Through a link those of its target.",
        headers: ChangeHeaders,
        params: SandboxParams,
        querystring: PathQuery,
        body: ModeBody,
        response: { 200: Entry },
      },
    },
    async (request, reply) => {
      const { entry } = await files.setMode(
        { ...placeOf(request), ...fromMode(request.body.mode), precondition: preconditionOf(request) },
        callFor(request),
      );
      return reply.headers(toEtag(present(entry))).send(toEntry(present(entry)));
    },
  );

  app.delete(
    "/sandboxes/:sandbox_id/files",
    {
      config: { rules: { rpc: rpc.deleteEntry, audit: "file.delete", errors: ofThingInSandbox, check: checkChange } },
      schema: {
        tags,
        summary: "Delete a file or folder",
        description: "Deletes a symbolic link itself, never its target.",
        headers: ChangeHeaders,
        params: SandboxParams,
        querystring: DeleteQuery,
        response: { 204: NoContent },
      },
    },
    async (request, reply) => {
      const { recursive } = request.query;
      await files.deleteEntry(
        { ...placeOf(request), recursive, precondition: preconditionOf(request) },
        callFor(request, { timeoutMs: folderMs }),
      );
      return reply.code(204).send(null);
    },
  );

  app.get(
    "/sandboxes/:sandbox_id/files/entry",
    {
      config: { rules: { rpc: rpc.getEntry, audit: "file.read", errors: ofThingInSandbox, check: checkQueryPath } },
      schema: {
        tags,
        summary: "Describe a file or folder",
        headers: WorkspaceHeaders,
        params: SandboxParams,
        querystring: EntryQuery,
        response: { 200: Entry },
      },
    },
    async (request, reply) => {
      const { follow } = request.query;
      const { entry } = await files.getEntry({ ...placeOf(request), follow }, callFor(request));
      return reply.headers(toEtag(present(entry))).send(toEntry(present(entry)));
    },
  );

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
        {
          sandbox: sandboxIdOf(request.params.sandbox_id),
          path: pathOf(request.body),
          parents,
          ...fromMode(mode),
        },
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

/** The sandbox and the path that a request names. */
function placeOf({ params, query }: { params: { sandbox_id: string }; query: Record<string, unknown> }) {
  return { sandbox: sandboxIdOf(params.sandbox_id), path: pathOf(query) };
}
