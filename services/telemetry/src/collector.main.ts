import { readSettings } from "@sandgate/kit/base/settings";
import { type Program, runProcessWithoutEvents } from "@sandgate/kit/process/process";
import { asService } from "@sandgate/kit/rpc/context";
import { createClient } from "@sandgate/kit/rpc/create-client";
import { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import { startNodeCollector } from "./collect/node-collector.ts";
import { openNodePods } from "./kubernetes/node-pods.ts";
import { collectorSettings } from "./settings.ts";

/** Collects what the sandboxes' pods of one node log and use; a process on each node of a cluster. */
await runProcessWithoutEvents({
  name: "collector",
  callees: ["telemetry"],
  readSettings: (env) => readSettings(collectorSettings, env),
  async open({ transport, logger, metrics }, settings): Promise<Program> {
    const client = createClient(TelemetryService, transport("telemetry"));
    async function* watchDrains(signal: AbortSignal): AsyncGenerator<string> {
      const left = new AbortController();
      const options = asService({ signal: AbortSignal.any([signal, left.signal]), timeoutMs: 0 });
      try {
        for await (const { sandboxId } of client.watchDrains({}, options)) yield sandboxId;
      } finally {
        left.abort();
      }
    }
    const containers = openNodePods({ ...settings, logger, metrics });
    const collector = startNodeCollector({ containers, client, watchDrains, logger, metrics });
    return {
      async start() {},
      dependencies: async () => ({ pods: collector.state() }),
      stop: () => collector.stop(),
    };
  },
});
