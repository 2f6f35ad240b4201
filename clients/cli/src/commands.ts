/** A command of the command line. */
export interface CommandModule {
  /** Returns the exit code. */
  run(args: readonly string[], signal: AbortSignal): Promise<number>;
}

interface CommandInfo {
  usage: string;
  summary: string;
  /** Loads what it needs, and no other's. */
  load(): Promise<CommandModule>;
}

/** Every command, by its name. */
export const commands: Record<string, CommandInfo> = {
  login: {
    usage: "login [--url URL] [--username EMAIL]",
    summary: "Sign in; a token is read from stdin when that is a pipe",
    load: () => import("./commands/login.ts").then(({ login }) => ({ run: login })),
  },
  logout: {
    usage: "logout",
    summary: "Sign out, and revoke the token of the login",
    load: () => import("./commands/login.ts").then(({ logout }) => ({ run: logout })),
  },
  whoami: {
    usage: "whoami",
    summary: "Show who is signed in, where, and in which workspace",
    load: () => import("./commands/login.ts").then(({ whoami }) => ({ run: whoami })),
  },
  workspaces: {
    usage: "workspaces [ls | use NAME]",
    summary: "List your workspaces, or choose one",
    load: () => import("./commands/workspaces.ts"),
  },
  images: {
    usage:
      "images [ls | add NAME REFERENCE [--memory MB] [--ttl TIME] [--port PORT] [--description TEXT] [--registry NAME] | rm NAME… | enable NAME… | disable NAME…]",
    summary: "Manage the images that sandboxes are made from",
    load: () => import("./commands/images.ts"),
  },
  registries: {
    usage: "registries [ls | add NAME URL --username NAME | rm NAME…]",
    summary: "Manage credentials of private registries; the password is asked for, or read from stdin",
    load: () => import("./commands/registries.ts"),
  },
  tokens: {
    usage: "tokens [ls | new DESCRIPTION [--days N] [--role ROLE] [--permission NAME]… [--bound] | revoke ID…]",
    summary: "Manage your API tokens",
    load: () => import("./commands/tokens.ts"),
  },
  run: {
    usage:
      "run IMAGE [--name NAME] [--label KEY=VALUE]… [--ttl TIME] [--rm] [-it] [--env KEY=VALUE]… [--port PORT]… [-- COMMAND…]",
    summary: "Make a sandbox, and run a command in it",
    load: () => import("./commands/run.ts"),
  },
  ps: {
    usage: "ps [-a] [-q] [--label KEY=VALUE]… [--state STATE]",
    summary: "List sandboxes: those that live, or all",
    load: () => import("./commands/ps.ts"),
  },
  exec: {
    usage: "exec [-it] [-w FOLDER] [-e KEY=VALUE]… [-u USER] SANDBOX [--] COMMAND…",
    summary: "Run a command in a sandbox",
    load: () => import("./commands/exec.ts").then(({ exec }) => ({ run: exec })),
  },
  shell: {
    usage: "shell [-w FOLDER] [-e KEY=VALUE]… [-u USER] SANDBOX",
    summary: "Open a terminal in a sandbox",
    load: () => import("./commands/exec.ts").then(({ shell }) => ({ run: shell })),
  },
  cp: {
    usage: "cp [-r] SANDBOX:PATH LOCAL | cp [-r] LOCAL SANDBOX:PATH",
    summary: "Copy files out of a sandbox or into one; - is stdin or stdout",
    load: () => import("./commands/cp.ts"),
  },
  logs: {
    usage: "logs [-f] [--since TIME] [--stream stdout|stderr] SANDBOX",
    summary: "Show a sandbox's logs",
    load: () => import("./commands/logs.ts").then(({ logs }) => ({ run: logs })),
  },
  stats: {
    usage: "stats [--watch] SANDBOX",
    summary: "Show a sandbox's use of CPU and memory",
    load: () => import("./commands/logs.ts").then(({ stats }) => ({ run: stats })),
  },
  port: {
    usage: "port SANDBOX PORT [--public] [--open] [--ttl TIME]",
    summary: "Open a port of a sandbox at an address of its own",
    load: () => import("./commands/ports.ts").then(({ port }) => ({ run: port })),
  },
  forward: {
    usage: "forward SANDBOX [LOCAL:]PORT",
    summary: "Forward a local TCP port to one of a sandbox",
    load: () => import("./commands/ports.ts").then(({ forward }) => ({ run: forward })),
  },
  extend: {
    usage: "extend SANDBOX TIME [--shorten]",
    summary: "Let a sandbox live for so long from now",
    load: () => import("./commands/life.ts").then(({ extend }) => ({ run: extend })),
  },
  stop: {
    usage: "stop SANDBOX…",
    summary: "Stop sandboxes",
    load: () => import("./commands/life.ts").then(({ stop }) => ({ run: stop })),
  },
  audit: {
    usage: "audit [--action NAME] [--actor ID] [--since TIME] [--until TIME] [--limit N]",
    summary: "Show the audit log of the workspace, newest first",
    load: () => import("./commands/audit.ts"),
  },
  completion: {
    usage: "completion bash|zsh|fish",
    summary: "Print a script by which the shell completes commands",
    load: () => import("./commands/completion.ts"),
  },
  mcp: {
    usage: "mcp",
    summary: "Serve the Model Context Protocol on stdin and stdout, for AI agents",
    load: () => import("./commands/mcp.ts"),
  },
};
