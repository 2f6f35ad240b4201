import { type Dependencies, statesOf } from "@sandgate/kit/base/dependencies";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { Type } from "typebox";
import type { App } from "../pipeline/base/app.ts";
import type { RouteRules } from "../pipeline/base/route-rules.ts";
import type { RouteContext } from "../pipeline/route.ts";
import { component, TextByName } from "../pipeline/validation/common-schemas.ts";

const Alive = component("Health", { status: Type.String() });
const Ready = component("Readiness", { status: Type.String(), dependencies: TextByName });

const tags = ["Health"];
const rules: RouteRules = { rpc: "none", limit: "uncounted", errors: ["VALIDATION_ERROR"] };

/** Probes. `dependencies` reads the state of each dependency of the process. */
export async function healthRoutes(
  app: App,
  { live, dependencies }: RouteContext & { dependencies(): Promise<Dependencies> },
): Promise<void> {
  app.get(
    "/healthz",
    {
      config: { rules },
      schema: {
        tags,
        operationId: "checkHealth",
        summary: "Check that the process is alive",
        description: "It calls nothing else.",
        response: { 200: Alive },
      },
    },
    async () => ({ status: "ok" }),
  );

  app.get(
    "/readyz",
    {
      config: { rules },
      schema: {
        tags,
        operationId: "checkReadiness",
        summary: "Check that the process accepts requests",
        description: "Also shows the state of each dependency, which does not change the status.",
        response: { 200: Ready },
      },
    },
    async () => {
      if (live.draining) throw new DomainError("DRAINING", "The server is shutting down.");
      return { status: "ready", dependencies: await statesOf(dependencies()) };
    },
  );
}
