import { create, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import { callOf, waitTimeOf } from "@sandgate/kit/rpc/context";
import {
  type CommandSchema as HelperCommandSchema,
  type OutputEvent,
  OutputEventSchema,
  type Process,
} from "@sandgate/proto/helper/v1/process";
import {
  type Command,
  type ProcessService,
  RunCommandRequestSchema,
  StartProcessRequestSchema,
} from "@sandgate/proto/sandbox/v1/processes";
import { checkCommand } from "../domain/commands.ts";
import type { HelperConnections } from "../operations/helper-connections.ts";
import { isConnectionLost } from "../operations/helper-errors.ts";
import { type KnownProcesses, toLost } from "../operations/known-processes.ts";
import { callMs, createProcessCalls, requireGiven, type Used } from "../operations/process-calls.ts";
import { processIdOf } from "../operations/process-ids.ts";
import { createProcessUses } from "../operations/process-uses.ts";
import { auditedStream, type SandboxHelpers } from "../operations/sandbox-helpers.ts";
import { createProcessControlHandlers } from "./process-control.ts";

/** A terminal that nobody is connected to for so long ends. */
const hangupAfterMs = 3_600_000n;
const maxReadBytes = 1_048_576n;

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
  const calls = createProcessCalls(helpers, known);
  const { call, use } = calls;
  const uses = createProcessUses();

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

    ...createProcessControlHandlers(calls, uses),
  };
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
