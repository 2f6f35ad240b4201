import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
  redirect,
  type SearchMiddleware,
} from "@tanstack/react-router";
import { SignIn } from "./pages/sign-in.tsx";
import { sessionStatus } from "./session.ts";
import { NotFound, PageFailure, Shell } from "./shell.tsx";
import { Loading } from "./ui/basics.tsx";

type Search = Record<string, unknown>;

/** Takes these fields of an address, where they are texts. */
function texts<const K extends string>(...names: K[]) {
  type Texts = { [N in K]?: string | undefined };
  return (search: Search): Texts => {
    const given = names.flatMap((name) =>
      typeof search[name] === "string" && search[name] !== "" ? [[name, search[name]]] : [],
    );
    return Object.fromEntries(given) as Texts;
  };
}

/** Links lead on within the workspace that the address names. */
const keepWorkspace: SearchMiddleware<{ workspace?: string | undefined }> = ({ search, next }) => ({
  workspace: search.workspace,
  ...next(search),
});

const rootRoute = createRootRoute({
  validateSearch: texts("workspace"),
  search: { middlewares: [keepWorkspace] },
  component: Outlet,
  notFoundComponent: NotFound,
});

const entryRoute = createRoute({
  getParentRoute: () => rootRoute,
  id: "entry",
  beforeLoad: () => {
    if (sessionStatus() === "signed-in") throw redirect({ to: "/sandboxes" });
  },
});
const signInRoute = createRoute({
  getParentRoute: () => entryRoute,
  path: "/sign-in",
  validateSearch: texts("next"),
  component: SignIn,
});
const createAccountRoute = createRoute({
  getParentRoute: () => entryRoute,
  path: "/create-account",
  component: lazyRouteComponent(() => import("./pages/create-account.tsx"), "CreateAccount"),
});
const forgotRoute = createRoute({
  getParentRoute: () => entryRoute,
  path: "/forgot-password",
  component: lazyRouteComponent(() => import("./pages/forgot-password.tsx"), "ForgotPassword"),
});

const shellRoute = createRoute({
  getParentRoute: () => rootRoute,
  id: "shell",
  beforeLoad: ({ location }) => {
    if (sessionStatus() === "signed-in") return;
    const next = location.href.replace(/^\/(sandboxes)?$/, "");
    throw redirect({ to: "/sign-in", search: next ? { next } : {} });
  },
  component: Shell,
});
const homeRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "/",
  beforeLoad: () => {
    throw redirect({ to: "/sandboxes", replace: true });
  },
});
const sandboxesRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "/sandboxes",
  validateSearch: texts("state", "name", "label", "cursor"),
  component: lazyRouteComponent(() => import("./pages/sandboxes.tsx"), "Sandboxes"),
});
const newSandboxRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "/sandboxes/new",
  validateSearch: texts("image", "like"),
  component: lazyRouteComponent(() => import("./pages/new-sandbox.tsx"), "NewSandbox"),
});
const sandboxRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "/sandboxes/$sandboxId",
  component: lazyRouteComponent(() => import("./pages/sandbox.tsx"), "SandboxPage"),
});
const overviewRoute = createRoute({
  getParentRoute: () => sandboxRoute,
  path: "/",
  component: lazyRouteComponent(() => import("./pages/overview.tsx"), "Overview"),
});

const logsRoute = createRoute({
  getParentRoute: () => sandboxRoute,
  path: "/logs",
  validateSearch: texts("stream", "q"),
  component: lazyRouteComponent(() => import("./pages/logs.tsx"), "Logs"),
});
const metricsRoute = createRoute({
  getParentRoute: () => sandboxRoute,
  path: "/metrics",
  validateSearch: texts("window"),
  component: lazyRouteComponent(() => import("./pages/metrics.tsx"), "Metrics"),
});
const terminalRoute = createRoute({
  getParentRoute: () => sandboxRoute,
  path: "/terminal",
  validateSearch: texts("process"),
  component: lazyRouteComponent(() => import("./pages/terminal.tsx"), "TerminalPage"),
});
const filesRoute = createRoute({
  getParentRoute: () => sandboxRoute,
  path: "/files",
  validateSearch: texts("path", "file", "cursor"),
  component: lazyRouteComponent(() => import("./pages/files.tsx"), "Files"),
});

const portsRoute = createRoute({
  getParentRoute: () => sandboxRoute,
  path: "/ports",
  component: lazyRouteComponent(() => import("./pages/ports.tsx"), "Ports"),
});
const imagesRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "/images",
  validateSearch: texts("cursor", "edit"),
  component: lazyRouteComponent(() => import("./pages/images.tsx"), "Images"),
});
const registriesRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "/registries",
  validateSearch: texts("cursor", "edit"),
  component: lazyRouteComponent(() => import("./pages/registries.tsx"), "Registries"),
});
const membersRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "/members",
  validateSearch: texts("cursor"),
  component: lazyRouteComponent(() => import("./pages/members.tsx"), "Members"),
});
const apiTokensRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "/api-tokens",
  validateSearch: texts("cursor"),
  component: lazyRouteComponent(() => import("./pages/api-tokens.tsx"), "ApiTokens"),
});
const auditLogRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "/audit-log",
  validateSearch: texts("cursor", "action", "actor", "since", "until"),
  component: lazyRouteComponent(() => import("./pages/audit-log.tsx"), "AuditLog"),
});
const settingsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "/settings",
  component: lazyRouteComponent(() => import("./pages/settings.tsx"), "Settings"),
});
const operatorsRoute = createRoute({
  getParentRoute: () => shellRoute,
  path: "/operators",
  validateSearch: texts("view", "cursor", "username", "action", "actor", "since", "until"),
  component: lazyRouteComponent(() => import("./pages/operators.tsx"), "Operators"),
});

const routeTree = rootRoute.addChildren([
  entryRoute.addChildren([signInRoute, createAccountRoute, forgotRoute]),
  shellRoute.addChildren([
    homeRoute,
    sandboxesRoute,
    newSandboxRoute,
    sandboxRoute.addChildren([overviewRoute, logsRoute, metricsRoute, terminalRoute, filesRoute, portsRoute]),
    imagesRoute,
    registriesRoute,
    membersRoute,
    apiTokensRoute,
    auditLogRoute,
    settingsRoute,
    operatorsRoute,
  ]),
]);

export const router = createRouter({
  routeTree,
  basepath: new URL(document.baseURI).pathname.replace(/\/$/, ""),
  defaultPreload: "intent",
  defaultPendingComponent: Loading,
  defaultErrorComponent: PageFailure,
  scrollRestoration: true,
  // Each field of an address is a text, without JSON's quotes.
  parseSearch: (search) => Object.fromEntries(new URLSearchParams(search)),
  stringifySearch: (search) => {
    const given = Object.entries(search).filter(([, value]) => value !== undefined && value !== "") as [
      string,
      string,
    ][];
    return given.length === 0 ? "" : `?${new URLSearchParams(given)}`;
  },
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
