import { runProcess } from "@sandgate/kit/process/process";
import { openFacade, readFacadeSettings } from "./server.ts";

/**
 * How long idle connections stay open during a shutdown. A client learns from its next response that it should connect
 * again, to another replica. Most clients send a request within this time.
 */
const closingIdleMs = 3_000;

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
