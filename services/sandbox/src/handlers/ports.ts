import { createClient, type ServiceImpl } from "@connectrpc/connect";
import { PortService as HelperPortService } from "@sandgate/proto/helper/v1/port";
import type { PortService } from "@sandgate/proto/sandbox/v1/ports";
import { boundListeners, connectPort, readStart } from "../operations/port-connections.ts";
import type { SandboxHelpers } from "../operations/sandbox-helpers.ts";

const callMs = 10_000;

/** What answers for servers in sandboxes. */
export function createPortHandlers({ helpers }: { helpers: SandboxHelpers }): ServiceImpl<typeof PortService> {
  return {
    listListening({ sandbox }, context) {
      return helpers.call(context, sandbox, async ({ transport, signal }) => {
        const helper = createClient(HelperPortService, transport);
        const { listeners } = await helper.listListening({}, { signal, timeoutMs: callMs });
        return { listeners: boundListeners(listeners) };
      });
    },

    async *connectPort(requests, context) {
      const { start, data } = await readStart(requests);
      yield* helpers.stream(context, start.sandbox, ({ transport, signal }) =>
        connectPort(createClient(HelperPortService, transport), { port: start.port, data, signal }),
      );
    },
  };
}
