import { runProcess } from "@sandgate/kit/process/process";
import { closingIdleMs } from "./pipeline/live/graceful-shutdown.ts";
import { openFacade, readFacadeSettings } from "./server.ts";

await runProcess({
  name: "facade",
  readSettings: readFacadeSettings,
  async open(parts, settings) {
    const facade = await openFacade({ ...parts, sharedLimits: true, closingIdleMs }, settings);
    return {
      start: async () => void (await facade.listen()),
      dependencies: async () => ({}),
      stop: () => facade.close(),
    };
  },
});
