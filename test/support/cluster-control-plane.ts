// The control plane of a test cluster: etcd, API server, controller manager and scheduler.

import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { type CallServer, callServer } from "./cluster-api.ts";
import type { ClusterFiles } from "./cluster-files.ts";
import { type HostChanges, serviceRanges } from "./cluster-host.ts";
import type { ClusterProgram, Launcher } from "./cluster-launcher.ts";
import type { Programs } from "./cluster-programs.ts";

/** More arguments of its programs. */
export interface ControlPlaneArgs {
  controllerManagerArgs?: readonly string[];
  schedulerArgs?: readonly string[];
  apiServerArgs?: readonly string[];
}

export interface ControlPlane {
  /** `https://127.0.0.1:port` of the API server. */
  server: string;
  etcdUrl: string;
  apiServer: ClusterProgram;
  /** One request as the admin. */
  call: CallServer;
  /** Resolves once the API server answers. */
  answers(): Promise<void>;
  /** Starts what needs the API server. */
  startControllers(): { controllerManager: ClusterProgram; scheduler: ClusterProgram };
}

export async function startControlPlane(o: {
  launcher: Launcher;
  programs: Programs;
  /** Where the certificates are, and etcd's data go. */
  folder: string;
  files: ClusterFiles;
  host: HostChanges;
  ports: { etcd: number; peer: number; api: number };
  adminToken: string;
  args: ControlPlaneArgs;
}): Promise<ControlPlane> {
  const { launcher, programs, folder, files, host, ports, args } = o;
  const etcdUrl = `http://127.0.0.1:${ports.etcd}`;
  const server = `https://127.0.0.1:${ports.api}`;
  launcher.start("etcd", programs.etcd, [
    `--data-dir=${folder}/etcd`,
    `--listen-client-urls=${etcdUrl}`,
    `--advertise-client-urls=${etcdUrl}`,
    `--listen-peer-urls=http://127.0.0.1:${ports.peer}`,
    "--unsafe-no-fsync",
    "--log-level=error",
  ]);
  const apiServer = launcher.start("kube-apiserver", programs.apiServer, [
    `--etcd-servers=${etcdUrl}`,
    "--bind-address=0.0.0.0",
    `--secure-port=${ports.api}`,
    `--advertise-address=${host.serverAddress}`,
    `--tls-cert-file=${folder}/server.crt`,
    `--tls-private-key-file=${folder}/server.key`,
    `--client-ca-file=${folder}/ca.crt`,
    `--token-auth-file=${files.tokens}`,
    "--service-account-issuer=https://kubernetes.default.svc",
    `--service-account-signing-key-file=${folder}/server.key`,
    `--service-account-key-file=${folder}/server.crt`,
    `--service-cluster-ip-range=${serviceRanges(host).join(",")}`,
    "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction",
    "--kubelet-preferred-address-types=InternalIP",
    `--kubelet-certificate-authority=${folder}/ca.crt`,
    `--kubelet-client-certificate=${folder}/admin.crt`,
    `--kubelet-client-key=${folder}/admin.key`,
    "--allow-privileged=true",
    "--profiling=false",
    ...(args.apiServerArgs ?? []),
  ]);
  const ca = await readFile(join(folder, "ca.crt"));
  const call: CallServer = (method, path, body) => callServer({ server, ca, token: o.adminToken, method, path, body });
  const common = [`--kubeconfig=${files.kubeconfig}`, "--leader-elect=false", "--secure-port=0", "--profiling=false"];

  return {
    server,
    etcdUrl,
    apiServer,
    call,
    answers: () =>
      launcher.until("the API server", async () => (await call("GET", "/api/v1/namespaces/default")) !== undefined),
    startControllers: () => ({
      controllerManager: launcher.start("kube-controller-manager", programs.controllerManager, [
        ...common,
        `--root-ca-file=${folder}/ca.crt`,
        `--service-account-private-key-file=${folder}/server.key`,
        ...(args.controllerManagerArgs ?? []),
      ]),
      scheduler: launcher.start("kube-scheduler", programs.scheduler, [...common, ...(args.schedulerArgs ?? [])]),
    }),
  };
}
