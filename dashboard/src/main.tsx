import { Tooltip } from "@base-ui/react/tooltip";
import { QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { queryClient } from "./api.ts";
import { destination } from "./destination.ts";
import { router } from "./router.tsx";
import { adoptSession, onSessionChange, renewSession } from "./session.ts";
import { takeSsoResult } from "./sso.ts";
import { applyTheme } from "./theme.ts";
import { Button } from "./ui/basics.tsx";
import { Problem } from "./ui/problem.tsx";
import { hasUnsaved } from "./unsaved.ts";
import "./styles/base.css";
import "./styles/shell.css";

/** Finds out whether there is a session: one that single sign-on has just begun, or that of the cookie. */
async function findSession(): Promise<void> {
  const { refreshToken, next } = takeSsoResult();
  if (refreshToken === undefined) return renewSession();
  await adoptSession(refreshToken);
  await router.navigate({ ...destination(next), replace: true });
}

/** The dashboard, once it is known who is there. */
function Dashboard() {
  const [error, setError] = useState<unknown>();
  const [found, setFound] = useState(false);
  useEffect(() => {
    if (found || error !== undefined) return;
    findSession().then(() => setFound(true), setError);
  }, [found, error]);
  if (error !== undefined) {
    return (
      <main className="entry">
        <h1 className="visually-hidden">Sandgate</h1>
        <Problem error={error}>
          <p>
            <Button onClick={() => setError(undefined)}>Try again</Button>
          </p>
        </Problem>
      </main>
    );
  }
  return found ? <RouterProvider router={router} /> : null;
}

onSessionChange(() => {
  // What isn't saved stays where it is, and what is around it says that the session has ended.
  if (hasUnsaved()) return;
  // Also what was refused between two sessions.
  queryClient.clear();
  router.invalidate();
});
applyTheme();

// After an upgrade a page that was open looks for files of the version before. The next navigation
// loads the new one. A link that fails to load ahead reloads nothing, since something may have been typed.
const reloadedKey = "sandgate.reloaded";
const reloadPauseMs = 60_000;
let isOutdated = false;
function loadAnew(): void {
  if (Date.now() - Number(sessionStorage.getItem(reloadedKey)) < reloadPauseMs) return;
  sessionStorage.setItem(reloadedKey, String(Date.now()));
  // So far the router alone has the new address.
  router.history.flush();
  location.reload();
}
window.addEventListener("vite:preloadError", () => {
  isOutdated = true;
  if (router.state.status === "pending") loadAnew();
});
router.subscribe("onBeforeLoad", ({ pathChanged }) => {
  if (isOutdated && pathChanged) loadAnew();
});

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <QueryClientProvider client={queryClient}>
        <Tooltip.Provider>
          <Dashboard />
        </Tooltip.Provider>
      </QueryClientProvider>
    </StrictMode>,
  );
}
