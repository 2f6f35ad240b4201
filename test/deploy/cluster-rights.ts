import { randomUUID } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { TestCluster } from "@sandgate/test-support/cluster";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { parseAllDocuments } from "yaml";

const folder = join(import.meta.dirname, "../../deploy/kubernetes");

/** The namespaces and service accounts of deploy/kubernetes/overlays/pods. */
export const deployed = {
  sandboxes: "sandgate-sandboxes",
  sandbox: { namespace: "sandgate", name: "sandbox" },
  collector: { namespace: "sandgate-collector", name: "collector" },
} as const;

/** The little of an object that is looked at here. */
interface Manifest {
  kind: string;
  metadata: { name: string; namespace?: string };
}

/** The objects that an overlay (`base`, `overlays/pods`) applies. */
export async function buildManifests(cluster: Pick<TestCluster, "kubectl">, overlay: string): Promise<Manifest[]> {
  const text = await cluster.kubectl("kustomize", join(folder, overlay));
  return parseAllDocuments(text).map((document): Manifest => document.toJS());
}

/** The objects of a file in deploy/kubernetes. */
export async function readManifests(file: string): Promise<Manifest[]> {
  const text = await readFile(join(folder, file), "utf8");
  return parseAllDocuments(text).map((document): Manifest => document.toJS());
}

/** Applies objects; with `dryRun` the API server only says whether it would take them. */
export async function applyManifests(
  cluster: TestCluster,
  objects: readonly object[],
  o: { dryRun?: boolean } = {},
): Promise<void> {
  const { path, remove } = await createTempFolder();
  try {
    const file = join(path, "objects.json");
    await writeFile(file, JSON.stringify({ apiVersion: "v1", kind: "List", items: objects }));
    const dryRun = o.dryRun ? ["--dry-run=server"] : [];
    await cluster.kubectl("apply", "--server-side", "--force-conflicts", ...dryRun, "--filename", file);
  } finally {
    await remove();
  }
}

const rights = ["Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];

/** Applies what an installation on pods has of namespaces, service accounts and rights. */
export async function applyRights(cluster: TestCluster): Promise<void> {
  const objects = await buildManifests(cluster, "overlays/pods");
  await applyManifests(
    cluster,
    objects.filter(({ kind }) => kind === "Namespace"),
  );
  await applyManifests(
    cluster,
    objects.filter(({ kind }) => rights.includes(kind) && kind !== "Namespace"),
  );
}

/** A token of a service account, good for an hour. */
export async function createToken(
  cluster: TestCluster,
  { namespace, name }: { namespace: string; name: string },
): Promise<string> {
  return (await cluster.kubectl("create", "token", name, `--namespace=${namespace}`)).trim();
}

/** Writes a kubeconfig with the rights of the sandbox process, good for an hour, and answers its path. */
export async function writeSandboxKubeconfig(cluster: TestCluster): Promise<string> {
  return cluster.writeKubeconfig(`sandbox-${randomUUID()}`, await createToken(cluster, deployed.sandbox));
}
