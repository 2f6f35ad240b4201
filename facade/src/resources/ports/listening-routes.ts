import { PortService } from "@sandgate/proto/sandbox/v1/ports";
import { callFor } from "../../pipeline/base/request-context.ts";
import { inSandbox } from "../../pipeline/errors/in-sandbox.ts";
import type { RoutePlugin } from "../../pipeline/route.ts";
import { WorkspaceHeaders } from "../../pipeline/validation/common-schemas.ts";
import { sandboxIdOf } from "../sandboxes/mapping.ts";
import { SandboxParams } from "../sandboxes/schemas.ts";
import { ListeningPortList } from "./schemas.ts";

export const listeningRoutes: RoutePlugin = async (app, { clients: { ports } }) => {
  app.get(
    "/sandboxes/:sandbox_id/listening",
    {
      config: { rules: { rpc: PortService.method.listListening, audit: "port.list", errors: inSandbox } },
      schema: {
        tags: ["Ports"],
        summary: "List listening ports",
        description: "The TCP ports on which something listens in the sandbox, on its loopback addresses too.",
        headers: WorkspaceHeaders,
        params: SandboxParams,
        response: { 200: ListeningPortList },
      },
    },
    async (request) => {
      const sandbox = sandboxIdOf(request.params.sandbox_id);
      const { listeners } = await ports.listListening({ sandbox }, callFor(request));
      return {
        ports: listeners.map(({ port, address, processId }) => ({ port, address, process_id: processId || null })),
      };
    },
  );
};
