import { Dialog } from "@base-ui/react/dialog";
import { useQuery, useQueryErrorResetBoundary } from "@tanstack/react-query";
import { type ErrorComponentProps, Link, Outlet, useNavigate, useRouter, useSearch } from "@tanstack/react-router";
import {
  Box,
  Database,
  KeyRound,
  Layers,
  LogOut,
  Menu,
  Monitor,
  Moon,
  ScrollText,
  Settings,
  Shield,
  Sun,
  Users,
  X,
} from "lucide-react";
import { Suspense, useEffect, useRef, useState } from "react";
import { accountQuery } from "./account.ts";
import { onSessionChange, sessionStatus, signOut } from "./session.ts";
import { chooseTheme, chosenTheme, themes } from "./theme.ts";
import { useTitle } from "./title.ts";
import { useAction } from "./ui/action.tsx";
import { Button, Field, IconButton, Loading } from "./ui/basics.tsx";
import { Brand } from "./ui/brand.tsx";
import { Question } from "./ui/dialog.tsx";
import { Problem } from "./ui/problem.tsx";
import { hasUnsaved } from "./unsaved.ts";
import { rememberWorkspace, useMaybeWorkspace } from "./workspace.ts";

const pages = [
  ["/sandboxes", "Sandboxes", Box],
  ["/images", "Images", Layers],
  ["/registries", "Registries", Database],
  ["/members", "Members", Users],
  ["/api-tokens", "API tokens", KeyRound],
  ["/audit-log", "Audit log", ScrollText],
  ["/settings", "Settings", Settings],
  ["/operators", "Operators", Shield],
] as const;

/** What is around the page of somebody who is signed in: workspace, navigation, and the way out. */
export function Shell() {
  return (
    <Suspense fallback={<Loading />}>
      <ShellBody />
    </Suspense>
  );
}

function ShellBody() {
  const [open, setOpen] = useState(false);
  const main = useRef<HTMLElement>(null);
  const { workspace } = useMaybeWorkspace();
  const { workspace: named } = useSearch({ from: "/shell" });
  const navigate = useNavigate();
  const id = workspace?.id;
  useEffect(() => {
    if (id === undefined) return;
    rememberWorkspace(id);
    // The address names it, so that another tab, a bookmark or the way back changes nothing here.
    if (named === undefined) navigate({ to: ".", search: (old) => ({ ...old, workspace: id }), replace: true });
  }, [id, named, navigate]);
  return (
    <div className="shell">
      {/* biome-ignore lint/a11y/useValidAnchor: an address of its own would lead to the page's base, which is another page. */}
      <a
        className="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        Skip to the content
      </a>
      <header className="side-cell">
        <Side />
      </header>
      <header className="topbar">
        <Link to="/sandboxes" className="brand">
          <Brand />
        </Link>
        <Dialog.Root open={open} onOpenChange={setOpen}>
          <Dialog.Trigger className="icon-button" aria-label="Menu">
            <Menu aria-hidden />
          </Dialog.Trigger>
          <Dialog.Portal>
            <Dialog.Backdrop className="backdrop" />
            <Dialog.Popup className="drawer" aria-label="Menu">
              <Side onLeave={() => setOpen(false)} />
            </Dialog.Popup>
          </Dialog.Portal>
        </Dialog.Root>
      </header>
      <main id="main" ref={main} tabIndex={-1}>
        <SessionEnd />
        {workspace ? (
          <Suspense fallback={<Loading />}>
            <Outlet />
          </Suspense>
        ) : (
          <NoWorkspace />
        )}
      </main>
    </div>
  );
}

/** Says that the session has ended while something isn't saved, which is why the page is still there. */
function SessionEnd() {
  const [isShown, setIsShown] = useState(false);
  useEffect(() => onSessionChange(() => setIsShown(sessionStatus() === "signed-out" && hasUnsaved())), []);
  if (!isShown) return null;
  return (
    <p role="alert" className="notice">
      Your session has ended. What isn't saved is still here: to go on with it,{" "}
      <a href="sign-in" target="_blank" rel="noreferrer">
        sign in in another tab
      </a>
      .
    </p>
  );
}

