import { Code, ConnectError, type ConnectRouter } from "@connectrpc/connect";
import { Health, HealthCheckResponse_ServingStatus as ServingStatus } from "@sandgate/proto/grpc/health/v1/health";
import { aborted } from "./abort.ts";

/** Whether the services of a host answer, as the standard gRPC health service tells. */
export interface HealthState {
  /** Registers grpc.health.v1.Health for these services, by full name, and for "", which stands for the host. */
  routes(router: ConnectRouter, services: readonly string[]): void;
  /** Tells everyone that this host goes away, and ends all who watch. */
  leave(): void;
}

/** Serving until `leave` is called. */
export function createHealthState(): HealthState {
  const leaving = new AbortController();
  const status = () => (leaving.signal.aborted ? ServingStatus.NOT_SERVING : ServingStatus.SERVING);

  return {
    routes(router, services) {
      const known = new Set(["", ...services]);
      router.service(Health, {
        check({ service }) {
          if (!known.has(service)) throw new ConnectError(`There is no service "${service}" here.`, Code.NotFound);
          return { status: status() };
        },
        list() {
          return { statuses: Object.fromEntries([...known].map((service) => [service, { status: status() }])) };
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
