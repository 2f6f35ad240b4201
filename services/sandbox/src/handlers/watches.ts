import type { ServiceImpl } from "@connectrpc/connect";
import { createClient } from "@sandgate/kit/rpc/create-client";
import { HelperService } from "@sandgate/proto/helper/v1/helper";
import type { FileService } from "@sandgate/proto/sandbox/v1/files";
import { callMs, createFileCall, filesOf, folderMs } from "../operations/file-calls.ts";
import { boundChange, boundFolder, boundUser, boundWatcherId } from "../operations/helper-files.ts";
import type { SandboxHelpers } from "../operations/sandbox-helpers.ts";

type Answered = "watchFiles" | "createWatcher" | "takeWatcherChanges" | "removeWatcher" | "getUser";

/** What answers for changes of files, and for the users that these are of. */
export function createWatchHandlers({
  helpers,
}: {
  helpers: SandboxHelpers;
}): Pick<ServiceImpl<typeof FileService>, Answered> {
  const call = createFileCall(helpers);

  return {
    async *watchFiles(request, context) {
      const { path, recursive, user } = request;
      yield* helpers.stream(context, request.sandbox, async function* (helper) {
        const client = filesOf(helper, request);
        const within = { signal: helper.signal, timeoutMs: 0 };
        for await (const { event } of client.watch({ path, recursive, user }, within)) {
          if (event.case === "change") boundChange(event.value);
          yield { event };
        }
      });
    },

    createWatcher(request, context) {
      const { path, recursive, user } = request;
      return call(
        context,
        request,
        async (client, within) => {
          const { id } = await client.createWatcher({ path, recursive, user }, within);
          return { watcherId: boundWatcherId(id) };
        },
        { timeoutMs: folderMs },
      );
    },

    takeWatcherChanges(request, context) {
      return call(context, request, async (client, within) => {
        const { changes } = await client.takeWatcherChanges({ id: request.watcherId }, within);
        return { changes: changes.map(boundChange) };
      });
    },

    removeWatcher(request, context) {
      return call(context, request, async (client, within) => {
        await client.removeWatcher({ id: request.watcherId }, within);
        return {};
      });
    },

    getUser({ sandbox, user }, context) {
      return helpers.call(context, sandbox, async ({ info, transport, signal }) => {
        const client = createClient(HelperService, transport);
        const found = boundUser(await client.getUser({ user }, { signal, timeoutMs: callMs }));
        return { ...found, folder: boundFolder(info.cwd) };
      });
    },
  };
}
