import type { SandboxRecord, Sandgate } from "@sandgate/client";
import { useMutation, useQueryClient } from "@tanstack/react-query";

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

/** Changes a sandbox, and reads again what shows it. */
export function useSandboxChange<Input, Result>(change: (input: Input) => Promise<Result>) {
  const queries = useQueryClient();
  return useMutation({ mutationFn: change, onSettled: () => queries.invalidateQueries() });
}
