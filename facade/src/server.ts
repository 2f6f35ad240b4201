import type { IncomingMessage } from "node:http";
import type { Transport } from "@connectrpc/connect";
import type { TypeBoxTypeProvider } from "@fastify/type-provider-typebox";
import { newId } from "@sandgate/kit/base/ids";
import type { Logger } from "@sandgate/kit/base/logging";
import { histogram, type Metrics } from "@sandgate/kit/base/metrics";
import type { ServiceName } from "@sandgate/kit/base/service-names";
import { mebibyte } from "@sandgate/kit/base/sizes";
import { hourMs, minuteMs } from "@sandgate/kit/base/time";
import { trimEndSlashes } from "@sandgate/kit/base/web-addresses";
import type { EventBus } from "@sandgate/kit/events/bus";
import { asFacade } from "@sandgate/kit/rpc/context";
import Fastify from "fastify";
import { dashboardRoutes } from "./dashboard/routes.ts";
import { e2bOpenPath, e2bPathOf } from "./e2b/hosts.ts";
import { e2bRoutes } from "./e2b/routes.ts";
import { healthRoutes } from "./operations/health.ts";
import { admitRequests, confirmAccess } from "./pipeline/admission/admission.ts";
import { createAuthenticator } from "./pipeline/admission/authentication.ts";
import { originsOf } from "./pipeline/admission/cors.ts";
import { createTickets } from "./pipeline/admission/tickets.ts";
import { createWorkspaceScope } from "./pipeline/admission/workspace-scope.ts";
import { createAuditLog } from "./pipeline/audit/audit-log.ts";
import { createAuditRecorder, startAuditRecorder } from "./pipeline/audit/recorder.ts";
import { auditRequests } from "./pipeline/audit/request-audit.ts";
import { onAnswered, type Report } from "./pipeline/base/answered.ts";
import type { App } from "./pipeline/base/app.ts";
import { type Clients, createClients } from "./pipeline/base/clients.ts";
import { requestIdOf } from "./pipeline/base/request-context.ts";
import { securityHeadersFor } from "./pipeline/base/security-headers.ts";
import { createErrorResponder } from "./pipeline/errors/responses.ts";
import { createLocalRateLimiter } from "./pipeline/limits/rate-limiter.local.ts";
import { createSharedRateLimiter } from "./pipeline/limits/rate-limiter.shared.ts";
import type { RateLimiter } from "./pipeline/limits/rate-limiter.ts";
import { limitReceiving } from "./pipeline/limits/receive-limit.ts";
import { createRequestLimits } from "./pipeline/limits/request-limits.ts";
import { limitSending } from "./pipeline/limits/send-limit.ts";
import { createLocalSlots } from "./pipeline/limits/slots.local.ts";
import { createSharedSlots } from "./pipeline/limits/slots.shared.ts";
import type { Slots } from "./pipeline/limits/slots.ts";
import { limitUnfinishedBodies } from "./pipeline/limits/unfinished-bodies.ts";
import { createGracefulShutdown } from "./pipeline/live/graceful-shutdown.ts";
import { createLiveRequests } from "./pipeline/live/live-requests.ts";
import { createUpgrades } from "./pipeline/live/web-sockets.ts";
import type { RouteContext, RoutePlugin } from "./pipeline/route.ts";
import { parseJsonBodies } from "./pipeline/validation/body-parser.ts";
import { previewAddressOf } from "./previews/credentials.ts";
import { createPreviewHosts } from "./previews/hosts.ts";
import { openHttpServer, receiveTimeoutMs } from "./previews/http-server.ts";
import { openPreviewServer } from "./previews/open.ts";
import { documentRoutes } from "./reference/openapi.ts";
import { referenceRoutes } from "./reference/routes.ts";
import { resourceRoutes } from "./routes.ts";
import type { FacadeSettings } from "./settings.ts";

export { facadeSettings, readFacadeSettings } from "./settings.ts";

/** How long a client may take nothing of an answer. */
const sendTimeoutMs = 60_000;
const maxBodyBytes = mebibyte;
/** What clients have begun to send. */
const maxUnfinishedBytes = { ofAddress: 16 * mebibyte, inAll: 64 * mebibyte };

