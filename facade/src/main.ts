import { runProcess } from "@sandgate/kit/process/process";
import { facadeSettings, openFacade, readFacadeSettings } from "./server.ts";

await runProcess({
  name: "facade",
  settings: facadeSettings,
  async open(parts) {
    // A process of its own listens on all addresses by default.
    const settings = readFacadeSettings({ ...parts.env, SANDGATE_HOST: parts.env.SANDGATE_HOST || "0.0.0.0" });
    const facade = await openFacade({ ...parts, sharedLimits: true }, settings);
    return {
      start: async () => void (await facade.listen()),
      dependencies: async () => ({}),
      stop: () => facade.close(),
    };
  },
});
