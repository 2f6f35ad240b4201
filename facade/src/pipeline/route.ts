import type { TypeBoxTypeProvider } from "@fastify/type-provider-typebox";
import type { Logger } from "@sandgate/kit/base/logging";
import type {
  FastifyBaseLogger,
  FastifyInstance,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault,
} from "fastify";
import type { Authenticator } from "./authentication.ts";
import type { Clients } from "./clients.ts";
import type { LongLivedRequests } from "./long-lived-requests.ts";
import type { RateLimits } from "./rate-limits.ts";
import type { WorkspaceScope } from "./workspace-scope.ts";

/** The Fastify app; the types of its routes come from their schemas. */
export type App = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  TypeBoxTypeProvider
>;

/** What the routes use. */
export interface RouteContext {
  clients: Clients;
  authenticator: Authenticator;
  scope: WorkspaceScope;
  limits: RateLimits;
  longLivedRequests: LongLivedRequests;
  logger: Logger;
  /** How clients reach the API, without a slash at its end. */
  publicUrl: () => string;
}
