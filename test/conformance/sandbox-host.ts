import type { TestCluster } from "@sandgate/test-support/cluster";
import { buildImage, openTestEngine, probeEngine } from "@sandgate/test-support/images";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { requireServer } from "@sandgate/test-support/require";
import { uniqueName } from "./client.ts";

/** What runs the sandboxes of the service under test, as tests see it from beside that service. */
export interface SandboxHost {
  /** An image of the machine's busybox that the host can run, under a reference that an operator may register. */
  makeImage(o: { command: readonly string[]; files?: Readonly<Record<string, string>> }): Promise<HostImage>;
  /** What there is of a workspace's sandboxes, or of one sandbox, in whatever state. */
  list(of: { workspace: string } | { sandbox: string }): Promise<readonly unknown[]>;
}

export interface HostImage {
  reference: string;
  remove(): Promise<void>;
}

let elsewhere: (() => SandboxHost) | undefined;

/** The suite's files that are imported from now on find sandboxes there, instead of on this machine's container engine. */
export function testSandboxesOn(host: () => SandboxHost): void {
  elsewhere = host;
}

/** Whether there is a host of sandboxes. Says what is missing unless there is. */
export async function requireSandboxHost(): Promise<boolean> {
  return elsewhere !== undefined || (await requireServer("docker", probeEngine));
}

export function openSandboxHost(): SandboxHost {
  return elsewhere?.() ?? engineHost();
}

function engineHost(): SandboxHost {
  const engine = openTestEngine();
  return {
    makeImage: (o) => buildImage(engine, o),
    list: (of) => engine.listContainers({ all: true, filters: { label: [labelOf(of)] } }),
  };
}

/** Pods of one namespace, and a registry without users that their nodes pull from. */
export function clusterHost(cluster: TestCluster, o: { namespace: string; registry: string }): SandboxHost {
  return {
    async makeImage(content) {
      const repository = `conformance/${uniqueName("image")}`;
      const reference = await pushImage(await makeImage(content), { host: o.registry, repository });
      // It goes with its registry.
      return { reference, remove: async () => {} };
    },
    async list(of) {
      const selector = ["--namespace", o.namespace, "--selector", labelOf(of)];
      const names = await cluster.kubectl("get", "pods", ...selector, "--output=name");
      return names.split("\n").filter(Boolean);
    },
  };
}

function labelOf(of: { workspace: string } | { sandbox: string }): string {
  return "workspace" in of ? `sandgate.io/workspace-id=${of.workspace}` : `sandgate.io/sandbox-id=${of.sandbox}`;
}
