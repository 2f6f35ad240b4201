import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { buildImage, listApplets, openTestEngine, probeEngine } from "@sandgate/test-support/images";
import { makeImage, pushImage } from "@sandgate/test-support/oci-images";
import { requireServer } from "@sandgate/test-support/require";
import { uniqueName } from "./client.ts";

const execute = promisify(execFile);

const {
  SANDGATE_CONFORMANCE_URL: givenUrl,
  SANDGATE_CONFORMANCE_REGISTRY: givenRegistry,
  KUBECONFIG: givenCluster,
} = process.env;

export interface ImageContent {
  command: readonly string[];
  files?: Readonly<Record<string, string>>;
  programs?: readonly string[];
  env?: Readonly<Record<string, string>>;
  /** Where its program starts; `/` unless given. */
  folder?: string;
  user?: string;
}

/** What runs the sandboxes of the service under test, as tests see it from beside that service. */
export interface SandboxHost {
  /** An image of the machine's busybox that the host can run, under a reference that an operator may register. */
  makeImage(o: ImageContent): Promise<HostImage>;
  /**
   * What there is of a workspace's sandboxes, or of one sandbox, in whatever state. Undefined: it can't be looked at.
   */
  list: ((of: Owner) => Promise<readonly unknown[]>) | undefined;
}

type Owner = { workspace: string } | { sandbox: string };

/** Why a test is skipped that needs `list`. */
export const unseen = "KUBECONFIG names no cluster in which the platform's pods could be looked for";

export interface HostImage {
  reference: string;
  remove(): Promise<void>;
}

let elsewhere: (() => SandboxHost) | undefined;

/**
 * The suite's files that are imported from now on find sandboxes there, instead of on this machine's container engine.
 */
export function testSandboxesOn(host: () => SandboxHost): void {
  elsewhere = host;
}

/** Whether there is a host of sandboxes. Says what is missing unless there is. */
export async function requireSandboxHost(): Promise<boolean> {
  if (elsewhere) return true;
  if (givenRegistry) {
    if (!givenCluster) process.stderr.write(`SKIPPED in part: ${unseen}\n`);
    return requireServer("busybox", listApplets);
  }
  return requireServer("docker", async () => {
    if (givenUrl && !/^(127\.|localhost$|\[::1\]$)/.test(new URL(givenUrl).hostname)) {
      throw new Error("SANDGATE_CONFORMANCE_REGISTRY names no registry that the platform elsewhere pulls images from");
    }
    await probeEngine();
  });
}

/**
 * Whether the platform itself limits the processes of a sandbox, and a kill for memory ends one of them. Says why unless
 * it does.
 */
export function requireProcessLimits(): Promise<boolean> {
  return requireServer("limits", async () => {
    if (elsewhere || givenRegistry) {
      throw new Error("of a pod they are its node's: podPidsLimit and singleProcessOOMKill of the kubelet");
    }
  });
}

export function openSandboxHost(): SandboxHost {
  return elsewhere?.() ?? (givenRegistry ? givenHost(givenRegistry) : engineHost());
}

function engineHost(): SandboxHost {
  const engine = openTestEngine();
  return {
    makeImage: ({ env = {}, folder, user, ...content }) =>
      buildImage(engine, {
        ...content,
        changes: [
          ...Object.entries(env).map(([name, value]) => `ENV ${name}=${value}`),
          ...(folder === undefined ? [] : [`WORKDIR ${folder}`]),
          ...(user === undefined ? [] : [`USER ${user}`]),
        ],
      }),
    list: (of) => engine.listContainers({ all: true, filters: { label: [labelOf(of)] } }),
  };
}

/**
 * Pods, and a registry that everybody may pull from: `[http[s]://][user:password@]host[:port][/path]`, http unless
 * given.
 */
export function clusterHost(o: {
  /** What kubectl prints. */
  kubectl: ((...args: string[]) => Promise<string>) | undefined;
  registry: string;
}): SandboxHost {
  const { kubectl } = o;
  const { protocol, username, password, host, pathname } = new URL(
    o.registry.includes("://") ? o.registry : `http://${o.registry}`,
  );
  const place = {
    host,
    isSecure: protocol === "https:",
    credential: username ? { username, password: decodeURIComponent(password) } : undefined,
  };
  return {
    async makeImage({ env = {}, folder: WorkingDir, user: User, ...content }) {
      const Env = ["PATH=/usr/local/bin:/bin", ...Object.entries(env).map(([name, value]) => `${name}=${value}`)];
      const config = { Env, ...(WorkingDir && { WorkingDir }), ...(User && { User }) };
      const repository = `${pathname.slice(1)}/conformance/${uniqueName("image")}`.replace(/^\//, "");
      const reference = await pushImage(await makeImage({ ...content, config }), { ...place, repository });
      // It goes with its registry.
      return { reference, remove: async () => {} };
    },
    list: kubectl && listPodsBy(kubectl),
  };
}

/**
 * One list serves all who ask before it begins: many ask again and again, and each kubectl takes a lot of a small
 * machine.
 */
function listPodsBy(kubectl: (...args: string[]) => Promise<string>): SandboxHost["list"] {
  let last: Promise<unknown> = Promise.resolve();
  let next: Promise<string[]> | undefined;
  const begin = async (): Promise<string[]> => {
    await last.catch(() => {});
    next = undefined;
    const listing = kubectl("get", "pods", "--all-namespaces", "--no-headers", "--show-labels");
    last = listing;
    return (await listing).split("\n").filter(Boolean);
  };
  return async (of) => {
    next ??= begin();
    const lines = await next;
    // Labels are the last column: "a=b,c=d".
    return lines.filter((line) => line.split(/\s+/).at(-1)?.split(",").includes(labelOf(of)));
  };
}

function givenHost(registry: string): SandboxHost {
  const kubectl = async (...args: string[]) => (await execute("kubectl", args)).stdout;
  return clusterHost({ kubectl: givenCluster ? kubectl : undefined, registry });
}

function labelOf(of: Owner): string {
  return "workspace" in of ? `sandgate.io/workspace-id=${of.workspace}` : `sandgate.io/sandbox-id=${of.sandbox}`;
}
