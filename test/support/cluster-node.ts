// The nodes of a test cluster: each has a containerd and a kubelet, and a kube-router where policies are enforced.

import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { type CallServer, conditionsOf } from "./cluster-api.ts";
import type { ClusterFiles } from "./cluster-files.ts";
import { type HostChanges, type NodeNetwork, serviceRanges } from "./cluster-host.ts";
import { type ClusterProgram, type Launcher, programsEnv, type RunningProgram } from "./cluster-launcher.ts";
import { exists, findEnforcer, type Programs } from "./cluster-programs.ts";
import { imageArchive, makeImage } from "./oci-images.ts";

const execute = promisify(execFile);

/** A node of a cluster that was started here. */
export interface OwnNode {
  nodeName: string;
  /** The node's address: the pods' bridge, or that of its own network. */
  nodeAddress: string;
  /** With `enforcePolicies`. */
  network: NodeNetwork | undefined;
  /** `https://address:port` of the kubelet, which asks the API server who may do what. */
  kubeletUrl: string;
  /** The bridge of the pods. */
  bridge: string;
  /** What stands for /var/log/pods. */
  podLogsFolder: string;
  kubelet: ClusterProgram;
  containerd: ClusterProgram;
}

/** What a node has before its programs start. */
export interface PreparedNode {
  name: string;
  folder: string;
  host: HostChanges;
  files: ClusterFiles;
  /** The folder of the pods' logs of the first node, over which another one mounts its own; undefined for the first. */
  mountLogsAt: string | undefined;
}

/** A node whose containerd runs and has the pause image. */
export interface NodeWithImages {
  node: PreparedNode;
  containerd: RunningProgram;
  importImages(archive: string): Promise<void>;
  tagImage(name: string, other: string): Promise<void>;
}

export async function startContainerd(
  launcher: Launcher,
  programs: Programs,
  node: PreparedNode,
): Promise<NodeWithImages> {
  const { files, mountLogsAt } = node;
  const args = ["--config", files.containerd];
  // On every node the pods' logs are at the same path, as a DaemonSet finds them.
  const script = `mount --bind ${files.podLogs} ${mountLogsAt}; exec ${programs.containerd} "$@"`;
  const containerd =
    mountLogsAt === undefined
      ? launcher.start("containerd", programs.containerd, args)
      : launcher.start("containerd", "unshare", ["--mount", "sh", "-euc", script, "containerd", ...args]);
  const images = async (...given: string[]) => {
    await execute(programs.ctr, ["--address", files.containerdSocket, "--namespace", "k8s.io", "images", ...given]);
  };
  await launcher.until("containerd", () => exists(files.containerdSocket));
  const archive = join(node.folder, "pause.tar");
  await writeFile(archive, imageArchive(await makeImage({ command: ["sleep", "2147483647"] }), files.pauseImage));
  await launcher.until("containerd", () => images("import", archive).then(() => true));
  return {
    node,
    containerd,
    importImages: (path) => images("import", path),
    tagImage: (name, other) => images("tag", name, other),
  };
}

/** Starts the node's kubelet, and its kube-router where it enforces policies. Resolves once the node is ready. */
export async function startNode(
  launcher: Launcher,
  programs: Programs,
  { node, containerd }: NodeWithImages,
  o: { call: CallServer; kubeletPort: number },
): Promise<OwnNode> {
  const { name, host, files } = node;
  const startOnNode = (program: string, path: string, args: readonly string[]) => {
    const mounts = node.mountLogsAt === undefined ? [] : ["nsenter", `--mount=/proc/${containerd.pid()}/ns/mnt`];
    const [command = "", ...words] = [...mounts, ...(host.network?.enter ?? []), path, ...args];
    return launcher.start(program, command, words);
  };
  const kubelet = startOnNode("kubelet", programs.kubelet, [
    `--config=${files.kubelet}`,
    `--kubeconfig=${files.kubeletKubeconfig}`,
    `--hostname-override=${name}`,
    `--node-ip=${[host.address, ...(host.network ? [host.network.nodeAddress6] : [])].join(",")}`,
    `--root-dir=${node.folder}/kubelet`,
    `--cert-dir=${node.folder}/kubelet`,
  ]);
  await launcher.until(name, async () => {
    const [ready] = conditionsOf(await o.call("GET", `/api/v1/nodes/${name}`)).filter(({ type }) => type === "Ready");
    await o.call("GET", "/api/v1/namespaces/default/serviceaccounts/default");
    return ready?.status === "True";
  });
  if (host.network) {
    const { enter, subnet6 } = host.network;
    // kube-router drops what comes from a pod of these networks that it doesn't know yet.
    const annotations = { "kube-router.io/pod-cidrs": `${host.subnet}.0/24,${subnet6}:/64` };
    await o.call("PATCH", `/api/v1/nodes/${name}`, { metadata: { annotations } });
    startOnNode("kube-router", await findEnforcer(), enforcerArgs(node));
    await awaitEnforcer(launcher, enter);
  }
  return {
    nodeName: name,
    nodeAddress: host.address,
    network: host.network,
    kubeletUrl: `https://${host.address}:${o.kubeletPort}`,
    bridge: host.bridge,
    podLogsFolder: files.podLogs,
    kubelet,
    containerd,
  };
}

function enforcerArgs({ name, host, files }: PreparedNode): string[] {
  return [
    `--kubeconfig=${files.nodeKubeconfig}`,
    `--hostname-override=${name}`,
    "--run-firewall=true",
    "--run-router=false",
    "--run-service-proxy=false",
    "--run-loadbalancer=false",
    "--enable-cni=false",
    "--enable-ipv6=true",
    "--netpol-default-deny=true",
    "--health-port=0",
    ...serviceRanges(host).map((range) => `--service-cluster-ip-range=${range}`),
  ];
}

/** Waits until a node's kube-router has set its rules. */
async function awaitEnforcer(launcher: Launcher, enter: readonly string[]): Promise<void> {
  for (const program of ["iptables", "ip6tables"]) {
    await launcher.until("kube-router", async () => {
      const [command = "", ...words] = [...enter, program, "--list-rules", "KUBE-ROUTER-FORWARD"];
      return (await execute(command, words, { env: programsEnv() })).stdout.includes("KUBE-NWPLCY-TAIL");
    });
  }
}
