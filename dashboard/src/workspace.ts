import type { Sandgate, Workspace } from "@sandgate/client";
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

/** The one that a new visit shows: what was shown last, else the oldest of one's own, which is the personal one. */
function chooseWorkspace(all: readonly Workspace[], asked: string | undefined): Workspace | undefined {
  if (asked !== undefined) return all.find(({ id }) => id === asked);
  const last = localStorage.getItem(remembered);
  return all.find(({ id }) => id === last) ?? all.findLast(({ role }) => role === "owner") ?? all.at(-1);
}

export function rememberWorkspace(id: string): void {
  localStorage.setItem(remembered, id);
}

/** The workspace of the address, or the remembered one; undefined if the user has none, or isn't in that one. */
export function useMaybeWorkspace(): { workspaces: Workspace[]; workspace: Workspace | undefined } {
  const { data: workspaces } = useSuspenseQuery(workspacesQuery);
  const { workspace: asked } = useSearch({ strict: false });
  return { workspaces, workspace: chooseWorkspace(workspaces, asked) };
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
