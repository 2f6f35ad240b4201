// The files that the programs of a test cluster are started with.

import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { copyFile, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import type { HostChanges, NodeNetwork } from "./cluster-host.ts";

const execute = promisify(execFile);

/** The first address of the services' network, where pods find the API server. */
const serviceAddress = "10.96.0.1";

/**
 * Makes an authority (ca) and what it signed: server (of the API server), kubelet, node (the kubelet as a client) and
 * admin.
 * @param o.authority a folder that has the authority already
 */
export async function makeCertificates(
  folder: string,
  o: { nodeName: string; nodeAddress: string; serverAddresses: readonly string[]; authority?: string },
): Promise<void> {
  const openssl = (...args: string[]) => execute("openssl", args, { cwd: folder });
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  if (o.authority === undefined) {
    await openssl("req", "-x509", ...key, "-keyout", "ca.key", "-out", "ca.crt", "-days", "2", "-subj", "/CN=test-ca");
  } else {
    for (const name of ["ca.key", "ca.crt"]) await copyFile(join(o.authority, name), join(folder, name));
  }
  const sign = async (name: string, subject: string, names: readonly string[] = []) => {
    const usage = names.length > 0 ? "serverAuth" : "clientAuth";
    const alternative = names.length > 0 ? `\nsubjectAltName=${names.join(",")}` : "";
    await writeFile(join(folder, `${name}.ext`), `extendedKeyUsage=${usage}${alternative}\n`);
    await openssl("req", "-new", ...key, "-keyout", `${name}.key`, "-out", `${name}.csr`, "-subj", subject);
    const authority = [
      "-CA",
      "ca.crt",
      "-CAkey",
      "ca.key",
      "-set_serial",
      `0x${randomBytes(8).toString("hex")}`,
      "-days",
      "2",
    ];
    await openssl("x509", "-req", "-in", `${name}.csr`, ...authority, "-extfile", `${name}.ext`, "-out", `${name}.crt`);
  };
  const addresses = ["IP:127.0.0.1", `IP:${o.nodeAddress}`];
  await Promise.all([
    sign("server", "/CN=kube-apiserver", [
      ...addresses,
      ...o.serverAddresses.map((address) => `IP:${address}`),
      `IP:${serviceAddress}`,
      ...["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"].map((name) => `DNS:${name}`),
    ]),
    sign("kubelet", "/CN=kubelet", addresses),
    sign("node", `/O=system:nodes/CN=system:node:${o.nodeName}`),
    sign("admin", "/O=system:masters/CN=admin"),
  ]);
}

export interface ClusterFiles {
  containerd: string;
  containerdSocket: string;
  pauseImage: string;
  kubelet: string;
  kubeletKubeconfig: string;
  /** The admin's, for programs on the node. */
  nodeKubeconfig: string;
  /** The admin's. */
  kubeconfig: string;
  tokens: string;
  podLogs: string;
  /** A folder for each registry that needs settings of its own. */
  registries: string;
  writeKubeconfig(name: string, token: string): Promise<string>;
}

export async function writeClusterFiles(
  folder: string,
  o: {
    api: number;
    kubeletPort: number;
    nodeName: string;
    host: HostChanges;
    adminToken: string;
    /** What stands for /var/log/pods there, if it is not a folder here. */
    podLogs: string | undefined;
    cniFolder: string;
    /** More of its configuration. */
    kubelet: Readonly<Record<string, unknown>>;
  },
): Promise<ClusterFiles> {
  const { host } = o;
  const at = (name: string) => join(folder, name);
  for (const name of ["cni", "kubelet", "registries", "pod-logs"]) await mkdir(at(name));
  const files = {
    containerd: at("containerd.toml"),
    containerdSocket: at("containerd.sock"),
    pauseImage: "registry.test/pause:1",
    kubelet: at("kubelet.yaml"),
    kubeletKubeconfig: at("kubelet.kubeconfig"),
    nodeKubeconfig: at("node.kubeconfig"),
    kubeconfig: at("admin.kubeconfig"),
    tokens: at("tokens.csv"),
    podLogs: at("pod-logs"),
    registries: at("registries"),
  };
  const writeConfig = (path: string, user: object, server = `https://127.0.0.1:${o.api}`) =>
    // JSON is YAML.
    writeFile(
      path,
      JSON.stringify({
        apiVersion: "v1",
        kind: "Config",
        clusters: [{ name: "test", cluster: { server, "certificate-authority": at("ca.crt") } }],
        users: [{ name: "user", user }],
        contexts: [{ name: "test", context: { cluster: "test", user: "user" } }],
        "current-context": "test",
      }),
      { mode: 0o600 },
    );
  await writeFile(files.tokens, `${o.adminToken},admin,admin,system:masters\n`, { mode: 0o600 });
  await writeConfig(files.kubeconfig, { token: o.adminToken });
  const nodeUser = { "client-certificate": at("node.crt"), "client-key": at("node.key") };
  const serverOfNode = `https://${host.serverAddress}:${o.api}`;
  await writeConfig(files.kubeletKubeconfig, nodeUser, serverOfNode);
  await writeConfig(files.nodeKubeconfig, { token: o.adminToken }, serverOfNode);

  await writeFile(
    at("cni/10-test.conflist"),
    JSON.stringify({
      cniVersion: "0.4.0",
      name: host.bridge,
      plugins: [
        {
          type: "bridge",
          bridge: host.bridge,
          isDefaultGateway: true,
          ipMasq: false,
          hairpinMode: true,
          ipam: {
            type: "host-local",
            dataDir: at("cni-addresses"),
            ranges: [
              [{ subnet: `${host.subnet}.0/24`, rangeStart: `${host.subnet}.10` }],
              ...(host.network
                ? [[{ subnet: `${host.network.subnet6}:/64`, rangeStart: `${host.network.subnet6}:10` }]]
                : []),
            ],
          },
        },
      ],
    }),
  );

  const pluginsFolder = host.network ? await writePlugins(at("cni-plugins"), o.cniFolder, host.network) : o.cniFolder;

  const cri = 'plugins."io.containerd.grpc.v1.cri"';
  await writeFile(
    files.containerd,
    `version = 2
root = "${at("data")}"
state = "${at("run")}"
[grpc]
  address = "${files.containerdSocket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "${at("opt")}"
[${cri}]
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  sandbox_image = "${files.pauseImage}"
  stream_server_address = "${host.network?.hostAddress ?? "127.0.0.1"}"
  [${cri}.cni]
    bin_dir = "${pluginsFolder}"
    conf_dir = "${at("cni")}"
  [${cri}.registry]
    config_path = "${files.registries}"
  [${cri}.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [${cri}.containerd.runtimes.runc.options]
      Root = "${at("runc")}"
`,
  );

  await writeFile(at("resolv.conf"), "nameserver 192.0.2.53\n");
  await writeFile(
    files.kubelet,
    JSON.stringify({
      apiVersion: "kubelet.config.k8s.io/v1beta1",
      kind: "KubeletConfiguration",
      address: "0.0.0.0",
      port: o.kubeletPort,
      healthzPort: 0,
      readOnlyPort: 0,
      tlsCertFile: at("kubelet.crt"),
      tlsPrivateKeyFile: at("kubelet.key"),
      authentication: {
        anonymous: { enabled: false },
        webhook: { enabled: true },
        x509: { clientCAFile: at("ca.crt") },
      },
      authorization: { mode: "Webhook" },
      containerRuntimeEndpoint: `unix://${files.containerdSocket}`,
      // Without CAP_SYS_RESOURCE, as in a container.
      featureGates: { KubeletInUserNamespace: true },
      cgroupDriver: "cgroupfs",
      cgroupRoot: host.controlGroup,
      failCgroupV1: false,
      failSwapOn: false,
      enforceNodeAllocatable: [],
      localStorageCapacityIsolation: true,
      evictionHard: { "memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
      makeIPTablesUtilChains: false,
      podLogsDir: o.podLogs ?? files.podLogs,
      resolvConf: at("resolv.conf"),
      // As deploy/README.md has nodes set up, unlike a kubelet's defaults: each start of a sandbox is a pull.
      registryPullQPS: 0,
      serializeImagePulls: false,
      eventRecordQPS: 0,
      ...o.kubelet,
    }),
  );
  return {
    ...files,
    async writeKubeconfig(name, token) {
      const path = at(`${name}.kubeconfig`);
      await writeConfig(path, { token });
      return path;
    },
  };
}

/**
 * CNI plugins that work in the node's network. containerd itself stays on this machine's, so that it pulls from
 * registries on the loopback address.
 */
async function writePlugins(folder: string, cniFolder: string, { enter }: NodeNetwork): Promise<string> {
  await mkdir(folder);
  for (const name of ["bridge", "host-local", "loopback"]) {
    const script = `#!/bin/sh\nexec ${enter.join(" ")} env CNI_PATH=${cniFolder} ${join(cniFolder, name)}\n`;
    await writeFile(join(folder, name), script, { mode: 0o755 });
  }
  return folder;
}
