import type { Sandbox, SandboxRecord, Sandgate } from "@sandgate/client";
import { useMutation, useQueryClient, useSuspenseQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { useWorkspace } from "./workspace.ts";

/** How often what changes by itself is read again while it is looked at. */
export const liveMs = 3_000;
const soonMs = 700;

export const isChanging = ({ state }: SandboxRecord): boolean => state === "provisioning" || state === "stopping";
export const hasEnded = ({ state }: SandboxRecord): boolean => state === "stopped" || state === "failed";

/** One sandbox, by id or name, read again while it lives. */
export function sandboxQuery(sandgate: Sandgate, workspaceId: string, id: string) {
  return {
    queryKey: [workspaceId, "sandbox", id],
    queryFn: async ({ signal }: { signal: AbortSignal }) => (await sandgate.sandboxes.get(id, { signal })).record,
    refetchInterval: ({ state: { data } }: { state: { data: SandboxRecord | undefined } }) => {
      if (!data) return false as const;
      if (isChanging(data)) return soonMs;
      return hasEnded(data) ? (false as const) : liveMs;
    },
  };
}

/** The sandbox of the page: its record as it is now, and the client's handle, which stays the same. */
export function useSandbox(): { sandbox: Sandbox; record: SandboxRecord; key: readonly string[] } {
  const { sandboxId } = useParams({ from: "/shell/sandboxes/$sandboxId" });
  const { workspace, sandgate } = useWorkspace();
  const { data: record } = useSuspenseQuery(sandboxQuery(sandgate, workspace.id, sandboxId));
  const key = [workspace.id, "sandbox", sandboxId];
  const { data: sandbox } = useSuspenseQuery({
    queryKey: [...key, "handle"],
    queryFn: ({ signal }) => sandgate.sandboxes.get(sandboxId, { signal }),
    staleTime: Number.POSITIVE_INFINITY,
  });
  return { sandbox, record, key };
}

/** Changes the sandbox of the page, and reads its record and the lists again; what its tabs have read stays. */
export function useSandboxChange<Input, Result>(change: (input: Input) => Promise<Result>) {
  const { sandboxId } = useParams({ from: "/shell/sandboxes/$sandboxId" });
  const { workspace, sandgate } = useWorkspace();
  const queries = useQueryClient();
  const { queryKey } = sandboxQuery(sandgate, workspace.id, sandboxId);
  return useMutation({
    mutationFn: change,
    onSettled: () =>
      Promise.all([
        queries.invalidateQueries({ queryKey, exact: true }),
        queries.invalidateQueries({ queryKey: [workspace.id, "sandboxes"] }),
      ]),
  });
}
