import { runProcessWithoutEvents } from "@sandgate/kit/process/process";
import { closingIdleMs } from "./pipeline/live/graceful-shutdown.ts";
import { openGateway } from "./previews/gateway.ts";
import { readFacadeSettings } from "./settings.ts";

await runProcessWithoutEvents({
  name: "gateway",
  callees: ["sandbox", "workspace"],
  readSettings: readFacadeSettings,
  async open(parts, settings) {
    const gateway = openGateway({ ...parts, closingIdleMs }, settings);
    return {
      start: async () => void (await gateway.listen()),
      dependencies: async () => ({}),
      stop: () => gateway.close(),
    };
  },
});