function Side({ onLeave }: { onLeave?: () => void }) {
  const { workspaces, workspace } = useMaybeWorkspace();
  const { data: account } = useQuery(accountQuery);
  const navigate = useNavigate();
  const [asking, setAsking] = useState(false);
  const { busy, error, act } = useAction();
  function leave() {
    setAsking(false);
    act(signOut);
  }
  return (
    <div className="side">
      <div className="side-tools">
        <Link to="/sandboxes" className="brand" onClick={onLeave}>
          <Brand />
        </Link>
        {onLeave && (
          <button type="button" className="icon-button" aria-label="Close" onClick={onLeave}>
            <X aria-hidden />
          </button>
        )}
      </div>
      <Field label="Workspace">
        {(control) => (
          <select
            {...control}
            value={workspace?.id ?? ""}
            onChange={(event) => {
              rememberWorkspace(event.target.value);
              navigate({ to: "/sandboxes", search: { workspace: event.target.value } });
              onLeave?.();
            }}
          >
            {!workspace && <option value="">None</option>}
            {workspaces.map(({ id, name }) => (
              <option key={id} value={id}>
                {name}
              </option>
            ))}
          </select>
        )}
      </Field>
      <nav aria-label="Main">
        <ul>
          {pages
            .filter(([to]) => to !== "/operators" || account?.isOperator)
            .map(([to, text, Icon]) => (
              <li key={to}>
                <Link to={to} activeProps={{ "aria-current": "page" }} onClick={onLeave}>
                  <Icon aria-hidden /> {text}
                </Link>
              </li>
            ))}
        </ul>
      </nav>
      <div className="side-end">
        {error !== undefined && <Problem error={error} />}
        <p className="who" title={account?.username}>
          {account?.username}
        </p>
        <div className="side-tools">
          <Button
            kind="quiet"
            icon={<LogOut aria-hidden />}
            busy={busy}
            onClick={() => (hasUnsaved() ? setAsking(true) : leave())}
          >
            Sign out
          </Button>
          <Question title="Sign out now?" action="Sign out" open={asking} onOpenChange={setAsking} onConfirm={leave}>
            <p>What isn't saved is lost then, and uploads that are under way end.</p>
          </Question>
          <ThemeButton />
        </div>
      </div>
    </div>
  );
}

const icons = { system: Monitor, light: Sun, dark: Moon };

function ThemeButton() {
  const [theme, setTheme] = useState(chosenTheme);
  const Icon = icons[theme];
  function next() {
    const chosen = themes[(themes.indexOf(theme) + 1) % themes.length] ?? "system";
    chooseTheme(chosen);
    setTheme(chosen);
  }
  return (
    <IconButton label={`Colours: ${theme}`} onClick={next}>
      <Icon aria-hidden />
    </IconButton>
  );
}

function NoWorkspace() {
  useTitle("No workspace");
  return (
    <section className="empty">
      <h1>No such workspace</h1>
      <p>You are not a member of the workspace that this address names, or of any. Choose one of yours on the left.</p>
    </section>
  );
}

export function NotFound() {
  useTitle("Not found");
  return (
    <main className="entry">
      <section className="card">
        <h1>There is no such page</h1>
        <p>
          <Link to="/sandboxes">All sandboxes</Link>
        </p>
      </section>
    </main>
  );
}

/** A page that can't be shown, with why. */
export function PageFailure({ error, reset }: ErrorComponentProps) {
  const router = useRouter();
  const queries = useQueryErrorResetBoundary();
  return (
    <Problem error={error}>
      <p>
        <Button
          onClick={() => {
            queries.reset();
            reset();
            router.invalidate();
          }}
        >
          Try again
        </Button>
      </p>
    </Problem>
  );
}
