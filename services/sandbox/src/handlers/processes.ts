import { create, type Message, type MessageInitShape } from "@bufbuild/protobuf";
import type { ServiceImpl } from "@connectrpc/connect";
import { mebibyte } from "@sandgate/kit/base/sizes";
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
import { createOutputCheck, type OutputLimit } from "../operations/helper-output.ts";
import { type KnownProcesses, toLost } from "../operations/known-processes.ts";
import { callMs, createProcessCalls, requireGiven, type Used } from "../operations/process-calls.ts";
import { processIdOf } from "../operations/process-ids.ts";
import { createProcessUses } from "../operations/process-uses.ts";
import { auditedStream, type SandboxHelpers } from "../operations/sandbox-helpers.ts";
import { createProcessControlHandlers } from "./process-control.ts";

/** A terminal that nobody is connected to for so long ends. */
const hangupAfterMs = 3_600_000n;
/** Of a page of output. Small events take many times their bytes. */
const maxPage = { bytes: mebibyte, events: 10_000 };

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
   * that the process is lost. Throws UPSTREAM_ERROR for more output than the limit.
   */
  async function* follow<E extends Message & { event?: OutputEvent | undefined }>(
    used: Used,
    processId: string,
    open: () => AsyncIterable<E>,
    limit?: OutputLimit,
  ): AsyncGenerator<Omit<E, keyof Message> | { event: OutputEvent }> {
    let last: Process | undefined;
    let hasExited = false;
    let offset = 0n;
    const check = limit && createOutputCheck(limit);
    try {
      for await (const message of open()) {
        const { event, offset: at } = message.event ?? { event: undefined, offset: 0n };
        if (event?.case === "output") check?.(event.value);
        if (event?.case === "start" || event?.case === "exit") last = used.note(event.value, processId);
        hasExited ||= event?.case === "exit";
        offset = at;
        const { $typeName: _, $unknown: __, ...plain } = message;
        yield plain;
      }
    } catch (error) {
      // All has been passed on.
      if (hasExited) return;
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
    runCommand(request, context) {
      const command = requireGiven(request.command);
      return helpers.stream(context, request.sandbox, async function* (helper) {
        const used = use(helper);
        const { sandbox, client, signal } = used;
        const normal = { ...request, sandbox: sandbox.id };
        const { id, key } = processIdOf(callOf(context), sandbox.id, RunCommandRequestSchema, normal);
        const { maxOutputBytes } = request;
        const run = {
          id,
          key,
          command: toHelperCommand(command),
          endOnDisconnect: !request.continueOnDisconnect,
          maxOutputBytes: BigInt(maxOutputBytes),
        };
        const limit: OutputLimit | undefined = maxOutputBytes > 0 ? { bytes: maxOutputBytes, of: "each" } : undefined;
        const events = follow(used, id, () => client.run(run, { signal, timeoutMs: 0 }), limit);
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

    readOutput({ sandbox, processId, after, follow: follows, waitSeconds }, context) {
      return helpers.stream(context, sandbox, async function* (helper) {
        const used = use(helper);
        const lost = used.findLost(processId);
        if (lost) {
          yield { event: create(OutputEventSchema, { offset: after, event: { case: "exit", value: lost } }) };
          return;
        }
        const request = { id: processId, after, follow: follows };
        const { signal, client } = used;
        if (follows) {
          yield* follow(used, processId, () => client.readOutput(request, { signal, timeoutMs: 0 }));
          return;
        }
        const limits = { waitMs: BigInt(waitSeconds * 1000), maxBytes: BigInt(maxPage.bytes) };
        const read = () => client.readOutput({ ...request, ...limits }, used.within(waitSeconds * 1000 + callMs));
        yield* first(maxPage.events, follow(used, processId, read, { bytes: maxPage.bytes, of: "all" }));
      });
    },

    ...createProcessControlHandlers(calls, uses),
  };
}

async function* first<T>(count: number, values: AsyncIterable<T>): AsyncGenerator<T> {
  let left = count;
  for await (const value of values) {
    yield value;
    if (--left === 0) return;
  }
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
