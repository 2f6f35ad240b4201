import { constants } from "node:os";
import { DomainError, type Violation } from "@sandgate/kit/base/domain-error";
import { isUuid } from "@sandgate/kit/base/ids";
import { ProcessSchema, ProcessState } from "@sandgate/proto/helper/v1/process";
import type { Static } from "typebox";
import { present } from "../../pipeline/messages/contract.ts";
import { createMapper } from "../../pipeline/messages/mapper.ts";
import { sandboxIdOf } from "../sandboxes/mapping.ts";
import * as schemas from "./schemas.ts";

/** Of `stdin`; the contract's too. */
const maxStdinBytes = 512 * 1024;
/** RFC 4648, 4. */
const base64Pattern = /^[A-Za-z0-9+/]*={0,2}$/;

/** Nobody's. */
const noProcess = "00000000-0000-0000-0000-000000000000";

/** The sandbox and the process of a path as the contract accepts them. The service says whether they exist. */
export function idsOf(params: { sandbox_id: string; process_id: string }): { sandbox: string; processId: string } {
  const { sandbox_id: sandbox, process_id: id } = params;
  return { sandbox: sandboxIdOf(sandbox), processId: isUuid(id) ? id.toLowerCase() : noProcess };
}

const states: Record<schemas.ProcessState, ProcessState> = {
  running: ProcessState.RUNNING,
  exited: ProcessState.EXITED,
  lost: ProcessState.LOST,
};

/** The states in a comma-separated list that matches its schema. */
export function fromStateNames(names: string | undefined): ProcessState[] {
  const wanted = new Set(names?.split(","));
  return schemas.processStates.filter((name) => wanted.has(name)).map((name) => states[name]);
}

const signalNumbers: ReadonlyMap<string, number> = new Map([
  ...Object.entries(constants.signals),
  ...Array.from({ length: 31 }, (_, i): [string, number] => [i === 0 ? "SIGRTMIN" : `SIGRTMIN+${i}`, 34 + i]),
]);
// SIGABRT has the older name SIGIOT, and SIGIO the name SIGPOLL: the first of each is shown.
const signalNames: ReadonlyMap<number, string> = new Map(
  [...signalNumbers].toReversed().map(([name, number]) => [number, name]),
);

/** The number of a signal by its name, with or without SIG. Throws VALIDATION_ERROR for any other text. */
export function fromSignalName(name: string): number {
  const number = signalNumbers.get(name) ?? signalNumbers.get(`SIG${name}`);
  if (number !== undefined) return number;
  const violations = [{ field: "body.signal", issue: "must be the name of a signal, like SIGTERM" }];
  throw new DomainError("VALIDATION_ERROR", "body.signal must be the name of a signal, like SIGTERM.", { violations });
}

function toSignalName(number: number): string | null {
  return number === 0 ? null : (signalNames.get(number) ?? `SIG${number}`);
}

export const toProcess = createMapper(ProcessSchema, schemas.Process, {
  pid: ({ pid }) => (pid === 0 ? null : pid),
  command: ({ argv, shell }) => (argv.length > 0 ? argv : shell),
  pty: ({ terminal }) => (terminal ? { cols: terminal.cols, rows: terminal.rows } : null),
  state: ({ state }) => present(schemas.processStates.find((name) => states[name] === state)),
  signal: ({ signal }) => toSignalName(signal),
  output_bytes: ({ outputBytes }) => Number(outputBytes),
  retained_from: ({ retainedFrom }) => Number(retainedFrom),
});

type CommandBody = Omit<Static<typeof schemas.StartBody>, "pty" | "stdin_open">;

/** The message of what the bodies of exec and of processes have in common. */
export function fromCommand(body: CommandBody) {
  const { command, cwd = "", env = {}, user = "", tag = "", stdin = "", encoding } = body;
  return {
    argv: typeof command === "string" ? [] : command,
    shell: typeof command === "string" ? command : "",
    cwd,
    env,
    user,
    tag,
    stdin: Buffer.from(stdin, encoding),
  };
}

/** What a schema can't say of a command. The fields may be of any type. */
export function checkCommand(body: unknown): Violation[] {
  if (typeof body !== "object" || body === null) return [];
  const { command, stdin, encoding }: Partial<Record<string, unknown>> = { ...body };
  const violations: Violation[] = [];
  if (Array.isArray(command) && command[0] === "") {
    violations.push({ field: "body.command", issue: "must name a program" });
  }
  if (typeof stdin !== "string") return violations;
  const isBase64 = encoding === "base64";
  if (isBase64 && (stdin.length % 4 !== 0 || !base64Pattern.test(stdin))) {
    violations.push({ field: "body.stdin", issue: "must be base64 (RFC 4648, 4)" });
  } else if (Buffer.byteLength(stdin, isBase64 ? "base64" : "utf8") > maxStdinBytes) {
    violations.push({ field: "body.stdin", issue: `must not be larger than ${maxStdinBytes / 1024} KiB` });
  }
  return violations;
}

/** The names of fields that differ in public. */
const publicNames: Partial<Record<string, string>> = { argv: "command", shell: "command", terminal: "pty" };

/** The error with the fields of a command as the body has them. */
export function toBodyError(error: unknown): unknown {
  if (!(error instanceof DomainError) || !error.violations) return error;
  const violations = error.violations.map(({ field, issue }) => {
    const [head, name = "", ...rest] = field.split(/[.[]/);
    if (head !== "command") return { field, issue };
    // Of a list or a map the service names an item.
    const inTerminal = name === "terminal" ? rest : [];
    return { field: ["body", publicNames[name] ?? name, ...inTerminal].join("."), issue };
  });
  return new DomainError(error.reason, error.message, { violations, hint: error.hint, cause: error });
}
