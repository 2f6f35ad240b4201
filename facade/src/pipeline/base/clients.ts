import type { Client, Transport } from "@connectrpc/connect";
import type { ServiceName } from "@sandgate/kit/base/service-names";
import { createClient } from "@sandgate/kit/rpc/create-client";
import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { FileService } from "@sandgate/proto/sandbox/v1/files";
import { PortService } from "@sandgate/proto/sandbox/v1/ports";
import { PreviewService } from "@sandgate/proto/sandbox/v1/previews";
import { ProcessService } from "@sandgate/proto/sandbox/v1/processes";
import { SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import { AuditService } from "@sandgate/proto/telemetry/v1/audit";
import { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";

/** The services behind the facade. Their errors arrive as DomainErrors. */
export interface Clients {
  identity: Client<typeof IdentityService>;
  workspace: Client<typeof WorkspaceService>;
  imageRegistry: Client<typeof ImageRegistryService>;
  sandbox: Client<typeof SandboxService>;
  processes: Client<typeof ProcessService>;
  files: Client<typeof FileService>;
  previews: Client<typeof PreviewService>;
  ports: Client<typeof PortService>;
  telemetry: Client<typeof TelemetryService>;
  audit: Client<typeof AuditService>;
}

/** For a call of `files` that goes through all of a folder; the sandbox service's own limit is shorter. */
export const folderMs = 130_000;

export function createClients(transport: (service: ServiceName) => Transport): Clients {
  return {
    identity: createClient(IdentityService, transport("identity")),
    workspace: createClient(WorkspaceService, transport("workspace")),
    imageRegistry: createClient(ImageRegistryService, transport("image-registry")),
    sandbox: createClient(SandboxService, transport("sandbox")),
    processes: createClient(ProcessService, transport("sandbox")),
    files: createClient(FileService, transport("sandbox")),
    previews: createClient(PreviewService, transport("sandbox")),
    ports: createClient(PortService, transport("sandbox")),
    telemetry: createClient(TelemetryService, transport("telemetry")),
    audit: createClient(AuditService, transport("telemetry")),
  };
}