export interface FacadeEnvironment {
  /** The transport to each service; calls through it are signed as the facade. */
  transport(service: ServiceName): Transport;
  bus: EventBus;
  logger: Logger;
  metrics: Metrics;
  /** Limits count the requests, waits and streams of all facades, not only of this one. Default: false. */
  sharedLimits?: boolean;
  /** How long clients' connections without a request stay open once it closes, in milliseconds. Default: 0. */
  closingIdleMs?: number;
  /** The state of each dependency of the process ("ok", or what is wrong), for /readyz. */
  dependencies?(): Promise<Record<string, string>>;
  /** Where the built dashboard is. Default: `dashboard/dist`. */
  dashboardFolder?: string | undefined;
  /** Routes beside the API's own, in tests. */
  moreRoutes?: readonly RoutePlugin[];
}

export interface Facade {
  /** For requests without a network, in tests. */
  app: App;
  /** Returns the address that it listens on. */
  listen(): Promise<string>;
  /** Ends waits, streams and WebSockets, and is not ready any more. Other requests are still answered. */
  drain(): Promise<void>;
  /** Accepts no more requests, and lets open ones finish, for 30 s at most. */
  close(): Promise<void>;
}

/** Opens the public API. */
export async function openFacade(environment: FacadeEnvironment, settings: FacadeSettings): Promise<Facade> {
  const { logger, bus } = environment;
  const { publicUrl } = settings;

  let port = settings.port;
  const hosts = createPreviewHosts({ domain: settings.previewDomain, port: () => port });
  const previewUrl = (label: string, link?: string) => previewAddressOf(hosts.originOf(label), link);
  const clients = createClients(environment.transport);
  const authenticator = createAuthenticator({ clients, bus });
  const tickets = createTickets({ clients, authenticator });
  const scope = createWorkspaceScope({ clients, bus });
  const slots = environment.sharedLimits ? shareSlots(clients, logger) : createLocalSlots();
  const live = createLiveRequests({
    slots,
    checkAccess: (request) => confirmAccess({ authenticator, scope }, request),
  });
  const openLimiter = (windowMs: number) =>
    environment.sharedLimits ? shareLimits(clients, windowMs, logger) : createLocalRateLimiter({ windowMs });
  const limits = createRequestLimits({
    ofMinutes: openLimiter(minuteMs),
    ofHours: openLimiter(hourMs),
    perMinute: settings.rateLimit,
    signInsPerMinute: settings.signInRateLimit,
    changesPerHour: settings.changeRateLimit,
  });
  const headers = securityHeadersFor(publicUrl);
  const errors = createErrorResponder({ docsUrl: `${publicUrl}/docs/errors`, headers, logger });

  const previews = openPreviewServer({
    hosts,
    clients,
    scope,
    errors,
    ofMinutes: openLimiter(minuteMs),
    metrics: environment.metrics,
    settings,
  });
  const removePrefix = createPrefixRemover(publicUrl);
  const pathOf = (raw: IncomingMessage) => {
    raw.url = pathOfTarget(raw.url ?? "/");
    return e2bPathOf(raw, settings) ?? removePrefix(raw.url);
  };
  const upgrades = createUpgrades(pathOf);

  const app: App = Fastify({
    // Requests are logged by their route only, since a path may contain a token.
    logger: false,
    bodyLimit: maxBodyBytes,
    genReqId: requestIdOf,
    trustProxy: settings.trustedProxies.length > 0 ? [...settings.trustedProxies] : false,
    // Requests on open connections are still answered while it closes.
    return503OnClosing: false,
    routerOptions: { ignoreTrailingSlash: true, maxParamLength: 8 * 1024 },
    rewriteUrl: pathOf,
    serverFactory: (handler) => openHttpServer({ handler, previews, upgrades }),
    clientErrorHandler: errors.respondToUnreadable,
    // A malformed path: no hook has run yet, and there is no route.
    frameworkErrors: (error, request, reply) => {
      limits.countAddress(request, reply).then(
        () => errors.respond(error, request, reply),
        (refusal: unknown) => errors.respond(refusal, request, reply),
      );
    },
  }).withTypeProvider<TypeBoxTypeProvider>();
  // All fields are checked in one step (admission.ts); Fastify would stop at the first invalid part of a request.
  app.setValidatorCompiler(() => () => true);
  app.setErrorHandler((error, request, reply) => errors.respond(error, request, reply));
  parseJsonBodies(app);
  const document = await documentRoutes(app, publicUrl);
  const origins = originsOf(settings.redirectUris);
  limitSending(app, { ms: sendTimeoutMs });
  const recorder = createAuditRecorder({ ...createAuditLog(clients), metrics: environment.metrics });
  onAnswered(app, [createRequestLog(environment), auditRequests(app, recorder)]);
  await admitRequests(app, {
    authenticator,
    tickets,
    scope,
    limits,
    origins,
    openPath: e2bOpenPath(settings),
    headers,
  });
  limitUnfinishedBodies(app, maxUnfinishedBytes);
  const auditing = startAuditRecorder(recorder, logger);
  const shutDown = createGracefulShutdown(app.server, () => app.close(), { idleMs: environment.closingIdleMs ?? 0 });

  const context: RouteContext = {
    clients,
    scope,
    limits,
    live,
    logger,
    publicUrl,
    previewUrl,
    authenticator,
    tickets,
    origins,
  };
  await upgrades.register(app);
  for (const routes of [...resourceRoutes, ...(environment.moreRoutes ?? [])]) await app.register(routes, context);
  for (const routes of e2bRoutes(settings)) await app.register(routes, context);
  const dependencies = async () => (await environment.dependencies?.()) ?? {};
  await app.register(healthRoutes, { ...context, dependencies });
  await app.register(referenceRoutes, { ...context, document });
  await app.register(dashboardRoutes, {
    ...context,
    enabled: settings.dashboard,
    folder: environment.dashboardFolder,
  });
  await app.ready();
  // Node knows the address of a client that has left only if it was asked for before.
  app.server.on("connection", ({ remoteAddress }) => remoteAddress);
  limitReceiving(app.server, { ms: receiveTimeoutMs, onLate: errors.respondToUnreadable });

  return {
    app,
    async listen() {
      const address = await app.listen({ host: settings.host, port: settings.port });
      port = Number(new URL(address).port);
      logger.info({ address, public_url: publicUrl }, "the public API is listening");
      return address;
    },
    async drain() {
      live.drain();
      previews.drain();
    },
    async close() {
      live.drain();
      previews.drain();
      await shutDown();
      await auditing.stop();
      await slots.close();
      authenticator.close();
      scope.close();
    },
  };
}

