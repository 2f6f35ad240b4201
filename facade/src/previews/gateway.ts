import { once } from "node:events";
import type { AddressInfo } from "node:net";
import type { Transport } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import type { Metrics } from "@sandgate/kit/base/metrics";
import type { ServiceName } from "@sandgate/kit/base/service-names";
import { minuteMs } from "@sandgate/kit/base/time";
import { createClient } from "@sandgate/kit/rpc/create-client";
import { PortService } from "@sandgate/proto/sandbox/v1/ports";
import { PreviewService } from "@sandgate/proto/sandbox/v1/previews";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { createWorkspaceScope } from "../pipeline/admission/workspace-scope.ts";
import { requestIdOf } from "../pipeline/base/request-context.ts";
import { securityHeadersFor } from "../pipeline/base/security-headers.ts";
import { createErrorResponder } from "../pipeline/errors/responses.ts";
import { createLocalRateLimiter } from "../pipeline/limits/rate-limiter.local.ts";
import { limitReceiving } from "../pipeline/limits/receive-limit.ts";
import { createGracefulShutdown } from "../pipeline/live/graceful-shutdown.ts";
import type { FacadeSettings } from "../settings.ts";
import { createPreviewHosts } from "./hosts.ts";
import { openHttpServer, receiveTimeoutMs } from "./http-server.ts";
import { openPreviewServer } from "./open.ts";

export interface Gateway {
  /** Returns the address that it listens on. */
  listen(): Promise<string>;
  /** Accepts no more requests, and lets open ones finish, for 30 s at most; WebSockets end at once. */
  close(): Promise<void>;
}

export interface GatewayEnvironment {
  transport(service: ServiceName): Transport;
  logger: Logger;
  metrics: Metrics;
  /** How long clients' connections without a request stay open once it closes, in milliseconds. Default: 0. */
  closingIdleMs?: number;
}

/** Serves previews apart from the API: on any other host there is nothing. */
export function openGateway(environment: GatewayEnvironment, settings: FacadeSettings): Gateway {
  const { logger, metrics, transport } = environment;
  const clients = {
    ports: createClient(PortService, transport("sandbox")),
    previews: createClient(PreviewService, transport("sandbox")),
    workspace: createClient(WorkspaceService, transport("workspace")),
  };
  // It hears no signals: what it has cached of a membership is a second old at most.
  const scope = createWorkspaceScope({ clients, bus: { watch: () => () => {} } });
  const docsUrl = `${settings.publicUrl}/docs/errors`;
  const errors = createErrorResponder({ docsUrl, headers: securityHeadersFor(settings.publicUrl), logger });
  let port = settings.port;
  const previews = openPreviewServer({
    hosts: createPreviewHosts({ domain: settings.previewDomain, port: () => port }),
    clients,
    scope,
    errors,
    ofMinutes: createLocalRateLimiter({ windowMs: minuteMs }),
    metrics,
    settings,
  });
  const server = openHttpServer({
    previews,
    handler(request, response) {
      errors.respondRaw(new DomainError("NOT_FOUND", "There is no such preview."), requestIdOf(request), response);
    },
    upgrades: { isUpgrade: () => false, upgrade: (_request, socket) => void socket.destroy() },
  });
  // Those of an HTTP server are sockets of a network.
  server.on("clientError", (error, socket) =>
    errors.respondToUnreadable(error, socket as Parameters<typeof errors.respondToUnreadable>[1]),
  );
  const close = async () => {
    const closed = once(server, "close");
    server.close();
    await closed;
  };
  const shutDown = createGracefulShutdown(server, close, { idleMs: environment.closingIdleMs ?? 0 });
  limitReceiving(server, { ms: receiveTimeoutMs, onLate: errors.respondToUnreadable });

  return {
    async listen() {
      server.listen(settings.port, settings.host);
      await once(server, "listening");
      // It listens on a port of a network.
      const { address, port: found } = server.address() as AddressInfo;
      port = found;
      const url = `http://${address.includes(":") ? `[${address}]` : address}:${port}`;
      logger.info({ address: url, preview_domain: settings.previewDomain }, "previews are served");
      return url;
    },
    async close() {
      previews.drain();
      await shutDown();
      scope.close();
    },
  };
}
