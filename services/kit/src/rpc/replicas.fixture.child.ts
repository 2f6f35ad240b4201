import { setTimeout as delay } from "node:timers/promises";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { createLogger } from "../base/logging.ts";
import { createMetrics } from "../base/metrics.ts";
import { startServiceHost, stopOnSignal } from "../process/host.ts";
import { openTokenVerifier } from "./internal-keys.ts";

/**
 * A replica that tests can stop and kill: `node … <address> <port> <jwks file>`. Says which it is in the header of each
 * answer.
 */
const [address = "", port = "", file = ""] = process.argv.slice(2);
const logger = createLogger({ service: "workspace", level: "warn" });
const host = await startServiceHost({
  service: "workspace",
  verifier: await openTokenVerifier({ audience: "workspace", file, logger }),
  logger,
  metrics: createMetrics(),
  host: address,
  port: Number(port),
  routes(router) {
    router.service(WorkspaceService, {
      async getMembership(_request, { responseHeader }) {
        responseHeader.set("replica", address);
        await delay(5);
        return { workspaceExists: true };
      },
      async createWorkspace({ name }) {
        await delay(5);
        return { workspace: { name } };
      },
    });
  },
});
stopOnSignal(() => host.close());
process.stdout.write("up\n");
