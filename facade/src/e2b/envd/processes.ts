import type { MessageInitShape } from "@bufbuild/protobuf";
import { Code, ConnectError, type HandlerContext, type ServiceImpl } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { createFairLimit } from "@sandgate/kit/base/fair-limit";
import {
  type OutputEvent,
  OutputStream,
  type Process as ProcessRecord,
  ProcessState,
} from "@sandgate/proto/helper/v1/process";
import { type CommandSchema, ProcessService } from "@sandgate/proto/sandbox/v1/processes";
import type { Clients } from "../../pipeline/base/clients.ts";
import type { RouteRules } from "../../pipeline/base/route-rules.ts";
import { present } from "../../pipeline/messages/contract.ts";
import { inputTimeoutMs, writeAll } from "../../resources/processes/input.ts";
import { outputBrokeOff } from "../../resources/processes/output.ts";
import type {
  Process,
  ProcessEventSchema,
  ProcessInput,
  ProcessSelector,
  PTY,
  StartRequest,
} from "../gen/process_pb.ts";
import { userOf } from "./access.ts";
import { type EnvdCall, envdCallOf, optionsFor, pingMsOf, timeoutOf } from "./calls.ts";
import type { Folders } from "./folders.ts";
import { keepAlive } from "./keep-alive.ts";
import { toEnd } from "./process-ends.ts";

const { method: rpc } = ProcessService;

/** What each call does. */
export const processRules: Readonly<Record<string, RouteRules>> = {
  "Process.List": { rpc: rpc.listProcesses, audit: "process.list" },
  "Process.Start": { rpc: rpc.runCommand, audit: "process.start" },
  "Process.Connect": { rpc: rpc.readOutput, audit: "process.read" },
  "Process.Update": { rpc: rpc.resizeTerminal, audit: "process.write" },
  "Process.SendInput": { rpc: rpc.writeStdin, audit: "process.write" },
  "Process.StreamInput": { rpc: rpc.writeStdin, audit: "process.write" },
  "Process.CloseStdin": { rpc: rpc.writeStdin, audit: "process.write" },
  "Process.SendSignal": { rpc: rpc.signalProcess, audit: "process.signal" },
};

const bash = "/bin/bash";
const shell = "/bin/sh";

type Command = MessageInitShape<typeof CommandSchema>;
type Event = MessageInitShape<typeof ProcessEventSchema>;

