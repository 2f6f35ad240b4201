/** The labels of the objects that a runtime has for sandboxes: containers, their networks, and pods. */
export const labelKeys = {
  sandbox: "sandgate.io/sandbox-id",
  /** For people who look at an engine. Who owns a sandbox stands in its record. */
  workspace: "sandgate.io/workspace-id",
  installation: "sandgate.io/installation",
} as const;

/** What a container is for. Several installations may share an engine. */
export interface ContainerIdentity {
  sandboxId: string;
  installationId: string;
}

/**
 * The container's name, which follows from the sandbox's id, so that a repeated creation finds it. A pod has the same
 * name.
 */
export function containerNameOf(sandboxId: string): string {
  return `sandgate-${sandboxId}`;
}

/** The labels of a sandbox's container. */
export function containerLabels(of: ContainerIdentity & { workspaceId: string }): Record<string, string> {
  return {
    [labelKeys.sandbox]: of.sandboxId,
    [labelKeys.workspace]: of.workspaceId,
    ...installationLabels(of.installationId),
  };
}

/** The label that all objects of an installation have, and no others. */
export function installationLabels(installationId: string): Record<string, string> {
  return { [labelKeys.installation]: installationId };
}

/** Undefined for the labels of a container that is no sandbox's. */
export function identityOf(labels: Readonly<Record<string, string>>): ContainerIdentity | undefined {
  const sandboxId = labels[labelKeys.sandbox];
  const installationId = labels[labelKeys.installation];
  return sandboxId && installationId ? { sandboxId, installationId } : undefined;
}

/** How lists, events and watches select what belongs to an installation. */
export function installationSelector(installationId: string): string {
  return `${labelKeys.installation}=${installationId}`;
}
