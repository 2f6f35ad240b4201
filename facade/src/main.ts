import { runProcess } from "@sandgate/kit/process/process";
import { facadeSettings, openFacade } from "./server.ts";

await runProcess({
  name: "facade",
  settings: facadeSettings,
  async open(parts) {
    // One of many machines listens on all its addresses unless it is told otherwise.
    const env = { ...parts.env, SANDGATE_HOST: parts.env.SANDGATE_HOST || "0.0.0.0" };
    const facade = await openFacade({ ...parts, env, sharedLimits: true });
    return {
      start: () => facade.listen().then(() => {}),
      dependencies: async () => ({}),
      stop: () => facade.close(),
    };
  },
});
