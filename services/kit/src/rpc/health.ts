import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import { Health, HealthCheckResponse_ServingStatus as ServingStatus } from "@sandgate/proto/grpc/health/v1/health";
import { aborted } from "../base/abort.ts";
import type { Dependencies } from "../base/dependencies.ts";

/** Whether the services of a host are serving, as the standard gRPC health service reports it. */
export interface HealthState {
  /**
   * Registers grpc.health.v1.Health for these services, by full name, and for "", the host. Dependencies are listed and
   * can be checked by their names ("runtime"). Their state doesn't affect that of the services.
   */
  routes(router: ConnectRouter, services: readonly string[]): void;
  /** Reports NOT_SERVING from now on, and ends every watch. */
  stop(): void;
}

/** Creates a health state that reports SERVING until `stop` is called. */
export function createHealthState(dependencies: () => Promise<Dependencies>): HealthState {
  const stopping = new AbortController();
  const status = () => (stopping.signal.aborted ? ServingStatus.NOT_SERVING : ServingStatus.SERVING);
  /** Reports whether each dependency is healthy, but not why, since anyone may ask. */
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
        // The set of services doesn't change, so there are at most two messages.
        async *watch({ service }, { signal }) {
          if (!known.has(service)) yield { status: ServingStatus.SERVICE_UNKNOWN };
          else yield { status: status() };
          await aborted(AbortSignal.any([signal, stopping.signal]));
          if (known.has(service) && !signal.aborted) yield { status: status() };
        },
      });
    },
    stop() {
      stopping.abort();
    },
  };
}
