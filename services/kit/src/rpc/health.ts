import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import { Health, HealthCheckResponse_ServingStatus as ServingStatus } from "@sandgate/proto/grpc/health/v1/health";
import { aborted } from "../base/abort.ts";
import type { Dependencies } from "../base/dependencies.ts";

/** Whether the services of a host answer, as the standard gRPC health service tells. */
export interface HealthState {
  /**
   * Registers grpc.health.v1.Health for these services, by full name, and for "", which stands for the host. What they depend on
   * can be asked for by its name ("runtime"), and is listed; it changes nothing about the services.
   */
  routes(router: ConnectRouter, services: readonly string[]): void;
  /** Tells everyone that this host goes away, and ends all who watch. */
  leave(): void;
}

/** Serving until `leave` is called. */
export function createHealthState(dependencies: () => Promise<Dependencies>): HealthState {
  const leaving = new AbortController();
  const status = () => (leaving.signal.aborted ? ServingStatus.NOT_SERVING : ServingStatus.SERVING);
  /** Whether, not why: anyone may ask. */
  const readDependencies = async () =>
    Object.entries(await dependencies()).map(
      ([name, state]) => [name, state === "ok" ? ServingStatus.SERVING : ServingStatus.NOT_SERVING] as const,
    );

  return {
    routes(router, services) {
      const known = new Set(["", ...services]);
      router.service(Health, {
        async check({ service }) {
          if (known.has(service)) return { status: status() };
          const found = (await readDependencies()).find(([name]) => name === service);
          if (!found) throw new ConnectError(`There is no service "${service}" here.`, Code.NotFound);
          return { status: found[1] };
        },
        async list() {
          const own = [...known].map((service) => [service, status()] as const);
          const all = [...own, ...(await readDependencies())];
          return { statuses: Object.fromEntries(all.map(([name, status]) => [name, { status }])) };
        },
        // What is served here doesn't change, so there are at most two messages.
        async *watch({ service }, { signal }) {
          if (!known.has(service)) yield { status: ServingStatus.SERVICE_UNKNOWN };
          else yield { status: status() };
          await aborted(AbortSignal.any([signal, leaving.signal]));
          if (known.has(service) && !signal.aborted) yield { status: status() };
        },
      });
    },
    leave() {
      leaving.abort();
    },
  };
}