/** Slots that are counted in identity, which all facades call. */
function shareSlots({ identity }: Clients, logger: Logger): Slots {
  const holder = newId();
  return createSharedSlots({
    async lease(requests) {
      const call = asFacade({ requestId: newId(), timeoutMs: 2_000 });
      const { held, leaseMs } = await identity.holdSlots({ holder, requests: [...requests] }, call);
      return { leased: held, leaseMs };
    },
    logger,
  });
}

/** A limiter that counts in identity, which all facades call. */
function shareLimits({ identity }: Clients, windowMs: number, logger: Logger): RateLimiter {
  const windowSeconds = windowMs / 1000;
  return createSharedRateLimiter({
    consume: (key, limit, wanted) =>
      identity.drawRequests({ key, limit, wanted, windowSeconds }, asFacade({ requestId: newId(), timeoutMs: 2_000 })),
    fallback: createLocalRateLimiter({ windowMs }),
    logger,
  });
}

/** Logs and measures requests by their routes' patterns. */
function createRequestLog({ logger, metrics }: FacadeEnvironment): Report {
  const seconds = histogram(metrics, {
    name: "sandgate_http_request_seconds",
    help: "Time to answer a request of the public API. `fault` says who caused an error: none, client or platform. `live` is true for what lasts as long as its client or its sandbox wants: waits, streams, commands, files and WebSockets. The status 499 says that the client left before there was an answer.",
    labelNames: ["method", "route", "status", "fault", "live"],
    buckets: [0.005, 0.025, 0.1, 0.5, 2.5, 10, 60],
  });
  return (request, reply) => {
    const { method, pattern: route, fault, isLive } = request;
    const status = reply.statusCode;
    seconds.observe({ method, route, status, fault, live: String(isLive) }, reply.elapsedTime / 1000);
    if (logger.isLevelEnabled("info")) {
      const caller = request.inWorkspace ?? request.signedIn?.user;
      logger.info(
        {
          request_id: request.id,
          method,
          route,
          status,
          ms: Math.round(reply.elapsedTime * 10) / 10,
          user_id: caller?.id,
          workspace_id: caller?.workspaceId,
        },
        "request",
      );
    }
  };
}

/** Removes the path prefix of the public address from a URL, for proxies that don't. */
function createPrefixRemover(publicUrl: string): (url: string) => string {
  const prefix = trimEndSlashes(new URL(publicUrl).pathname);
  return (url) => (prefix !== "" && url.startsWith(`${prefix}/`) ? url.slice(prefix.length) : url);
}

/** The path and query of a request's target, which may be a whole address (RFC 9112, 3.2.2). */
function pathOfTarget(target: string): string {
  const [origin] = /^https?:\/\/[^/?]*/i.exec(target) ?? [];
  if (origin === undefined) return target;
  const path = target.slice(origin.length);
  return path.startsWith("/") ? path : `/${path}`;
}
