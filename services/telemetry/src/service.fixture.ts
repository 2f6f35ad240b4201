import type { Client } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { createMetrics, type Metrics } from "@sandgate/kit/base/metrics";
import type { EventBus } from "@sandgate/kit/events/bus";
import { stageEvent } from "@sandgate/kit/events/outbox";
import type { RunningService } from "@sandgate/kit/process/service";
import { createInMemoryNetwork } from "@sandgate/kit/rpc/clients";
import { createClient } from "@sandgate/kit/rpc/create-client";
import type { DatabaseTarget } from "@sandgate/kit/storage/open-store";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import { AuditService } from "@sandgate/proto/telemetry/v1/audit";
import { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { WorkspaceDeletedSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import { telemetryService } from "./service.ts";

/** A started service between fakes: sandbox knows the installation, and for workspace every workspace exists. */
export interface TestService {
  service: RunningService;
  metrics: Metrics;
  /** Clients of the service, by caller. */
  as: Record<"facade" | "telemetry" | "sandbox" | "collector", Client<typeof TelemetryService>>;
  /** The facade's client of the audit log. */
  audit: Client<typeof AuditService>;
  /** Says that the workspace was deleted, as workspace does. */
  deleteWorkspace(workspaceId: string): Promise<void>;
  close(): Promise<void>;
}

export async function openTestService(o: {
  runtime: string;
  installationId: string;
  database: DatabaseTarget;
  bus: EventBus;
  keysFile: string;
  logger: Logger;
  /** What sandbox says whose a sandbox is. Nobody's unless given. */
  workspaceOf?(sandboxId: string): string | undefined;
  /** Environment variables besides the runtime. */
  settings?: Record<string, string>;
}): Promise<TestService> {
  const { bus, logger } = o;
  const metrics = createMetrics();
  const network = await createInMemoryNetwork();
  network.serve("sandbox", {
    routes: (router) =>
      router.service(SandboxService, {
        getInstallation: async () => ({ installationId: o.installationId }),
        async getSandboxWorkspace({ sandboxId }) {
          const workspaceId = o.workspaceOf?.(sandboxId);
          if (workspaceId === undefined) throw new DomainError("SANDBOX_NOT_FOUND", "There is no such sandbox.");
          return { workspaceId };
        },
      }),
    logger,
    metrics,
  });
  network.serve("workspace", {
    routes: (router) =>
      router.service(WorkspaceService, {
        batchGetWorkspaces: async ({ workspaceIds }) => ({ workspaces: workspaceIds.map((id) => ({ id })) }),
      }),
    logger,
    metrics,
  });
  const service = await telemetryService.open(
    {
      database: o.database,
      bus,
      transport: (name) => network.transport("telemetry", name),
      keyring: await openKeyring({ file: o.keysFile, create: true }),
      logger,
      metrics,
    },
    telemetryService.readSettings({ SANDGATE_RUNTIME: o.runtime, ...o.settings }),
  );
  network.serve("telemetry", { routes: service.routes, logger, metrics });
  await service.start();
  const clientOf = (caller: string) => createClient(TelemetryService, network.transport(caller, "telemetry"));
  return {
    service,
    metrics,
    as: {
      facade: clientOf("facade"),
      telemetry: clientOf("telemetry"),
      sandbox: clientOf("sandbox"),
      collector: clientOf("collector"),
    },
    audit: createClient(AuditService, network.transport("facade", "telemetry")),
    async deleteWorkspace(workspaceId) {
      const deleted = stageEvent({
        subject: "sandgate.workspace.workspace.deleted.v1",
        entityId: workspaceId,
        entityVersion: 2,
        workspaceId,
        schema: WorkspaceDeletedSchema,
        payload: { workspaceId },
      });
      await bus.publish([deleted]);
    },
    async close() {
      await service.drain();
      await service.close();
    },
  };
}
