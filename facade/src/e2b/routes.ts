import type { App } from "../pipeline/base/app.ts";
import type { RouteContext, RoutePlugin } from "../pipeline/route.ts";
import { controlPlane } from "./control-plane.ts";
import { envd } from "./envd/routes.ts";
import { envdPrefix, portPrefix } from "./hosts.ts";
import { createNames } from "./names.ts";
import { createPlaces } from "./places.ts";
import { portRoutes } from "./ports.ts";
import type { E2bSettings } from "./settings.ts";

/** The interface for programs written for E2B. There is none without a domain. */
export function e2bRoutes({ e2bDomain: domain, e2bPublic }: E2bSettings): RoutePlugin[] {
  if (domain === undefined) return [];
  return [
    async (app: App, context: RouteContext) => {
      const shared = {
        ...context,
        domain,
        isPublic: e2bPublic === "on",
        names: createNames(context.clients),
        places: createPlaces(context),
      };
      await app.register(envd, { ...shared, prefix: envdPrefix });
      await app.register(portRoutes, { ...shared, prefix: portPrefix });
      await app.register(controlPlane, { ...shared, prefix: "/e2b" });
    },
  ];
}
