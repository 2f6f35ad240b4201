import { runService } from "@sandgate/kit/process/process";
import { identitySettings, openIdentityService } from "./service.ts";

await runService({
  service: "identity",
  settings: identitySettings,
  async open(environment) {
    const service = await openIdentityService(environment);
    const { firstStart } = service;
    if (firstStart) {
      const { username, password } = firstStart;
      environment.logger.warn(`the operator ${username} was made with the password ${password}, shown only this once`);
    }
    return service;
  },
});
