import { FileService } from "@sandgate/proto/sandbox/v1/files";
import { folderMs } from "../../pipeline/base/clients.ts";
import { callFor } from "../../pipeline/base/request-context.ts";
import { ofThingInSandbox } from "../../pipeline/errors/in-sandbox.ts";
import { present } from "../../pipeline/messages/contract.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { NoContent, WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { SandboxParams } from "../sandboxes/schemas.ts";
import { checkChange, preconditionOf } from "./conditions.ts";
import { fromMode, toEntry, toEtag } from "./mapping.ts";
import { checkQueryPath, placeOf } from "./paths.ts";
import { ChangeHeaders, DeleteQuery, Entry, EntryQuery, ModeBody, PathQuery } from "./schemas.ts";

const { method: rpc } = FileService;
const tags = ["Files"];

/** A file or folder, but for what is in it. */
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
};
