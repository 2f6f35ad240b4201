import {
  CommandSchema,
  ListProcessesRequestSchema,
  ReadOutputRequestSchema,
  RunCommandRequestSchema,
  TerminalSchema,
  WaitProcessRequestSchema,
} from "@sandgate/proto/sandbox/v1/processes";
import { Type } from "typebox";
import {
  component,
  Id,
  idempotencyHeaders,
  Moment,
  NullableMoment,
  NullableText,
  nullable,
  readOnly,
  WorkspaceHeaders,
} from "../../pipeline/validation/common-schemas.ts";
import { fieldSchema } from "../../pipeline/validation/field-schema.ts";
import { SandboxParams } from "../sandboxes/schemas.ts";

const noNul = { "x-issue": "must not contain a NUL" };
const text = { type: "string", pattern: "^[^\\x00]*$", ...noNul };

const CommandLine = {
  type: ["string", "array"],
  pattern: text.pattern,
  ...noNul,
  minLength: 1,
  minItems: 1,
  maxItems: 4096,
  items: text,
};
const commandLine = Type.Unsafe<string | string[]>({
  ...CommandLine,
  description: "The program and its arguments, or a text for `/bin/sh -c`.",
});
const encodings = ["utf8", "base64"] as const;
export type Encoding = (typeof encodings)[number];
const encoding = (description: string) =>
  Type.Unsafe<Encoding>({ title: "Encoding", type: "string", enum: [...encodings], description });

export const Terminal = component("Terminal", {
  cols: fieldSchema(TerminalSchema, "cols"),
  rows: fieldSchema(TerminalSchema, "rows"),
});

const command = {
  command: commandLine,
  cwd: Type.Optional(
    fieldSchema(CommandSchema, "cwd", {
      ...noNul,
      description: "The image's folder by default, to which it is relative.",
    }),
  ),
  env: Type.Optional(fieldSchema(CommandSchema, "env", { description: "Added to the sandbox's environment." })),
  user: Type.Optional(
    fieldSchema(CommandSchema, "user", {
      ...noNul,
      description: "A name, `uid` or `uid:gid`. The image's user by default.",
    }),
  ),
  tag: Type.Optional(fieldSchema(CommandSchema, "tag", { description: "To find it by." })),
  stdin: Type.Optional(Type.String({ description: "What it reads, 512 KiB at most, in `encoding`." })),
};
const timeoutSeconds = (description: string) =>
  Type.Optional(fieldSchema(CommandSchema, "timeout_seconds", { minimum: 1, description }));

export const ExecBody = component(
  "ExecCommand",
  {
    ...command,
    timeout_seconds: timeoutSeconds(
      "60 by default. Then the whole tree gets SIGTERM, and SIGKILL 2 s later. 240 at most unless events are asked for.",
    ),
    max_output_bytes: Type.Optional(
      fieldSchema(RunCommandRequestSchema, "max_output_bytes", {
        minimum: 1,
        description: "Of each of stdout and stderr so many first bytes are sent: 1 MiB by default, all as events.",
      }),
    ),
    encoding: Type.Optional(encoding("Of `stdin` and of the output; `utf8` by default.")),
    on_disconnect: Type.Optional(
      Type.Unsafe<"kill" | "continue">({
        type: "string",
        enum: ["kill", "continue"],
        description: "What happens to the command when the client leaves: `kill` by default.",
      }),
    ),
  },
  { command: ["sh", "-c", "echo hello"], timeout_seconds: 60 },
);
export const StartBody = component(
  "StartProcess",
  {
    ...command,
    stdin_open: Type.Optional(
      Type.Boolean({
        description: "`stdin` stays open after what the command brings along. A terminal's always does.",
      }),
    ),
    timeout_seconds: timeoutSeconds("None by default. Then the whole tree gets SIGTERM, and SIGKILL 2 s later."),
    encoding: Type.Optional(encoding("Of `stdin`; `utf8` by default.")),
    pty: Type.Optional(Terminal),
  },
  { command: ["bash"], pty: { cols: 80, rows: 24 } },
);

export const StartHeaders = Type.Object({
  ...WorkspaceHeaders.properties,
  ...idempotencyHeaders(
    "A repeated request with the same key and the same body finds the process that the first one started, while the sandbox lives and is used with 50,000 later keys at most; a conflict if 1,000 others have ended since that process did. The sandbox remembers the keys: when a program in it kills Sandgate's helper there, they are forgotten with all that ran, and a repeated request runs again.",
  ).properties,
});
export const ExecHeaders = Type.Object({
  ...StartHeaders.properties,
  accept: Type.Optional(Type.String({ description: "`text/event-stream` for events." })),
});
export const OutputHeaders = Type.Object({
  ...WorkspaceHeaders.properties,
  accept: ExecHeaders.properties.accept,
  "last-event-id": Type.Optional(
    Type.String({ pattern: "^[0-9]{1,15}$", "x-issue": "must be an id of this stream", description: "Is `after`." }),
  ),
});

