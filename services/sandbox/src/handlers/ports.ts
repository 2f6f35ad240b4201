import type { ServiceImpl } from "@connectrpc/connect";
import { createClient } from "@sandgate/kit/rpc/create-client";
import { PortService as HelperPortService } from "@sandgate/proto/helper/v1/port";
import type { PortService } from "@sandgate/proto/sandbox/v1/ports";
import { boundListeners, connectPort, type Parts, readStart } from "../operations/port-connections.ts";
import type { SandboxHelper, SandboxHelpers } from "../operations/sandbox-helpers.ts";
import { findOpenPreview, type PreviewContext } from "../usecases/previews.ts";

const callMs = 10_000;

/** What answers for servers in sandboxes. */
export function createPortHandlers(o: PreviewContext & { helpers: SandboxHelpers }): ServiceImpl<typeof PortService> {
  const { helpers } = o;
  const clientOf = ({ transport }: SandboxHelper) => createClient(HelperPortService, transport);

  const connect = <Start>(helper: SandboxHelper, port: number, data: Parts<Start>) =>
    connectPort(async (signal) => (await helper.takeChannel?.(signal)) ?? clientOf(helper), {
      port,
      data,
      signal: helper.signal,
    });

  return {
    listListening({ sandbox }, context) {
      return helpers.call(context, sandbox, async (helper) => {
        const { listeners } = await clientOf(helper).listListening({}, { signal: helper.signal, timeoutMs: callMs });
        return { listeners: boundListeners(listeners) };
      });
    },

    async *connectPort(requests, context) {
      const { start, data } = await readStart(requests);
      yield* helpers.stream(context, start.sandbox, (helper) => connect(helper, start.port, data));
    },

    async *connectPreview(requests, context) {
      const { start, data } = await readStart(requests);
      const { preview, sandbox } = await findOpenPreview(o, start.previewId);
      yield* helpers.streamOf(context, sandbox, (helper) => connect(helper, preview.port, data));
    },
  };
}
