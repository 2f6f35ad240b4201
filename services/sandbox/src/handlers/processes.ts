import { create, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import { type Client, createClient, type HandlerContext, type ServiceImpl } from "@connectrpc/connect";
import type { AuditAction } from "@sandgate/kit/base/audit-actions";
import { callOf, waitTimeOf } from "@sandgate/kit/rpc/context";
import {
  type CommandSchema as HelperCommandSchema,
  ProcessService as HelperProcessService,
  type OutputEvent,
  OutputEventSchema,
  type Process,
  ProcessState,
} from "@sandgate/proto/helper/v1/process";
import {
  type Command,
  type ProcessService,
  RunCommandRequestSchema,
  StartProcessRequestSchema,
} from "@sandgate/proto/sandbox/v1/processes";
import { LRUCache } from "lru-cache";
import { programOf } from "../domain/audited-uses.ts";
import { checkCommand } from "../domain/commands.ts";
import type { HelperConnections } from "../operations/helper-connections.ts";
import { isConnectionLost, processEnded } from "../operations/helper-errors.ts";
import { boundProcess } from "../operations/helper-processes.ts";
import { type KnownProcesses, toLost } from "../operations/known-processes.ts";
import { processIdOf } from "../operations/process-ids.ts";
import {
  auditedStream,
  type HelperUse,
  type SandboxHelper,
  type SandboxHelpers,
} from "../operations/sandbox-helpers.ts";

/** A terminal that nobody is connected to for so long ends. */
const hangupAfterMs = 3_600_000n;
/** For a call that doesn't wait for the process. */
const callMs = 10_000;
const endGraceMs = 5_000;
const stdinMs = 30_000;
const maxReadBytes = 1_048_576n;
/** Processes whose programs are remembered for the audit log. */
const maxPrograms = 10_000;

export interface ProcessHandlersContext {
  helpers: SandboxHelpers;
  connections: HelperConnections;
  known: KnownProcesses;
}

/** What answers for commands and terminals. */
export function createProcessHandlers(
  o: ProcessHandlersContext,
): Omit<ServiceImpl<typeof ProcessService>, "createTicket" | "openTicket"> {
  const { helpers, known } = o;
  const uses = createProcessUses();

  /** Runs work with the helper's client, and what is known of a process that is no longer there. */
  function call<T>(context: HandlerContext, idOrName: string, work: (used: Used) => Promise<T>): Promise<T> {
    return helpers.call(context, idOrName, (helper) => work(use(helper)));
  }

  function use(helper: SandboxHelper): Used {
    const { sandbox, info } = helper;
    return {
      ...helper,
      client: createClient(HelperProcessService, helper.transport),
      within: (ms) => ({ signal: helper.signal, timeoutMs: ms }),
      note(told, id) {
        const process = boundProcess(told, id);
        known.note(sandbox.id, info.instanceId, process);
        return process;
      },
      findLost: (id) => known.findLost(sandbox.id, info.instanceId).find((process) => process.id === id),
    };
  }

  /**
   * Passes on the events of a process, for which it calls the helper once they are read: a call begins at once, and one
   * whose answer nobody reads could end the program with its error. When the helper is killed meanwhile, an `exit` says
   * that the process is lost.
   */
  async function* follow<E extends Message & { event?: OutputEvent | undefined }>(
    used: Used,
    processId: string,
    open: () => AsyncIterable<E>,
  ): AsyncGenerator<Omit<E, keyof Message> | { event: OutputEvent }> {
    let last: Process | undefined;
    let offset = 0n;
    try {
      for await (const message of open()) {
        const { event, offset: at } = message.event ?? { event: undefined, offset: 0n };
        if (event?.case === "start" || event?.case === "exit") last = used.note(event.value, processId);
        offset = at;
        const { $typeName: _, $unknown: __, ...plain } = message;
        yield plain;
      }
    } catch (error) {
      if (used.signal.aborted || !isConnectionLost(error)) throw error;
      const { info } = await o.connections.open(used.sandbox.id, used.signal);
      if (info.instanceId === used.info.instanceId) throw error;
      const lost = known.findLost(used.sandbox.id, info.instanceId).find(({ id }) => id === processId);
      const process = lost ?? (last && toLost(last));
      if (!process) throw error;
      yield { event: create(OutputEventSchema, { offset, event: { case: "exit", value: process } }) };
    }
  }

  return {
    async *runCommand(request, context) {
      const command = requireGiven(request.command);
      yield* helpers.stream(context, request.sandbox, async function* (helper) {
        const used = use(helper);
        const { sandbox, client, signal } = used;
        const normal = { ...request, sandbox: sandbox.id };
        const { id, key } = processIdOf(callOf(context), sandbox.id, RunCommandRequestSchema, normal);
        const run = {
          id,
          key,
          command: toHelperCommand(command),
          endOnDisconnect: !request.continueOnDisconnect,
          maxOutputBytes: BigInt(request.maxOutputBytes),
        };
        const events = follow(used, id, () => client.run(run, { signal, timeoutMs: 0 }));
        yield* auditedStream(used, uses.start("sandbox.exec", id, command), events);
      });
    },

    startProcess(request, context) {
      const command = requireGiven(request.command);
      return call(context, request.sandbox, async (used) => {
        const { sandbox, client, within, audited } = used;
        const normal = { ...request, sandbox: sandbox.id };
        const { id, key } = processIdOf(callOf(context), sandbox.id, StartProcessRequestSchema, normal);
        const toStart = { id, key, command: toHelperCommand(command) };
        const { process } = await audited(uses.start("process.start", id, command), () =>
          client.start(toStart, within(callMs)),
        );
        return { process: used.note(process, id) };
      });
    },

    getProcess({ sandbox, processId }, context) {
      return call(context, sandbox, async ({ client, within, note, findLost }) => {
        const lost = findLost(processId);
        if (lost) return { process: lost };
        const { process } = await client.getProcess({ id: processId }, within(callMs));
        return { process: note(process, processId) };
      });
    },

    listProcesses({ sandbox, states, tag, pid }, context) {
      return call(context, sandbox, async ({ client, within, note, info, sandbox: { id } }) => {
        const { processes } = await client.listProcesses({}, within(callMs));
        for (const process of processes) note(process);
        const all = [...known.findLost(id, info.instanceId), ...processes];
        const wanted = all.filter(
          (process) =>
            (states.length === 0 || states.includes(process.state)) &&
            (tag === "" || process.tag === tag) &&
            (pid === 0 || process.pid === pid),
        );
        return { processes: wanted };
      });
    },

    waitProcess({ sandbox, processId, timeoutSeconds }, context) {
      return call(context, sandbox, async ({ client, within, note, findLost }) => {
        const lost = findLost(processId);
        if (lost) return { process: lost };
        const waitMs = waitTimeOf(context, timeoutSeconds);
        const { process } = await client.wait(
          { id: processId, timeoutMs: BigInt(Math.floor(waitMs)) },
          within(waitMs + callMs),
        );
        return { process: note(process, processId) };
      });
    },

    async *readOutput({ sandbox, processId, after, follow: follows, waitSeconds }, context) {
      yield* helpers.stream(context, sandbox, async function* (helper) {
        const used = use(helper);
        const lost = used.findLost(processId);
        if (lost) {
          yield { event: create(OutputEventSchema, { offset: after, event: { case: "exit", value: lost } }) };
          return;
        }
        const limits = follows ? {} : { waitMs: BigInt(waitSeconds * 1000), maxBytes: maxReadBytes };
        const request = { id: processId, after, follow: follows, ...limits };
        yield* follow(used, processId, () =>
          used.client.readOutput(request, {
            signal: used.signal,
            timeoutMs: follows ? 0 : waitSeconds * 1000 + callMs,
          }),
        );
      });
    },

    writeStdin({ sandbox, processId, offset, data, eof }, context) {
      return call(context, sandbox, async ({ client, within, findLost }) => {
        if (findLost(processId)) throw processEnded();
        const written = await client.writeStdin(
          { id: processId, data, eof, timeoutMs: BigInt(stdinMs), ...(offset !== undefined && { offset }) },
          within(stdinMs + callMs),
        );
        return { offset: written.offset, closed: written.closed };
      });
    },

    signalProcess({ sandbox, processId, signal }, context) {
      return call(context, sandbox, async (used) => {
        if (used.findLost(processId)) throw processEnded();
        const noted = await uses.of(used, "process.signal", processId);
        await used.audited(noted, () => used.client.signal({ id: processId, signal }, used.within(callMs)));
        return {};
      });
    },

    resizeTerminal({ sandbox, processId, terminal }, context) {
      return call(context, sandbox, async ({ client, within, findLost }) => {
        if (findLost(processId)) throw processEnded();
        const { cols, rows } = requireGiven(terminal);
        await client.resize({ id: processId, cols, rows }, within(callMs));
        return {};
      });
    },

    endProcess({ sandbox, processId }, context) {
      return call(context, sandbox, async (used) => {
        const { client, within, note, findLost, audited } = used;
        if (findLost(processId)) return {};
        const noted = await uses.of(used, "process.end", processId);
        const toEnd = { id: processId, graceMs: BigInt(endGraceMs) };
        await audited(noted, () => client.end(toEnd, within(callMs)));
        const waitMs = endGraceMs + callMs;
        const { process } = await client.wait({ id: processId, timeoutMs: BigInt(waitMs) }, within(waitMs + callMs));
        if (process?.state === ProcessState.RUNNING) throw new Error("the process outlived SIGKILL");
        note(process, processId);
        return {};
      });
    },
  };
}

/** What the audit log tells of uses of processes. */
function createProcessUses() {
  /** By process, from the requests that started them where those came here: the helper may say what it likes. */
  const programs = new LRUCache<string, string>({ max: maxPrograms });

  /** Of a process that another replica started, or this one before a restart. */
  async function askProgram({ client, within, note }: Used, processId: string): Promise<string> {
    const { process } = await client.getProcess({ id: processId }, within(callMs));
    const program = programOf(note(process, processId));
    programs.set(processId, program);
    return program;
  }

  return {
    async of(used: Used, action: AuditAction, processId: string): Promise<HelperUse> {
      const program = programs.get(processId) ?? (await askProgram(used, processId));
      return { action, details: { process_id: processId, program } };
    },
    /** A start that is repeated has one entry, since the process is one. */
    start(action: AuditAction, id: string, command: Command): HelperUse {
      const program = programOf(command);
      programs.set(id, program);
      return { action, details: { process_id: id, program }, id };
    },
  };
}

interface Used extends SandboxHelper {
  client: Client<typeof HelperProcessService>;
  within(ms: number): { signal: AbortSignal; timeoutMs: number };
  /** Remembers the process. Throws UPSTREAM_ERROR for one that can't be, or that isn't the one with this id. */
  note(told: Process | undefined, id?: string): Process;
  /** One that is lost, of which the helper doesn't know. */
  findLost(processId: string): Process | undefined;
}

/** Of a field that the contract requires. */
function requireGiven<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("a required field is missing");
  return value;
}

function toHelperCommand(command: Command): MessageInitShape<typeof HelperCommandSchema> {
  checkCommand(command);
  const { argv, shell, cwd, env, user, tag, stdin, stdinOpen, terminal, timeoutSeconds, timeoutMs } = command;
  return {
    argv,
    shell,
    cwd,
    env,
    user,
    tag,
    stdin,
    stdinOpen,
    timeoutMs: timeoutMs || BigInt(timeoutSeconds) * 1000n,
    ...(terminal && { terminal: { cols: terminal.cols, rows: terminal.rows, hangupAfterMs } }),
  };
}
