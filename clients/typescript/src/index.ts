export type { Content } from "./bytes.ts";
export type { Command, CommandResult, Commands, RunOptions, StartOptions, StreamOptions } from "./commands.ts";
export * from "./errors.ts";
export type { FileChange, Files, FileWatch, Mode, ReadOptions, Stat, WriteOptions } from "./files.ts";
export type { CallOptions, CreateOptions } from "./http.ts";
export type { List, ListOptions, Page, Sequence } from "./list.ts";
export type { LogOptions, MetricOptions } from "./monitoring.ts";
export type { OpenPortOptions, Ports, TcpConnection } from "./ports.ts";
export type { CommandEvent, OutputBytes, OutputChunk, OutputStream, Process, ProcessEvent } from "./process.ts";
export type * from "./records.ts";
export type { AuditLogOptions } from "./resources.ts";
export {
  type CreateSandboxOptions,
  type ListSandboxesOptions,
  type ProvisionOptions,
  Sandbox,
  type Sandboxes,
} from "./sandbox.ts";
export { Sandgate } from "./sandgate.ts";
export { createSession } from "./session.ts";
export type { ClientOptions, TokenProvider } from "./settings.ts";
export type { CreateTerminalOptions, Terminal, TerminalOptions, Terminals } from "./terminals.ts";
