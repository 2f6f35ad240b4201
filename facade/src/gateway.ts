import { runProcessWithoutEvents } from "@sandgate/kit/process/process";
import { openGateway } from "./previews/gateway.ts";
import { readFacadeSettings } from "./settings.ts";

await runProcessWithoutEvents({
  name: "gateway",
  callees: ["sandbox", "workspace"],
  // A process of its own listens on all addresses by default.
  readSettings: (env) => readFacadeSettings({ ...env, SANDGATE_HOST: env.SANDGATE_HOST || "0.0.0.0" }),
  async open(parts, settings) {
    const gateway = openGateway(parts, settings);
    return {
      start: async () => void (await gateway.listen()),
      dependencies: async () => ({}),
      stop: () => gateway.close(),
    };
  },
});