export const ProcessParams = Type.Object({
  ...SandboxParams.properties,
  process_id: Type.String({ description: "The `id` of the process." }),
});
export const processStates = ["running", "exited", "lost"] as const;
export type ProcessState = (typeof processStates)[number];
const State = Type.Unsafe<ProcessState>({
  title: "ProcessState",
  type: "string",
  enum: [...processStates],
  description: "`lost`: somebody in the sandbox killed what watched it, so how it ended is unknown.",
});
const anyState = processStates.join("|");
export const ProcessQuery = Type.Object({
  state: Type.Optional(
    Type.String({
      pattern: `^(?:${anyState})(?:,(?:${anyState}))*$`,
      "x-issue": `must be a comma-separated list of ${processStates.join(", ")}`,
      description: `A comma-separated list of ${processStates.join(", ")}.`,
    }),
  ),
  tag: Type.Optional(fieldSchema(ListProcessesRequestSchema, "tag")),
});

const record = {
  id: Id,
  pid: readOnly(nullable(Type.Integer({ description: "In the sandbox. Null when the program could not be started." }))),
  // In this order: the serializer takes a list for a text.
  command: Type.Unsafe<string | string[]>({ type: ["array", "string"], items: { type: "string" } }),
  cwd: Type.String(),
  user: nullable(Type.String({ description: "Null: the image's." })),
  tag: NullableText,
  pty: Type.Unsafe<{ cols: number; rows: number } | null>({ ...Terminal, type: ["object", "null"] }),
  state: readOnly(State),
  exit_code: readOnly(
    nullable(
      Type.Integer({ description: "128 plus the signal's number for one that a signal ended. Null while it runs." }),
    ),
  ),
  signal: readOnly(
    nullable(Type.String({ description: "The name of the signal that ended it.", examples: ["SIGKILL"] })),
  ),
  timed_out: readOnly(Type.Boolean()),
  stdin_open: Type.Boolean(),
  output_bytes: readOnly(Type.Integer({ description: "Bytes of output so far." })),
  retained_from: readOnly(Type.Integer({ description: "Output before this byte is gone." })),
  started_at: Moment,
  ended_at: NullableMoment,
};
export const Process = component("Process", record);
export const ProcessList = component("ProcessList", { processes: Type.Array(Process) });
export const ExecResult = component("ExecResult", {
  ...record,
  stdout: Type.String(),
  stderr: Type.String(),
  stdout_truncated: Type.Boolean(),
  stderr_truncated: Type.Boolean(),
  encoding: encoding("Of the output."),
});

export const WaitBody = component(
  "WaitForProcess",
  {
    timeout_seconds: Type.Optional(
      fieldSchema(WaitProcessRequestSchema, "timeout_seconds", { description: "60 by default." }),
    ),
  },
  { timeout_seconds: 60 },
);

const offset = (description: string) => Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER, description });
const after = Type.Optional(offset("Bytes of output to skip. By default all that is kept comes."));
export const OutputQuery = Type.Object({
  after,
  wait_seconds: Type.Optional(
    fieldSchema(ReadOutputRequestSchema, "wait_seconds", { description: "How long to wait for output; 0 by default." }),
  ),
  encoding: Type.Optional(
    encoding(
      "Of all output. By default output is `utf8`, and `base64` where it is no valid UTF-8, so nothing is lost.",
    ),
  ),
});
export const AttachQuery = Type.Object({
  after,
  ticket: Type.Optional(
    Type.String({ maxLength: 4096, description: "Instead of a bearer token, which browsers can't send here." }),
  ),
});
export const streams = ["stdout", "stderr", "pty"] as const;
const OutputEvent = component("OutputEvent", {
  type: Type.Unsafe<"output" | "gap">({ type: "string", enum: ["output", "gap"] }),
  id: Type.Integer({ description: "Bytes of output up to and with this one." }),
  stream: Type.Optional(Type.Unsafe<(typeof streams)[number]>({ type: "string", enum: [...streams] })),
  data: Type.Optional(Type.String()),
  encoding: Type.Optional(encoding("Of `data`.")),
  bytes: Type.Optional(Type.Integer({ description: "Of a gap: so many are gone." })),
});
export const ProcessOutput = component("ProcessOutput", {
  events: Type.Array(OutputEvent),
  next: Type.Integer({ description: "`after` of the next request." }),
  process: Process,
});

export const InputQuery = Type.Object({
  offset: Type.Optional(
    offset(
      "Bytes of input before these. What was taken before is not written again. By default after all that was taken.",
    ),
  ),
  eof: Type.Optional(
    Type.Boolean({ description: "The input ends after these bytes. In a terminal: Ctrl-D is typed." }),
  ),
});
export const TakenInput = component("TakenInput", {
  offset: Type.Integer({ description: "Bytes of input taken so far." }),
  closed: Type.Boolean(),
});
export const SignalBody = component(
  "SignalProcess",
  { signal: Type.String({ description: "The name of a signal of Linux, with or without SIG." }) },
  { signal: "SIGTERM" },
);
export const Ticket = component("Ticket", { ticket: Type.String(), expires_at: Moment });
