import { type Sandgate, type Workspace, WorkspaceNotFound } from "@sandgate/client";
import { useSuspenseQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { api } from "./api.ts";

const remembered = "sandgate.workspace";

/** All workspaces of the user, the newest first. */
export const workspacesQuery = {
  queryKey: ["workspaces"],
  queryFn: async ({ signal }: { signal: AbortSignal }): Promise<Workspace[]> =>
    api.workspaces.list({ limit: 500, signal }),
  staleTime: 60_000,
};

/** The id of the user's default workspace; null if the user has none of their own. */
const defaultWorkspaceQuery = {
  queryKey: ["default-workspace"],
  queryFn: async ({ signal }: { signal: AbortSignal }): Promise<string | null> =>
    api.workspaceId({ signal }).catch((error: unknown) => {
      if (error instanceof WorkspaceNotFound) return null;
      throw error;
    }),
};

/** The one that a new visit shows: what was shown last, else the default one. */
function chooseWorkspace(
  all: readonly Workspace[],
  o: { asked: string | undefined; defaultId: string | null },
): Workspace | undefined {
  if (o.asked !== undefined) return all.find(({ id }) => id === o.asked);
  const last = localStorage.getItem(remembered);
  return all.find(({ id }) => id === last) ?? all.find(({ id }) => id === o.defaultId) ?? all.at(-1);
}

export function rememberWorkspace(id: string): void {
  localStorage.setItem(remembered, id);
}

/** The workspace of the address, or the remembered one; undefined if the user has none, or isn't in that one. */
export function useMaybeWorkspace(): { workspaces: Workspace[]; workspace: Workspace | undefined } {
  const { data: workspaces } = useSuspenseQuery(workspacesQuery);
  const { data: defaultId } = useSuspenseQuery(defaultWorkspaceQuery);
  const { workspace: asked } = useSearch({ strict: false });
  return { workspaces, workspace: chooseWorkspace(workspaces, { asked, defaultId }) };
}

/** The workspace that a page is about, and the client for it. */
export function useWorkspace(): { workspace: Workspace; sandgate: Sandgate } {
  const { workspace } = useMaybeWorkspace();
  if (!workspace) throw new Error("You are in no such workspace.");
  const sandgate = useMemo(() => api.forWorkspace(workspace.id), [workspace.id]);
  return { workspace, sandgate };
}

/** Whether the user's role in the workspace allows what an admin may do there. */
export const isAdmin = ({ role }: Workspace): boolean => role !== "member";
