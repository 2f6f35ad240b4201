import { once } from "node:events";
import { request as sendRequest } from "node:http";
import type { Socket } from "node:net";
import { join } from "node:path";
import type { DescMethod } from "@bufbuild/protobuf";
import type { ConnectRouter, ServiceImpl, Transport } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { createInMemoryNetwork } from "@sandgate/kit/rpc/clients";
import { type Permission, Role } from "@sandgate/proto/common/v1/access";
import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { FileService } from "@sandgate/proto/sandbox/v1/files";
import { PortService } from "@sandgate/proto/sandbox/v1/ports";
import { ProcessService } from "@sandgate/proto/sandbox/v1/processes";
import { SandboxService, SandboxState } from "@sandgate/proto/sandbox/v1/sandbox";
import { type AuditEntry, AuditService } from "@sandgate/proto/telemetry/v1/audit";
import { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { exportJWK, generateKeyPair, SignJWT } from "jose";
import type { RoutePlugin } from "./pipeline/route.ts";
import { openFacade, readFacadeSettings } from "./server.ts";

/** What tests put in place of single methods of the services. */
export interface Handlers {
  identity?: Partial<ServiceImpl<typeof IdentityService>>;
  workspace?: Partial<ServiceImpl<typeof WorkspaceService>>;
  imageRegistry?: Partial<ServiceImpl<typeof ImageRegistryService>>;
  sandbox?: Partial<ServiceImpl<typeof SandboxService>>;
  processes?: Partial<ServiceImpl<typeof ProcessService>>;
  files?: Partial<ServiceImpl<typeof FileService>>;
  ports?: Partial<ServiceImpl<typeof PortService>>;
  telemetry?: Partial<ServiceImpl<typeof TelemetryService>>;
  audit?: Partial<ServiceImpl<typeof AuditService>>;
}

export const at = { seconds: 1_780_000_000n, nanos: 123_456_000 };
export const userId = "01900000-0000-7000-8000-000000000001";
export const workspaceId = "01900000-0000-7000-8000-00000000000a";
export const foreignWorkspaceId = "01900000-0000-7000-8000-00000000000b";
export const apiToken = "sgt_good";
export const boundApiToken = "sgt_bound";

/**
 * The facade in front of small services: identity knows one user, who signs in with any password, and the tokens above;
 * workspace knows two workspaces, the first of which has the user as a member with `role`.
 */
export async function openTestPlatform(
  o: {
    env?: NodeJS.ProcessEnv;
    handlers?: Handlers;
    sharedLimits?: boolean;
    moreRoutes?: readonly RoutePlugin[];
    dashboardFolder?: string;
  } = {},
) {
  const defaults = { SANDGATE_PORT: "0", SANDGATE_HOST: "127.0.0.1", SANDGATE_PUBLIC_URL: "https://api.test/v" };
  const settings = readFacadeSettings({ ...defaults, ...o.env });
  const { path: folder, remove: removeFolder } = await createTempFolder();
  const logLines: string[] = [];
  const logger = createLogger({ service: "test" }, { write: (line: string) => void logLines.push(line) });
  const metrics = createMetrics();
  const bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics });
  const network = await createInMemoryNetwork();
  const { privateKey, publicKey } = await generateKeyPair("EdDSA");
  const jwks = JSON.stringify({ keys: [{ ...(await exportJWK(publicKey)), kid: "k1", alg: "EdDSA" }] });

  const state = {
    role: Role.OWNER as Role,
    workspaceExists: true,
    endedSessions: [] as string[],
    revokedTokens: new Set<string>(),
    /** The role of API tokens. */
    tokenRole: Role.UNSPECIFIED as Role,
    /** The permissions of API tokens. */
    tokenPermissions: [] as Permission[],
    /** The RPCs that the facade has called. */
    called: [] as DescMethod[],
    /** What the facade has added to the audit log. */
    audited: [] as AuditEntry[],
  };

  async function signAccessToken(
    claims: {
      sid?: string;
      sub?: string;
      iss?: string;
      aud?: string;
      typ?: string;
      expiresInSeconds?: number;
      op?: boolean;
      opNeeds?: string;
    } = {},
  ): Promise<string> {
    const now = Math.floor(Date.now() / 1000);
    return new SignJWT({
      sid: claims.sid ?? "s1",
      op: claims.op ?? false,
      ...(claims.opNeeds !== undefined && { op_needs: claims.opNeeds }),
    })
      .setProtectedHeader({ alg: "EdDSA", kid: "k1", typ: claims.typ ?? "at+jwt" })
      .setIssuer(claims.iss ?? "https://issuer.test")
      .setAudience(claims.aud ?? "sandgate")
      .setSubject(claims.sub ?? userId)
      .setIssuedAt(now)
      .setExpirationTime(now + (claims.expiresInSeconds ?? 300))
      .sign(privateKey);
  }

  const identity: Partial<ServiceImpl<typeof IdentityService>> = {
    getSigningKeys: () => ({
      jwks,
      endedSessionIds: state.endedSessions,
      issuer: "https://issuer.test",
      audience: "sandgate",
    }),
    verifyApiToken: ({ token }) => {
      if (![apiToken, boundApiToken].includes(token) || state.revokedTokens.has(token)) {
        throw new DomainError("INVALID_TOKEN", "The API token is not valid.");
      }
      const { tokenRole: role, tokenPermissions: permissions } = state;
      return { tokenId: `id-${token}`, userId, role, permissions, ...(token === boundApiToken && { workspaceId }) };
    },
    batchGetUsers: ({ usernames }) => ({
      users: usernames.filter((name) => name === "ada@example.test").map((username) => ({ id: userId, username })),
    }),
    ...o.handlers?.identity,
  };
  const workspace: Partial<ServiceImpl<typeof WorkspaceService>> = {
    getMembership: ({ workspaceId: asked }) => ({
      workspaceExists: state.workspaceExists && [workspaceId, foreignWorkspaceId].includes(asked),
      role: asked === workspaceId && state.workspaceExists ? state.role : Role.UNSPECIFIED,
    }),
    getWorkspace: () => ({
      workspace: { id: workspaceId, name: "one", role: state.role, createdAt: at, updatedAt: at },
    }),
    ...o.handlers?.workspace,
  };
  const serve = (routes: (router: ConnectRouter) => void) => ({ routes, logger, metrics });
  network.serve(
    "identity",
    serve((router) => router.service(IdentityService, identity)),
  );
  network.serve(
    "workspace",
    serve((router) => router.service(WorkspaceService, workspace)),
  );
  network.serve(
    "image-registry",
    serve((router) => router.service(ImageRegistryService, o.handlers?.imageRegistry ?? {})),
  );
  network.serve(
    "sandbox",
    serve((router) => {
      router.service(SandboxService, o.handlers?.sandbox ?? {});
      router.service(ProcessService, o.handlers?.processes ?? {});
      router.service(FileService, o.handlers?.files ?? {});
      router.service(PortService, o.handlers?.ports ?? {});
    }),
  );
  network.serve(
    "telemetry",
    serve((router) => {
      router.service(TelemetryService, o.handlers?.telemetry ?? {});
      router.service(AuditService, {
        recordAuditEntries: ({ entries }) => {
          state.audited.push(...entries);
          return {};
        },
        ...o.handlers?.audit,
      });
    }),
  );

  const closeBus = async () => {
    await bus.close();
    await removeFolder();
  };
  const facade = await openFacade(
    {
      transport: (service) => recordCalls(network.transport("facade", service), state.called),
      bus,
      logger,
      metrics,
      sharedLimits: o.sharedLimits ?? false,
      dashboardFolder: o.dashboardFolder ?? folder,
      moreRoutes: o.moreRoutes ?? [],
    },
    settings,
  ).catch(async (error: unknown) => {
    await closeBus();
    throw error;
  });

  return {
    ...facade,
    bus,
    metrics,
    state,
    logLines,
    signAccessToken,
    async close() {
      await facade.close();
      await closeBus();
    },
  };
}

