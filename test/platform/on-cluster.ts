import { randomUUID } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { ApiProxy } from "@sandgate/test-support/api-proxy";
import type { TestCluster } from "@sandgate/test-support/cluster";
import { applyRights, createToken, deployed, writeSandboxKubeconfig } from "../deploy/cluster-rights.ts";
import { pushHelperImage } from "./helper-image.ts";
import { startPlatform, type TestPlatform } from "./local.ts";

interface OnCluster {
  /** Between the platform and the API server. */
  proxy?: ApiProxy;
  /**
   * Whether it has the lines and figures of the node, for which it reads that one's files: the cluster was started
   * here.
   */
  collects?: boolean;
  /** `host:port` of a registry that nodes pull the helper from; sandboxes have none unless given. */
  helperRegistry?: string;
  /** More of them. */
  settings?: Readonly<Record<string, string>>;
}

/**
 * The platform in one process, with sandboxes as pods of the cluster and the rights that deploy/kubernetes gives its
 * processes.
 */
export async function startOnCluster(cluster: TestCluster, o: OnCluster = {}): Promise<TestPlatform> {
  await applyRights(cluster);
  return startPlatform({ settings: await settingsOnCluster(cluster, o) });
}

/**
 * The settings of a platform with sandboxes as pods of the cluster, once that has the rights. The tokens are good for
 * an hour.
 */
export async function settingsOnCluster(cluster: TestCluster, o: OnCluster = {}): Promise<Record<string, string>> {
  const kubeconfig = await writeSandboxKubeconfig(cluster);
  return {
    SANDGATE_RUNTIME: `kubernetes:${o.proxy ? await o.proxy.writeKubeconfig(kubeconfig) : kubeconfig}`,
    SANDGATE_KUBERNETES_NAMESPACE: deployed.sandboxes,
    SANDGATE_REGISTRY_ALLOW: ["127.0.0.0/8", ...(cluster.registry ? [cluster.registry] : [])].join(),
    ...(o.helperRegistry && { SANDGATE_HELPER_IMAGE: await pushHelperImage(o.helperRegistry) }),
    ...(o.collects && (await settingsOfCollector(cluster))),
    ...o.settings,
  };
}

async function settingsOfCollector(cluster: TestCluster): Promise<Record<string, string>> {
  const { own } = cluster;
  if (!own) throw new Error("the nodes of the cluster at KUBECONFIG are elsewhere");
  const tokenFile = join(own.folder, `collector-${randomUUID()}`);
  await writeFile(tokenFile, await createToken(cluster, deployed.collector), { mode: 0o600 });
  return {
    SANDGATE_KUBELET_URL: own.kubeletUrl,
    SANDGATE_KUBELET_TOKEN_FILE: tokenFile,
    SANDGATE_KUBELET_CA_FILE: own.certificateAuthority,
    SANDGATE_POD_LOGS: own.podLogsFolder,
  };
}
