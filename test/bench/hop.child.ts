// A process of the transport bench: `node … <role> <transport> <folder> <where the services are, as JSON>`.
import { join } from "node:path";
import { createClient, type Transport } from "@connectrpc/connect";
import { openFacade, readFacadeSettings } from "@sandgate/facade";
import { identityService } from "@sandgate/identity";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import type { ServiceName } from "@sandgate/kit/base/service-names";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { startServiceHost } from "@sandgate/kit/process/host";
import type { RunningService, ServiceDefinition } from "@sandgate/kit/process/service";
import { createCallingTransport, createInMemoryNetwork, createRemoteTransport } from "@sandgate/kit/rpc/clients";
import { asFacade, type UserCaller } from "@sandgate/kit/rpc/context";
import type { TokenSigner } from "@sandgate/kit/rpc/internal-auth";
import { openTokenSigner, openTokenVerifier } from "@sandgate/kit/rpc/internal-keys";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { createGrpcJsTransport } from "@sandgate/test-support/grpc-js-transport";
import { workspaceService } from "@sandgate/workspace";
import type { Addresses, TransportName } from "./transports.ts";

const readMaxBytes = 32 * 1024 * 1024;
const nowhere = "http://127.0.0.1:9";

const [role = "", transportName = "", folder = "", given = "{}"] = process.argv.slice(2);
const { env } = process;
const logger = createLogger({ service: role, level: "warn" });
const metrics = createMetrics();
// Its signals reach this process alone. None is sent while a GET is measured.
const bus = await openLocalBus({ file: join(folder, `${role}-${transportName}-events.sqlite`), logger, metrics });

type Transports = (service: ServiceName) => Transport;

/** The transports from a caller to each service in the other process. */
async function openRemote(
  caller: string,
  addresses: Addresses,
  open: (o: { url: string; signer: TokenSigner; audience: ServiceName }) => Transport,
): Promise<Transports> {
  const signer = await openTokenSigner({ caller, file: join(folder, `${caller}.jwk.json`), logger });
  return (audience) => open({ url: addresses[audience] ?? nowhere, signer, audience });
}

const openers: Record<TransportName, (addresses: Addresses) => Promise<Transports>> = {
  async "in-process"() {
    const network = await createInMemoryNetwork();
    const services = await openServices((callee) => network.transport("workspace", callee));
    for (const [name, service] of services) {
      network.serve(name, { routes: (router) => service.routes(router), logger, metrics: createMetrics() });
    }
    return (service) => network.transport("facade", service);
  },
  connect: (addresses) => openRemote("facade", addresses, createRemoteTransport),
  grpc: (addresses) => openRemote("facade", addresses, (o) => createRemoteTransport({ ...o, protocol: "grpc" })),
  "grpc-js": (addresses) =>
    openRemote("facade", addresses, ({ url, ...o }) => {
      const inner = createGrpcJsTransport({ address: `ipv4:${new URL(url).host}`, readMaxBytes });
      return createCallingTransport({ ...o, inner });
    }),
};

/** The identity and workspace services, on SQLite files in the folder. */
async function openServices(transport: Transports): Promise<Map<ServiceName, RunningService>> {
  const keyring = await openKeyring({ file: join(folder, "keyring.json"), create: true });
  const services = new Map<ServiceName, RunningService>();
  async function open<Settings>({ name, ...definition }: ServiceDefinition<Settings>): Promise<void> {
    const database = { kind: "sqlite", file: join(folder, `${role}-${name}.sqlite`) } as const;
    const environment = { database, bus, transport, keyring, logger, metrics };
    const opened = await definition.open(environment, definition.readSettings(env));
    await opened.start();
    services.set(name, opened);
  }
  await open(identityService);
  await open(workspaceService);
  return services;
}

const roles: Record<string, () => Promise<unknown>> = {
  /** The services, each with a host of its own. Sends their addresses. */
  async services() {
    const addresses: Addresses = {};
    const services = await openServices(await openRemote("workspace", addresses, createRemoteTransport));
    for (const [service, running] of services) {
      const routes = running.routes.bind(running);
      const verifier = await openTokenVerifier({ audience: service, file: join(folder, "jwks.json"), logger });
      const place = { host: "127.0.0.1", port: 0 };
      const { url } = await startServiceHost({ service, routes, verifier, logger, metrics: createMetrics(), ...place });
      addresses[service] = url;
    }
    return addresses;
  },
  /** The facade. Sends its address. */
  async facade() {
    const facade = await openFacade(
      { transport: await openTransports(), bus, logger, metrics },
      readFacadeSettings(env),
    );
    return { url: await facade.listen() };
  },
  /**
   * Only a client. Calls as the facade does, as often and with as many calls at once as a message says, and reports the
   * end.
   */
  async caller() {
    const client = createClient(WorkspaceService, (await openTransports())("workspace"));
    const user: UserCaller = { id: newId(), credential: "session", credentialId: newId(), operator: false };
    const { workspace } = await client.createWorkspace({ name: "bench" }, asFacade({ requestId: newId(), user }));
    const owner: UserCaller = { ...user, workspaceId: workspace?.id ?? "", role: "owner" };
    process.on("message", async ({ amount, atOnce }: { amount: number; atOnce: number }) => {
      let left = amount;
      const callInTurn = async () => {
        while (left-- > 0) await client.getWorkspace({}, asFacade({ requestId: newId(), user: owner }));
      };
      await Promise.all(Array.from({ length: atOnce }, callInTurn));
      process.send?.({ done: true });
    });
    return {};
  },
};

function openTransports(): Promise<Transports> {
  // The bench names no other.
  return openers[transportName as TransportName](JSON.parse(given));
}

// The bench that started it has ended.
process.once("disconnect", () => process.exit());
process.send?.(await roles[role]?.());
