import { access } from "node:fs/promises";
import { delimiter, dirname, join } from "node:path";

/** A folder of Kubernetes' own programs, looked for on PATH as well. */
const givenFolder = process.env.SANDGATE_TEST_KUBERNETES;

const programFolders = [givenFolder ?? "", ...(process.env.PATH ?? "").split(delimiter), "/usr/sbin", "/sbin"].filter(
  Boolean,
);

const programs = {
  etcd: "etcd",
  apiServer: "kube-apiserver",
  controllerManager: "kube-controller-manager",
  scheduler: "kube-scheduler",
  kubelet: "kubelet",
  kubectl: "kubectl",
  containerd: "containerd",
  ctr: "ctr",
} as const;
/** The paths of the programs that a cluster is made of. */
export type Programs = Record<keyof typeof programs, string>;

/** The path of kube-router. */
export async function findEnforcer(): Promise<string> {
  const found = await findIn(programFolders, "kube-router");
  if (found === undefined) throw new Error("neither SANDGATE_TEST_KUBERNETES nor PATH has kube-router");
  for (const [name, debianPackage] of [
    ["ipset", "ipset"],
    ["nsenter", "util-linux"],
  ] as const) {
    if ((await findIn(programFolders, name)) === undefined) {
      throw new Error(`${name} was not found (Debian's package ${debianPackage})`);
    }
  }
  return found;
}

/** Throws, saying what is missing, unless there are all of them and what they need. */
export async function findPrograms(): Promise<Programs> {
  const folders = programFolders;
  const found: Partial<Programs> = {};
  const missing: string[] = [];
  for (const [key, name] of Object.entries(programs)) {
    const path = await findIn(folders, name);
    if (path === undefined) missing.push(name);
    else Object.assign(found, { [key]: path });
  }
  const packages = {
    ip: "iproute2",
    iptables: "iptables",
    openssl: "openssl",
    busybox: "busybox-static",
    runc: "runc",
  };
  for (const [name, debianPackage] of Object.entries(packages)) {
    if ((await findIn(folders, name)) === undefined) missing.push(`${name} (Debian's package ${debianPackage})`);
  }
  await findCniFolder().catch((error: Error) => missing.push(error.message));
  const { etcd, apiServer, controllerManager, scheduler, kubelet, kubectl, containerd, ctr } = found;
  if (
    missing.length > 0 ||
    !etcd ||
    !apiServer ||
    !controllerManager ||
    !scheduler ||
    !kubelet ||
    !kubectl ||
    !containerd ||
    !ctr
  ) {
    const hint = "KUBECONFIG is not set, and neither SANDGATE_TEST_KUBERNETES (a folder of programs) nor PATH has";
    throw new Error(`${hint}: ${missing.join(", ")}`);
  }
  return { etcd, apiServer, controllerManager, scheduler, kubelet, kubectl, containerd, ctr };
}

async function findIn(folders: readonly string[], name: string): Promise<string | undefined> {
  for (const folder of folders) {
    const path = join(folder, name);
    if (await exists(path)) return path;
  }
  return undefined;
}

/** Whether there is such a file. */
export function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

/** The folder of the CNI plugins. */
export async function findCniFolder(): Promise<string> {
  const plugin = await findIn(["/usr/lib/cni", "/opt/cni/bin"], "bridge");
  if (plugin === undefined) throw new Error("the CNI plugin bridge (Debian's package containernetworking-plugins)");
  return dirname(plugin);
}