/** What the facade calls by itself, at some time after a request. */
const inBackground = new Set<DescMethod>([
  AuditService.method.recordAuditEntries,
  IdentityService.method.batchGetUsers,
]);

function recordCalls(transport: Transport, called: DescMethod[]): Transport {
  return {
    unary(method, ...call) {
      if (!inBackground.has(method)) called.push(method);
      return transport.unary(method, ...call);
    },
    stream(method, ...call) {
      called.push(method);
      return transport.stream(method, ...call);
    },
  };
}

export type TestPlatform = Awaited<ReturnType<typeof openTestPlatform>>;

export function sandboxMessage(state: SandboxState = SandboxState.READY) {
  return {
    id: "01900000-0000-7000-8000-0000000000aa",
    name: "box",
    workspaceId,
    imageId: "image-1",
    image: "registry.test/app:1",
    state,
    memoryMb: 512,
    createdBy: userId,
    createdAt: at,
    updatedAt: at,
    timeline: [{ phase: "accepted", at }],
  };
}

/** The connection of a WebSocket that is opened with the API token, for frames as they are. */
export async function openWebSocket(address: string): Promise<Socket> {
  const upgrading = sendRequest(address, {
    headers: {
      authorization: `Bearer ${apiToken}`,
      "x-workspace-id": workspaceId,
      connection: "Upgrade",
      upgrade: "websocket",
      "sec-websocket-version": "13",
      "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    },
  }).end();
  const [, socket] = await once(upgrading, "upgrade");
  return socket;
}

/** A frame whose mask is zero (RFC 6455, 5.2), of up to 65,535 bytes. */
export function frameOf(content: string, opcode = 2): Buffer {
  const { length } = content;
  const head = length < 126 ? [0x80 + length] : [0xfe, length >> 8, length & 0xff];
  return Buffer.from([0x80 + opcode, ...head, 0, 0, 0, 0, ...Buffer.from(content)]);
}
