import { runService } from "@sandgate/kit/process/process";
import { identityService } from "./service.ts";

await runService({
  ...identityService,
  async open(environment, settings) {
    const service = await identityService.open(environment, settings);
    const { firstStart } = service;
    if (firstStart) {
      const { username, password } = firstStart;
      environment.logger.warn(
        `the operator ${username} was created with the password ${password}, which is shown only this once`,
      );
    }
    return service;
  },
});
