/** The labels on each sandbox's container, and on networks. */
const labels = {
  sandbox: "sandgate.io/sandbox-id",
  workspace: "sandgate.io/workspace-id",
  installation: "sandgate.io/installation",
} as const;

/** Whose container it is. Several installations may share an engine. */
export interface ContainerOwner {
  sandboxId: string;
  workspaceId: string;
  installationId: string;
}

/** The container's name, which follows from the sandbox's id, so that a repeated creation finds it. */
export function containerNameOf(sandboxId: string): string {
  return `sandgate-${sandboxId}`;
}

/** The labels that `ownerOf` reads. */
export function labelsOf(owner: ContainerOwner): Record<string, string> {
  return {
    [labels.sandbox]: owner.sandboxId,
    [labels.workspace]: owner.workspaceId,
    [labels.installation]: owner.installationId,
  };
}

/** Undefined for a container without all three labels, which is no sandbox's. */
export function ownerOf(given: Readonly<Record<string, string>>): ContainerOwner | undefined {
  const sandboxId = given[labels.sandbox];
  const workspaceId = given[labels.workspace];
  const installationId = given[labels.installation];
  return sandboxId && workspaceId && installationId ? { sandboxId, workspaceId, installationId } : undefined;
}

/** The labels of a network of an installation's sandboxes; of all workspaces when `workspaceId` is "". */
export function networkLabelsOf(installationId: string, workspaceId: string): Record<string, string> {
  return { [labels.installation]: installationId, ...(workspaceId && { [labels.workspace]: workspaceId }) };
}

/** The workspace that a network is for; "" for all. */
export function workspaceOfNetwork(given: Readonly<Record<string, string>>): string {
  return given[labels.workspace] ?? "";
}

/** For the `label` filter of lists and events: what belongs to an installation. */
export function labelFilter(installationId: string): string[] {
  return [`${labels.installation}=${installationId}`];
}
