import { execFile } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";
import { promisify } from "node:util";
import type { OwnCluster, TestCluster } from "@sandgate/test-support/cluster";

const execute = promisify(execFile);

/** What a pod tries to connect to by TCP. */
export interface Target {
  /** The name that is reported when it was reached, without quotes. */
  name: string;
  address: string;
  port: number;
}

/** Shell commands that try all targets at once, and print the names of those that took a connection. */
export function reachScript(targets: readonly Target[]): string {
  return [
    ...targets.map(({ name, address, port }) => `(nc -w 2 ${address} ${port} -e true && echo '${name}') 2>/dev/null &`),
    "wait",
  ].join("\n");
}

/** The names of the targets that a pod reaches now, sorted. */
export async function reachedBy(
  cluster: TestCluster,
  pod: { namespace: string; name: string },
  targets: readonly Target[],
): Promise<string[]> {
  const where = [`--namespace=${pod.namespace}`, pod.name];
  const output = await cluster.kubectl("exec", ...where, "--", "sh", "-c", reachScript(targets));
  return output.split("\n").filter(Boolean).toSorted();
}

/**
 * Gives this machine an address on the cable to the node, for as long as the cluster is there. Servers listen on it.
 */
export async function addOutsideAddress(network: NonNullable<OwnCluster["network"]>, address: string): Promise<void> {
  const isV6 = address.includes(":");
  const length = isV6 ? 128 : 32;
  const args = ["address", "replace", `${address}/${length}`, "dev", network.hostInterface];
  await execute("ip", isV6 ? [...args, "nodad"] : args);
}

/** An HTTP server on an address of this machine. */
export async function listenAt(address: string, port: number): Promise<() => void> {
  const server = createServer((_, response) => response.end("here")).listen(port, address);
  await once(server, "listening");
  return () => {
    server.close();
    server.closeAllConnections();
  };
}
