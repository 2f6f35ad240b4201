import { runProcess } from "@sandgate/kit/process/process";
import { facadeSettings, openFacade, readFacadeSettings } from "./server.ts";

await runProcess({
  name: "facade",
  settings: facadeSettings,
  async open(parts) {
    // One of many machines listens on all its addresses unless it is told otherwise.
    const settings = readFacadeSettings({ ...parts.env, SANDGATE_HOST: parts.env.SANDGATE_HOST || "0.0.0.0" });
    const facade = await openFacade({ ...parts, sharedLimits: true }, settings);
    return {
      start: () => facade.listen().then(() => {}),
      dependencies: async () => ({}),
      stop: () => facade.close(),
    };
  },
});
