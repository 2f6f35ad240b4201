import { InvalidToken, Sandgate, SandgateError, Unauthenticated } from "@sandgate/client";
import { MutationCache, QueryCache, QueryClient } from "@tanstack/react-query";
import { forgetSession, provideToken, sessionStatus } from "./session.ts";

/** Where the API begins: the dashboard is a folder of it. */
export const apiUrl = new URL("..", document.baseURI).href.replace(/\/$/, "");

/** The API for what belongs to no workspace, as the user who is signed in. */
export const api = new Sandgate({ url: apiUrl, token: provideToken });

/** A session that ended elsewhere, such as by an operator, ends here too. */
function noticeEnd(error: unknown): void {
  if ((error instanceof InvalidToken || error instanceof Unauthenticated) && sessionStatus() === "signed-in") {
    forgetSession();
  }
}

export const queryClient = new QueryClient({
  queryCache: new QueryCache({ onError: noticeEnd }),
  mutationCache: new MutationCache({ onError: noticeEnd }),
  defaultOptions: {
    queries: {
      // The client tries again by itself what may succeed then.
      retry: false,
      staleTime: 2_000,
      refetchOnWindowFocus: (query) => !(query.state.error instanceof SandgateError),
    },
  },
});

/** Options of a query for what is edited: it is read when that begins, and not again while somebody edits it. */
export const readForEdit = { staleTime: 0, gcTime: 0, refetchOnWindowFocus: false, refetchOnReconnect: false } as const;
