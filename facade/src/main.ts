import { runProcess } from "@sandgate/kit/process/process";
import { openFacade, readFacadeSettings } from "./server.ts";

/**
 * Clients that keep a connection learn with their next answer that they should open another, which is another facade's. Most send one
 * within this time.
 */
const closingIdleMs = 3_000;

await runProcess({
  name: "facade",
  // A process of its own listens on all addresses by default.
  readSettings: (env) => readFacadeSettings({ ...env, SANDGATE_HOST: env.SANDGATE_HOST || "0.0.0.0" }),
  async open(parts, settings) {
    const facade = await openFacade({ ...parts, sharedLimits: true, closingIdleMs }, settings);
    return {
      start: async () => void (await facade.listen()),
      dependencies: async () => ({}),
      stop: () => facade.close(),
    };
  },
});
