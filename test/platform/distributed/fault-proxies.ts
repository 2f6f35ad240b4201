import type { NetConnectOpts } from "node:net";
import { type ServiceName, serviceNames } from "@sandgate/kit/base/service-names";
import { type FaultProxy, openFaultProxy } from "@sandgate/test-support/fault-proxy";
import { engineSocket } from "@sandgate/test-support/images";
import type { PortPlan } from "./ports.ts";
import { type Part, parts } from "./replica.ts";
import type { Servers } from "./servers.ts";
import { addressVariable } from "./settings.ts";

/** What a process depends on over a network. */
export type Dependency = ServiceName | "mongo" | "nats" | "engine";

/** A fault proxy between each part and each of its dependencies. */
export interface FaultProxies extends AsyncDisposable {
  between(from: Part, to: Dependency): FaultProxy;
  /** The settings by which a part reaches its dependencies through its proxies. */
  settingsOf(part: Part): Record<string, string>;
}

/** For a platform with one replica of each part. */
export async function openFaultProxies(ports: PortPlan, servers: Servers): Promise<FaultProxies> {
  await using opening = new AsyncDisposableStack();
  const proxies = new Map<string, FaultProxy>();
  const settings = new Map<Part, Record<string, string>>();
  for (const part of parts) {
    const own: Record<string, string> = {};
    for (const { to, target, variable, valueAt } of dependenciesOf(part, ports, servers)) {
      const listen = { host: ports.host, port: ports.nextPort() };
      const proxy = await openFaultProxy({ listen, to: target });
      proxies.set(
        `${part} ${to}`,
        opening.adopt(proxy, (each) => each.close()),
      );
      own[variable] = valueAt(`${listen.host}:${listen.port}`);
    }
    settings.set(part, own);
  }
  const opened = opening.move();
  return {
    between(from, to) {
      const proxy = proxies.get(`${from} ${to}`);
      if (!proxy) throw new Error(`there is no fault proxy between ${from} and ${to}`);
      return proxy;
    },
    settingsOf: (part) => settings.get(part) ?? {},
    [Symbol.asyncDispose]: () => opened.disposeAsync(),
  };
}

interface DependencyAddress {
  to: Dependency;
  target: NetConnectOpts;
  /** The setting that names the dependency's address, and its value for `host:port`. */
  variable: string;
  valueAt(address: string): string;
}

function dependenciesOf(part: Part, ports: PortPlan, servers: Servers): DependencyAddress[] {
  return [
    ...serviceNames.map((service) => ({
      to: service,
      target: socketOf(ports.urlsOf(service)[0] ?? ""),
      variable: addressVariable(service),
      valueAt: (address: string) => `http://${address}`,
    })),
    {
      to: "mongo",
      target: socketOf(servers.mongo.url),
      variable: "SANDGATE_DATABASE",
      // Without a direct connection the driver would go on to the address that the member has in the replica set.
      valueAt: (address) => `mongodb://${address}/?directConnection=true&serverSelectionTimeoutMS=5000`,
    },
    {
      to: "nats",
      target: socketOf(servers.nats.url),
      variable: "SANDGATE_EVENTS",
      valueAt: (address) => servers.natsUrl(part).replace(/[^@]+$/, address),
    },
    {
      to: "engine",
      target: { path: engineSocket },
      variable: "SANDGATE_RUNTIME",
      valueAt: (address) => `docker://${address}`,
    },
  ];
}

function socketOf(url: string): { host: string; port: number } {
  const { hostname, port } = new URL(url);
  return { host: hostname, port: Number(port) };
}
