import { useSuspenseQuery } from "@tanstack/react-query";
import { api } from "./api.ts";

/** The account of the user who is signed in. */
export const accountQuery = {
  queryKey: ["account"],
  queryFn: ({ signal }: { signal: AbortSignal }) => api.account.get({ signal }),
  staleTime: 60_000,
};

export const useAccount = () => useSuspenseQuery(accountQuery).data;
