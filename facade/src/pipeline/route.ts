import type { Logger } from "@sandgate/kit/base/logging";
import type { Authenticator } from "./admission/authentication.ts";
import type { Tickets } from "./admission/tickets.ts";
import type { WorkspaceScope } from "./admission/workspace-scope.ts";
import type { App } from "./base/app.ts";
import type { Clients } from "./base/clients.ts";
import type { RequestLimits } from "./limits/request-limits.ts";
import type { LiveRequests } from "./live/live-requests.ts";

/** What the routes use. */
export interface RouteContext {
  clients: Clients;
  scope: WorkspaceScope;
  authenticator: Authenticator;
  tickets: Tickets;
  /** From which browsers may call, beside the API's own origin. */
  origins: ReadonlySet<string>;
  limits: RequestLimits;
  live: LiveRequests;
  logger: Logger;
  /** How clients reach the API, without a slash at its end. */
  publicUrl: string;
  /** How they reach the preview with this label, perhaps with a link that opens it. */
  previewUrl: (label: string, link?: string) => string;
}

/** Routes, to be registered in the app with what they use. */
export type RoutePlugin = (app: App, context: RouteContext) => Promise<void>;
