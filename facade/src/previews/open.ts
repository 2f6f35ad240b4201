import type { Metrics } from "@sandgate/kit/base/metrics";
import type { WorkspaceScope } from "../pipeline/admission/workspace-scope.ts";
import type { Clients } from "../pipeline/base/clients.ts";
import type { ErrorResponder } from "../pipeline/errors/responses.ts";
import { createLocalRateLimiter } from "../pipeline/limits/rate-limiter.local.ts";
import type { RateLimiter } from "../pipeline/limits/rate-limiter.ts";
import { createPreviewAccess } from "./access.ts";
import { createAddressReader } from "./client-address.ts";
import type { PreviewHosts } from "./hosts.ts";
import { createLivePreviews } from "./live-previews.ts";
import { openPreviewMetrics } from "./metrics.ts";
import { createPreviewServer, type PreviewServer } from "./server.ts";

/** What answers on the hosts of previews, in the facade or in a process of its own. */
export function openPreviewServer(o: {
  hosts: PreviewHosts;
  clients: Pick<Clients, "ports" | "previews">;
  scope: Pick<WorkspaceScope, "isMember">;
  errors: Pick<ErrorResponder, "respondRaw">;
  ofMinutes: RateLimiter;
  metrics: Metrics;
  settings: { rateLimit: number; trustedProxies: readonly string[] };
}): PreviewServer {
  return createPreviewServer({
    ...o,
    access: createPreviewAccess(o),
    live: createLivePreviews(o),
    limiters: { ofSeconds: createLocalRateLimiter({ windowMs: 1_000 }), ofMinutes: o.ofMinutes },
    refusedPerMinute: o.settings.rateLimit,
    addressOf: createAddressReader(o.settings.trustedProxies),
    metrics: openPreviewMetrics(o.metrics),
  });
}
