import { randomInt } from "node:crypto";
import { findFreePort } from "@sandgate/test-support/process";
import { type Part, parts } from "./replica.ts";

/** Where a replica listens. */
export interface ReplicaPorts {
  part: Part;
  /** Its number among those of its part. */
  index: number;
  port: number;
  adminPort: number;
}

/** A loopback address with a port for everything that a platform starts. */
export interface PortPlan {
  host: string;
  replicas: ReplicaPorts[];
  urlsOf(part: Part): string[];
  nextPort(): number;
}

/**
 * The address is the platform's own, so that no other platform takes one of its ports before it does, or while a
 * process is down.
 */
export async function planPorts(countOf: (part: Part) => number): Promise<PortPlan> {
  const host = `127.${randomInt(1, 255)}.${randomInt(256)}.${randomInt(1, 255)}`;
  let port = await findFreePort(host);
  const nextPort = () => port++;
  const replicas = parts.flatMap((part) =>
    Array.from({ length: countOf(part) }, (_, index) => ({ part, index, port: nextPort(), adminPort: nextPort() })),
  );
  return {
    host,
    replicas,
    urlsOf: (part) => replicas.filter((each) => each.part === part).map((each) => `http://${host}:${each.port}`),
    nextPort,
  };
}
