import { once } from "node:events";
import { create } from "@bufbuild/protobuf";
import { Code, ConnectError, type ConnectRouter, createClient, type Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-node";
import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { WaitSandboxesRequestSchema } from "@sandgate/proto/sandbox/v1/sandbox";
import { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import { type GetMembershipRequest, WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { createGrpcJsTransport } from "@sandgate/test-support/grpc-js-transport";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { DomainError } from "../base/domain-error.ts";
import { isUuid } from "../base/ids.ts";
import { createLogger } from "../base/logging.ts";
import { createMetrics } from "../base/metrics.ts";
import { type ServiceName, serviceNames } from "../base/service-names.ts";
import { type ServiceHost, startServiceHost } from "../process/host.ts";
import { createCallingTransport, createInMemoryNetwork, createRemoteTransport } from "./clients.ts";
import {
  asFacade,
  asService,
  type Call,
  callerKey,
  callOf,
  onBehalfOf,
  type UserCaller,
  userOf,
  waitTimeOf,
  workspaceOf,
} from "./context.ts";
import { createInternalKeys, createTokenVerifier, type InternalKeys, type TokenSigner } from "./internal-auth.ts";
import { validate } from "./validation.ts";

const user: UserCaller = {
  id: "u1",
  credential: "api_token",
  credentialId: "t1",
  operator: true,
  workspaceId: "w1",
  role: "member",
};

/** What the handlers below do, set by each test. */
let handle: (call: Call) => Promise<void>;
let lastCaller: string | undefined;
let identityCall: Call | undefined;
let tailEnded: PromiseWithResolvers<void>;
const lines: string[] = [];
const logger = createLogger({ service: "test", level: "debug" }, { write: (line) => lines.push(line) });
const metrics = createMetrics();

function serveWorkspace(router: ConnectRouter): void {
  router.service(WorkspaceService, {
    async createWorkspace({ name }, context) {
      lastCaller = context.values.get(callerKey)?.service;
      await handle(callOf(context));
      return { workspace: { id: "w", name } };
    },
    async getWorkspace(_request, context) {
      await handle(callOf(context));
      return {};
    },
  });
}

const serveIdentity = (router: ConnectRouter) => {
  router.service(IdentityService, {
    batchGetUsers(_request, context) {
      lastCaller = context.values.get(callerKey)?.service;
      identityCall = callOf(context);
      return {};
    },
  });
};

const serveTelemetry = (router: ConnectRouter) => {
  router.service(TelemetryService, {
    async *tailTelemetry(request, context) {
      try {
        yield { position: "1" };
        yield { position: "2" };
        if (request.position === "fault") throw new Error("the disk is on fire");
        if (request.position === "missing") throw new DomainError("SANDBOX_NOT_FOUND", "No such sandbox.");
        await new Promise((resolve) => context.signal.addEventListener("abort", resolve, { once: true }));
      } finally {
        tailEnded.resolve();
      }
    },
  });
};

const services = { workspace: serveWorkspace, identity: serveIdentity, telemetry: serveTelemetry } as const;

interface Network {
  transport(caller: string, service: ServiceName): Transport;
  close(): Promise<void>;
}

async function openInMemory(): Promise<Network> {
  const network = await createInMemoryNetwork();
  for (const service of ["workspace", "identity", "telemetry"] as const) {
    network.serve(service, { routes: services[service], logger, metrics });
  }
  return { transport: network.transport, close: async () => {} };
}

async function startHosts(keys: InternalKeys): Promise<Map<ServiceName, ServiceHost>> {
  const hosts = new Map<ServiceName, ServiceHost>();
  for (const service of ["workspace", "identity", "telemetry"] as const) {
    const verifier = createTokenVerifier({ audience: service, jwks: keys.jwks });
    const options = { service, routes: services[service], verifier, logger, metrics, host: "127.0.0.1", port: 0 };
    hosts.set(service, await startServiceHost(options));
  }
  return hosts;
}

/** How calls leave for a service of another process. */
type OpenTransport = (o: { url: string; signer: TokenSigner; audience: ServiceName }) => Transport;

const overConnect: OpenTransport = (o) => createRemoteTransport({ ...o, protocol: "connect" });
const overGrpc: OpenTransport = (o) => createRemoteTransport({ ...o, protocol: "grpc" });
const overGrpcJs: OpenTransport = ({ url, ...o }) => {
  const address = `ipv4:${new URL(url).host}`;
  return createCallingTransport({ ...o, inner: createGrpcJsTransport({ address, readMaxBytes: 1024 * 1024 }) });
};

async function openRemote(openTransport: OpenTransport): Promise<Network> {
  const keys = await createInternalKeys(["facade", ...serviceNames]);
  const hosts = await startHosts(keys);
  return {
    transport(caller, service) {
      const url = hosts.get(service)?.url ?? "http://127.0.0.1:1";
      return openTransport({ url, signer: keys.signer(caller), audience: service });
    },
    async close() {
      await Promise.all([...hosts.values()].map((host) => host.close()));
    },
  };
}

const reason = (name: string) => expect.objectContaining({ name: "DomainError", reason: name });

const ways: [string, () => Promise<Network>][] = [
  ["in memory", openInMemory],
  ["Connect over HTTP/2", () => openRemote(overConnect)],
  ["gRPC over HTTP/2", () => openRemote(overGrpc)],
  ["grpc-js", () => openRemote(overGrpcJs)],
];

describe.each(ways)("%s", (_, open) => {
  let network: Network;
  beforeAll(async () => {
    network = await open();
  });
  afterAll(() => network.close());
  beforeEach(() => {
    lines.length = 0;
    handle = async () => {};
    identityCall = undefined;
    tailEnded = Promise.withResolvers();
  });
  const workspace = (caller = "facade") => createClient(WorkspaceService, network.transport(caller, "workspace"));
  const telemetry = () => createClient(TelemetryService, network.transport("facade", "telemetry"));

  test("a call carries its caller, its purpose and its deadline", async () => {
    let seen: Call | undefined;
    handle = async (call) => {
      seen = call;
      // More than a call has by default.
      expect(call.timeoutMs()).toBeGreaterThan(15_000);
      expect(userOf(call).id).toBe("u1");
      expect(workspaceOf(call)).toBe("w1");
    };
    const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const clientAddress = "2001:db8::7";
    const answer = await workspace().createWorkspace(
      { name: "ok" },
      asFacade({ requestId: "req-1", user, idempotencyKey: "once", traceparent, clientAddress, timeoutMs: 30_000 }),
    );
    expect(answer.workspace?.name).toBe("ok");
    expect(seen).toMatchObject({ requestId: "req-1", user, idempotencyKey: "once", traceparent, clientAddress });
    expect(lastCaller).toBe("facade");
  });

  test("a hop passes on the user, request id, trace and deadline, and no idempotency key", async () => {
    handle = async (call) => {
      await createClient(IdentityService, network.transport("workspace", "identity")).batchGetUsers(
        {},
        onBehalfOf(call),
      );
    };
    const context = { requestId: "req-2", user, traceparent: "t", clientAddress: "192.0.2.7" };
    const options = asFacade({ ...context, idempotencyKey: "once", timeoutMs: 5_000 });
    await workspace().createWorkspace({ name: "ok" }, options);
    expect(identityCall).toMatchObject(context);
    expect(lastCaller).toBe("workspace");
    expect(identityCall?.idempotencyKey).toBeUndefined();
    expect(identityCall?.timeoutMs()).toBeLessThanOrEqual(5_000);
  });

  test("a service calls for nobody, with a request id of its own and 10 s", async () => {
    await createClient(IdentityService, network.transport("workspace", "identity")).batchGetUsers({}, asService());
    expect(identityCall?.user).toBeUndefined();
    expect(isUuid(identityCall?.requestId ?? "")).toBe(true);
    expect(identityCall?.timeoutMs()).toBeLessThanOrEqual(10_000);
  });

  test("a service may not speak for a user by itself", async () => {
    const identity = createClient(IdentityService, network.transport("workspace", "identity"));
    const call = identity.batchGetUsers({}, asFacade({ requestId: "r", user }));
    await expect(call).rejects.toEqual(reason("CALLER_NOT_ALLOWED"));
  });

  test("the access rule holds", async () => {
    const { workspaceId: _, ...outside } = user;
    const call = (caller: string, options = asService()) => workspace(caller).getWorkspace({}, options);
    await expect(call("sandbox")).rejects.toEqual(reason("CALLER_NOT_ALLOWED"));
    await expect(call("facade")).rejects.toEqual(reason("UNAUTHENTICATED"));
    await expect(call("facade", asFacade({ requestId: "r", user: outside }))).rejects.toEqual(
      reason("WORKSPACE_REQUIRED"),
    );
    await expect(workspace().updateWorkspace({ name: "n" }, asFacade({ requestId: "r", user }))).rejects.toEqual(
      reason("INSUFFICIENT_ROLE"),
    );
    expect(lines.filter((line) => line.includes("call refused"))).toHaveLength(1);
  });

  test("a request is validated after the access rule", async () => {
    await expect(workspace().createWorkspace({ name: "" }, asFacade({ requestId: "r", user }))).rejects.toMatchObject({
      reason: "VALIDATION_ERROR",
      violations: [{ field: "name", issue: expect.stringContaining("1") }],
    });
    await expect(workspace().createWorkspace({ name: "" })).rejects.toEqual(reason("UNAUTHENTICATED"));
    const tail = telemetry().tailTelemetry({}, asFacade({ requestId: "r", user }));
    await expect(tail[Symbol.asyncIterator]().next()).rejects.toMatchObject({
      reason: "VALIDATION_ERROR",
      violations: [{ field: "sandbox_id" }],
    });
  });

  test("a domain error arrives whole", async () => {
    handle = async () => {
      throw new DomainError("RATE_LIMITED", "Slow down.", { hint: "Wait.", retryAfterSeconds: 2 });
    };
    await expect(workspace().getWorkspace({}, asFacade({ requestId: "r", user }))).rejects.toMatchObject({
      reason: "RATE_LIMITED",
      message: "Slow down.",
      hint: "Wait.",
      retryAfterSeconds: 2,
    });
  });

  test("an unexpected error is logged with its cause and hidden", async () => {
    handle = async () => {
      throw new Error("broken", { cause: new Error("the disk is on fire") });
    };
    const failed = workspace().getWorkspace({}, asFacade({ requestId: "req-3", user }));
    await expect(failed).rejects.toEqual(reason("INTERNAL_ERROR"));
    await expect(failed).rejects.toThrow(/^(?!.*broken)/);
    const entry = lines.map((line) => JSON.parse(line)).find(({ level }) => level === "error");
    expect(entry).toMatchObject({ request_id: "req-3", method: "sandgate.workspace.v1.WorkspaceService.GetWorkspace" });
    expect(entry.err.stack).toContain("the disk is on fire");
  });

  test("an unimplemented method is a fault of ours", async () => {
    await expect(workspace().getMembership({}, asService())).rejects.toEqual(reason("INTERNAL_ERROR"));
  });

  test("a deadline that passes is an upstream error and stops the handler", async () => {
    let started = 0;
    let stopped = 0;
    handle = async ({ signal }) => {
      started += 1;
      if (!signal.aborted) await once(signal, "abort");
      stopped += 1;
    };
    // On a busy machine it may pass before the call gets there.
    while (started === 0) {
      await expect(workspace().getWorkspace({}, asFacade({ requestId: "r", user, timeoutMs: 50 }))).rejects.toEqual(
        reason("UPSTREAM_ERROR"),
      );
    }
    await until(() => expect(stopped).toBe(started));
  });

  test("a caller that goes away stops the handler, and the error it then throws isn't a fault", async () => {
    const started = Promise.withResolvers<void>();
    const stopped = Promise.withResolvers<void>();
    handle = async ({ signal }) => {
      started.resolve();
      await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
      stopped.resolve();
      throw signal.reason;
    };
    const abort = new AbortController();
    const call = workspace().getWorkspace({}, asFacade({ requestId: "r", user, signal: abort.signal }));
    await started.promise;
    abort.abort();
    await expect(call).rejects.toEqual(reason("UPSTREAM_ERROR"));
    await stopped.promise;
    await until(() => expect(lines.join("")).toContain('"reason":"ENDED"'));
    expect(lines.join("")).not.toContain("INTERNAL_ERROR");
  });

  test("a stream fails as a call does", async () => {
    const read = async (position: string) => {
      const positions: string[] = [];
      const options = asFacade({ requestId: "r", user, timeoutMs: 0 });
      try {
        for await (const row of telemetry().tailTelemetry({ sandboxId: "s", position }, options)) {
          positions.push(row.position);
        }
      } catch (error) {
        return { positions, error };
      }
      return { positions };
    };
    expect(await read("fault")).toEqual({ positions: ["1", "2"], error: reason("INTERNAL_ERROR") });
    expect(await read("missing")).toEqual({ positions: ["1", "2"], error: reason("SANDBOX_NOT_FOUND") });
    expect(lines.join("")).toContain("the disk is on fire");
  });

  test("a stream ends on the server when its reader aborts", async () => {
    const abort = new AbortController();
    const options = asFacade({ requestId: "r", user, signal: abort.signal, timeoutMs: 0 });
    for await (const row of telemetry().tailTelemetry({ sandboxId: "s" }, options)) {
      if (row.position === "2") break;
    }
    abort.abort();
    await tailEnded.promise;
  });
});

test("a wait leaves its answer time to reach the caller", () => {
  const waits = [undefined, 120_000, 30_000, 1_000].map((leftMs) => waitTimeOf({ timeoutMs: () => leftMs }, 60));
  expect(waits).toEqual([60_000, 60_000, 28_000, 0]);
});

test("without a token, or with a made up one, the body is not even read", async () => {
  const keys = await createInternalKeys(["facade"]);
  const hosts = await startHosts(keys);
  try {
    const url = hosts.get("workspace")?.url ?? "";
    const bare = createClient(WorkspaceService, createConnectTransport({ baseUrl: url, httpVersion: "2" }));
    for (const headers of [{}, { authorization: "Basic eDp5" }, { authorization: "Bearer a.b.c" }]) {
      const failed = await bare.createWorkspace({ name: "n" }, { headers }).catch((error: unknown) => error);
      expect(failed).toMatchObject({ name: "ConnectError", code: Code.PermissionDenied });
    }
    const bad = await bare.createWorkspace({ name: "n".repeat(10_000_000) }).catch((error: unknown) => error);
    expect(bad).toMatchObject({ code: Code.PermissionDenied });
  } finally {
    await Promise.all([...hosts.values()].map((host) => host.close()));
  }
});

test("within one process a request arrives as it would over a network", async () => {
  const network = await createInMemoryNetwork();
  let given: GetMembershipRequest | undefined;
  network.serve("workspace", {
    routes: (router) =>
      router.service(WorkspaceService, {
        getMembership(request) {
          given = request;
          return {};
        },
      }),
    logger,
    metrics: createMetrics(),
  });
  const { unary } = network.transport("facade", "workspace");
  const { getMembership } = WorkspaceService.method;
  const { contextValues } = asFacade({ requestId: "r" });
  const send = (message: GetMembershipRequest) =>
    unary(getMembership, undefined, undefined, undefined, message, contextValues);

  for (const [userId, arrived] of [
    ["u1", "u1"],
    ["u".repeat(2_000), "u".repeat(2_000)],
    // Half a surrogate pair can't be encoded.
    ["\ud800", "\ufffd"],
  ] as const) {
    const message = create(getMembership.input, { workspaceId: "w1", userId });
    await send(message);
    expect(given).not.toBe(message);
    expect(given).toEqual(create(getMembership.input, { workspaceId: "w1", userId: arrived }));
  }
  await expect(send(create(getMembership.input, { userId: "u".repeat(5_000_000) }))).rejects.toMatchObject({
    reason: "INTERNAL_ERROR",
  });
});

test("within one process caller and handler can't change what the other has", async () => {
  const network = await createInMemoryNetwork();
  const kept = { id: "w", name: "kept" };
  let given: object | undefined;
  network.serve("workspace", {
    routes: (router) =>
      router.service(WorkspaceService, {
        createWorkspace(request) {
          given = request;
          return { workspace: kept };
        },
      }),
    logger,
    metrics: createMetrics(),
  });
  const client = createClient(WorkspaceService, network.transport("facade", "workspace"));
  const request = { name: "n" };
  const { workspace } = await client.createWorkspace(request, asFacade({ requestId: "r", user }));
  expect(given).not.toBe(request);
  expect(() => Object.assign(workspace ?? {}, { name: "changed" })).toThrow(TypeError);
  expect(kept.name).toBe("kept");
});

test("within one process a signal that is read after the call's end is aborted", async () => {
  const network = await openInMemory();
  const client = createClient(WorkspaceService, network.transport("facade", "workspace"));
  let seen: Call | undefined;
  handle = async (call) => {
    seen = call;
  };
  await client.getWorkspace({}, asFacade({ requestId: "r", user }));
  expect(seen?.signal.aborted).toBe(true);
});

test("a body over the limit and a deadline over the limit are refused", async () => {
  const network = await openInMemory();
  const client = createClient(WorkspaceService, network.transport("facade", "workspace"));
  const call = (name: string, timeoutMs: number) =>
    client.createWorkspace({ name }, asFacade({ requestId: "r", user, timeoutMs }));
  await expect(call("n".repeat(5_000_000), 60_000)).rejects.toEqual(reason("INTERNAL_ERROR"));
  await expect(call("n", 3_600_000)).rejects.toEqual(reason("INTERNAL_ERROR"));
});

test("a service that is away is an upstream error", async () => {
  const keys = await createInternalKeys(["facade"]);
  const transport = createRemoteTransport({
    url: "http://127.0.0.1:1",
    signer: keys.signer("facade"),
    audience: "workspace",
  });
  const call = createClient(WorkspaceService, transport).getMembership({}, asService());
  await expect(call).rejects.toEqual(reason("UPSTREAM_ERROR"));
});

test("a host that closes lets a running call finish and takes no more", async () => {
  const keys = await createInternalKeys(["facade"]);
  const hosts = await startHosts(keys);
  const host = hosts.get("workspace");
  if (!host) throw new Error("The host is missing.");
  const signer = keys.signer("facade");
  const client = createClient(
    WorkspaceService,
    createRemoteTransport({ url: host.url, signer, audience: "workspace" }),
  );
  const started = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  handle = async () => {
    started.resolve();
    await go.promise;
  };
  const running = client.getWorkspace({}, asFacade({ requestId: "r", user }));
  await started.promise;
  const closing = host.close();
  go.resolve();
  await running;
  await closing;
  await expect(client.getWorkspace({}, asFacade({ requestId: "r", user }))).rejects.toEqual(reason("UPSTREAM_ERROR"));
  await Promise.all([...hosts.values()].map((each) => (each === host ? undefined : each.close())));
});

test("a host closes even when a handler ignores its signal", async () => {
  const keys = await createInternalKeys(["facade"]);
  const host = await startServiceHost({
    service: "workspace",
    routes: serveWorkspace,
    verifier: createTokenVerifier({ audience: "workspace", jwks: keys.jwks }),
    logger,
    metrics,
    host: "127.0.0.1",
    port: 0,
    drainMs: 10,
  });
  const signer = keys.signer("facade");
  const client = createClient(
    WorkspaceService,
    createRemoteTransport({ url: host.url, signer, audience: "workspace" }),
  );
  const started = Promise.withResolvers<void>();
  handle = () => {
    started.resolve();
    return new Promise(() => {});
  };
  const stuck = client.getWorkspace({}, asFacade({ requestId: "r", user })).catch((error: unknown) => error);
  await started.promise;
  await host.close();
  expect(await stuck).toEqual(reason("UPSTREAM_ERROR"));
});

test("fields in lists are named by their place", () => {
  const message = create(WaitSandboxesRequestSchema, { idsOrNames: ["a", ""], timeoutSeconds: 1 });
  expect(() => validate(WaitSandboxesRequestSchema, message)).toThrow(
    expect.objectContaining({ violations: [{ field: "ids_or_names.1", issue: expect.any(String) }] }),
  );
});

test("calls and failures are counted", async () => {
  const text = await metrics.metrics();
  expect(text).toMatch(/sandgate_rpc_seconds_count\{service="workspace",method="CreateWorkspace"\} \d+/);
  // Once over each way.
  expect(text).toContain(
    `sandgate_rpc_failures_total{service="workspace",method="GetWorkspace",reason="RATE_LIMITED"} ${ways.length}`,
  );
});

test("a ConnectError from another service isn't passed on", async () => {
  const network = await openInMemory();
  handle = async () => {
    throw new ConnectError("inside", Code.DataLoss);
  };
  const client = createClient(WorkspaceService, network.transport("facade", "workspace"));
  const failed = await client.getWorkspace({}, asFacade({ requestId: "r", user })).catch((error: unknown) => error);
  expect(failed).toEqual(reason("INTERNAL_ERROR"));
  expect(String(failed)).not.toContain("inside");
});