/** Commands and terminals as E2B's envd has them. */
export function createProcessHandlers(o: {
  clients: Pick<Clients, "processes">;
  folders: Folders;
}): ServiceImpl<typeof Process> {
  const { processes } = o.clients;
  /** One input of a process at a time in this facade, so that each arrives in one piece. */
  const inTurn = createFairLimit({ perKey: 1 });

  /** The running process that a request names. */
  async function find(selector: ProcessSelector | undefined, context: HandlerContext): Promise<ProcessRecord> {
    const { sandbox } = envdCallOf(context);
    const { case: by, value } = selector?.selector ?? {};
    if (by === undefined) throw new ConnectError("process: a pid or a tag is needed", Code.InvalidArgument);
    const wanted = by === "pid" ? { pid: Math.min(Number(value), 2 ** 31 - 1) } : { tag: String(value).slice(0, 255) };
    const { processes: found } = await processes.listProcesses(
      { sandbox, states: [ProcessState.RUNNING], ...wanted },
      optionsFor(context),
    );
    // The newest with a tag.
    const process = found.at(-1);
    if (!process || (by === "pid" ? value === 0 : value === "")) {
      throw new ConnectError(`no process with ${by} ${value} runs`, Code.NotFound);
    }
    return process;
  }

  /** Starts a command, and follows it. As long as it has not begun, another is tried for what the image lacks. */
  async function* run(
    command: Command,
    call: EnvdCall,
    context: HandlerContext,
    impliedFolder: boolean,
  ): AsyncGenerator<OutputEvent> {
    let begun = false;
    try {
      const request = { sandbox: call.sandbox, command, continueOnDisconnect: true };
      for await (const { event } of processes.runCommand(request, optionsFor(context, { timeoutMs: 0 }))) {
        if (!event) continue;
        const [program, ...args] = command.argv ?? [];
        if (event.event.case === "start" && event.event.value.pid === 0 && program === bash) {
          return yield* run({ ...command, argv: [shell, ...args] }, call, context, impliedFolder);
        }
        begun = true;
        yield event;
      }
    } catch (error) {
      if (begun || !(error instanceof DomainError)) throw error;
      const isOfFolder = error.violations?.some(({ field }) => field === "command.cwd");
      if (!impliedFolder || !isOfFolder) throw error;
      yield* run({ ...command, cwd: "/" }, call, context, false);
    }
  }

  async function* toEvents(events: AsyncGenerator<OutputEvent>): AsyncGenerator<Event> {
    for await (const { event } of events) {
      if (event.case === "start") yield { event: { case: "start", value: { pid: event.value.pid } } };
      if (event.case === "output") yield { event: { case: "data", value: { output: toOutput(event.value) } } };
      if (event.case === "gapBytes") throw new ConnectError("output was lost: it was not read in time", Code.DataLoss);
      if (event.case !== "exit") continue;
      if (event.value.timedOut) throw new ConnectError("the process ran for as long as it may", Code.DeadlineExceeded);
      yield { event: { case: "end", value: toEnd(event.value) } };
      return;
    }
    throw outputBrokeOff();
  }

  async function write(
    selector: ProcessSelector | undefined,
    input: ProcessInput | undefined,
    context: HandlerContext,
  ): Promise<void> {
    const process = await find(selector, context);
    const { case: kind, value } = input?.input ?? {};
    if (value === undefined) throw new ConnectError("input: stdin or pty is needed", Code.InvalidArgument);
    if ((kind === "pty") !== (process.terminal !== undefined)) {
      const has = process.terminal ? "a terminal" : "no terminal";
      throw new ConnectError(`the process has ${has}`, Code.FailedPrecondition);
    }
    const { sandbox } = envdCallOf(context);
    await inTurn(`${sandbox} ${process.id}`, () => add(process, value, context), context.signal);
  }

  /** Writes after what others have written. */
  async function add(
    { id: processId, stdinOpen }: ProcessRecord,
    data: Uint8Array,
    context: HandlerContext,
  ): Promise<void> {
    if (!stdinOpen) throw new ConnectError("stdin is not open", Code.FailedPrecondition);
    const { sandbox } = envdCallOf(context);
    const addPart = (part: Uint8Array) =>
      processes.writeStdin({ sandbox, processId, data: part }, optionsFor(context, { timeoutMs: inputTimeoutMs }));
    const { offset: known } = await addPart(new Uint8Array());
    const { closed } = await writeAll(addPart, data, false, known);
    if (closed) throw new ConnectError("stdin was closed", Code.FailedPrecondition);
  }

  return {
    async list(_request, context) {
      const { sandbox } = envdCallOf(context);
      const { processes: running } = await processes.listProcesses(
        { sandbox, states: [ProcessState.RUNNING] },
        optionsFor(context),
      );
      return { processes: running.map(toInfo) };
    },

    async *start(request, context) {
      const call = envdCallOf(context);
      const { process: config } = request;
      if (!config?.cmd) throw new ConnectError("process.cmd: a program is needed", Code.InvalidArgument);
      const given = config.cwd ?? "";
      const { user, path: cwd } = await o.folders.find(call.sandbox, userOf(call.request), given, optionsFor(context));
      const command = toCommand(request, { cwd, user, timeoutMs: timeoutOf(call) });
      const events = toEvents(run(command, call, context, given === ""));
      for await (const event of withPings(events, call)) yield { event };
    },

    async *connect({ process: selector }, context) {
      const call = envdCallOf(context);
      const { id: processId, pid, outputBytes: after } = await find(selector, context);
      yield { event: { event: { case: "start", value: { pid } } } };
      const output = processes.readOutput(
        { sandbox: call.sandbox, processId, after, follow: true },
        optionsFor(context, { timeoutMs: 0 }),
      );
      for await (const event of withPings(toEvents(fromNowOn(output)), call)) yield { event };
    },

    async update({ process: selector, pty }, context) {
      const { id: processId } = await find(selector, context);
      const terminal = toTerminal(pty);
      if (!terminal) throw new ConnectError("pty.size is needed", Code.InvalidArgument);
      await processes.resizeTerminal(
        { sandbox: envdCallOf(context).sandbox, processId, terminal },
        optionsFor(context),
      );
      return {};
    },

    async sendInput({ process: selector, input }, context) {
      await write(selector, input, context);
      return {};
    },

    async streamInput(messages, context) {
      let selector: ProcessSelector | undefined;
      for await (const { event } of messages) {
        if (event.case === "start") selector = event.value.process;
        if (event.case === "data") await write(selector, event.value.input, context);
      }
      return {};
    },

    async closeStdin({ process: selector }, context) {
      const { id: processId, stdinOpen } = await find(selector, context);
      if (!stdinOpen) throw new ConnectError("stdin is not open", Code.FailedPrecondition);
      const { sandbox } = envdCallOf(context);
      const close = () =>
        processes.writeStdin({ sandbox, processId, eof: true }, optionsFor(context, { timeoutMs: inputTimeoutMs }));
      await inTurn(`${sandbox} ${processId}`, close, context.signal);
      return {};
    },

    async sendSignal({ process: selector, signal }, context) {
      const { id: processId } = await find(selector, context);
      if (signal === 0) throw new ConnectError("signal is needed", Code.InvalidArgument);
      await processes.signalProcess({ sandbox: envdCallOf(context).sandbox, processId, signal }, optionsFor(context));
      return {};
    },
  };
}

