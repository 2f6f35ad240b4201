import { runProcess } from "@sandgate/kit/process/process";
import { openFacade, readFacadeSettings } from "./server.ts";

await runProcess({
  name: "facade",
  // A process of its own listens on all addresses by default.
  readSettings: (env) => readFacadeSettings({ ...env, SANDGATE_HOST: env.SANDGATE_HOST || "0.0.0.0" }),
  async open(parts, settings) {
    const facade = await openFacade({ ...parts, sharedLimits: true }, settings);
    return {
      start: async () => void (await facade.listen()),
      dependencies: async () => ({}),
      stop: () => facade.close(),
    };
  },
});
