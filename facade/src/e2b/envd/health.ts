import { FileService } from "@sandgate/proto/sandbox/v1/files";
import type { App } from "../../pipeline/base/app.ts";
import { callFor } from "../../pipeline/base/request-context.ts";
import type { RouteRules } from "../../pipeline/base/route-rules.ts";
import type { RouteContext } from "../../pipeline/route.ts";
import { sayFileError } from "../errors.ts";

/** Says whether a sandbox can be used: something in it has to answer. */
export function addHealthRoute(
  app: App,
  { clients: { files } }: RouteContext,
  signIn: NonNullable<RouteRules["signIn"]>,
): void {
  app.get(
    "/health",
    {
      config: { rules: { rpc: FileService.method.getEntry, audit: "file.read", signIn, sayError: sayFileError } },
      schema: { hide: true },
    },
    async (request, reply) => {
      await files.getEntry({ sandbox: request.sandboxId, path: Buffer.from("/") }, callFor(request));
      return reply.code(204).send();
    },
  );
}