function withPings(events: AsyncGenerator<Event>, call: EnvdCall): AsyncGenerator<Event> {
  return keepAlive(events, pingMsOf(call), () => ({ event: { case: "keepalive", value: {} } }));
}

/** Of output that came before it is first read, none is missed. */
async function* fromNowOn(messages: AsyncIterable<{ event?: OutputEvent | undefined }>): AsyncGenerator<OutputEvent> {
  let begun = false;
  for await (const { event } of messages) {
    if (!event || (!begun && event.event.case === "gapBytes")) continue;
    begun = true;
    yield event;
  }
}

function toCommand(
  { process: config, pty, stdin, tag = "" }: StartRequest,
  o: { cwd: string; user: string; timeoutMs: number | undefined },
): Command {
  const { cmd, args, envs } = present(config);
  const terminal = toTerminal(pty);
  return {
    argv: [cmd, ...args],
    env: envs,
    cwd: o.cwd,
    user: o.user,
    tag,
    stdinOpen: stdin ?? true,
    // One of 0 is over before it begins, which is found before this.
    timeoutMs: BigInt(o.timeoutMs ?? 0),
    ...(terminal && { terminal }),
  };
}

function toTerminal(pty: PTY | undefined): { cols: number; rows: number } | undefined {
  return pty && { cols: pty.size?.cols ?? 0, rows: pty.size?.rows ?? 0 };
}

function toOutput({ stream, data }: { stream: OutputStream; data: Uint8Array }) {
  if (stream === OutputStream.STDERR) return { case: "stderr" as const, value: data };
  return { case: stream === OutputStream.TERMINAL ? ("pty" as const) : ("stdout" as const), value: data };
}

function toInfo({ argv, shell: script, cwd, pid, tag }: ProcessRecord) {
  const [cmd = shell, ...args] = argv.length > 0 ? argv : [shell, "-c", script];
  return { config: { cmd, args, cwd }, pid, ...(tag !== "" && { tag }) };
}
