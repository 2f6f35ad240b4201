import type { Client, HandlerContext } from "@connectrpc/connect";
import { createClient } from "@sandgate/kit/rpc/create-client";
import { type Process, ProcessService } from "@sandgate/proto/helper/v1/process";
import { boundProcess } from "./helper-processes.ts";
import type { KnownProcesses } from "./known-processes.ts";
import type { SandboxHelper, SandboxHelpers } from "./sandbox-helpers.ts";

/** For a call that doesn't wait for the process. */
export const callMs = 10_000;

/** A sandbox whose processes a call uses. */
export interface Used extends SandboxHelper {
  client: Client<typeof ProcessService>;
  within(ms: number): { signal: AbortSignal; timeoutMs: number };
  /** Remembers the process. Throws UPSTREAM_ERROR for one that can't be, or that isn't the one with this id. */
  note(told: Process | undefined, id?: string): Process;
  /** One that is lost, of which the helper doesn't know. */
  findLost(processId: string): Process | undefined;
}

export type ProcessCalls = ReturnType<typeof createProcessCalls>;

/** What handlers of processes call the helper with. */
export function createProcessCalls(helpers: SandboxHelpers, known: KnownProcesses) {
  function use(helper: SandboxHelper): Used {
    const { sandbox, info } = helper;
    return {
      ...helper,
      client: createClient(ProcessService, helper.transport),
      within: (ms) => ({ signal: helper.signal, timeoutMs: ms }),
      note(told, id) {
        const process = boundProcess(told, id);
        known.note(sandbox.id, info.instanceId, process);
        return process;
      },
      findLost: (id) => known.findLost(sandbox.id, info.instanceId).find((process) => process.id === id),
    };
  }

  return {
    use,
    /** Runs work with the helper's client, and what is known of a process that is no longer there. */
    call<T>(context: HandlerContext, idOrName: string, work: (used: Used) => Promise<T>): Promise<T> {
      return helpers.call(context, idOrName, (helper) => work(use(helper)));
    },
  };
}

/** Of a field that the contract requires. */
export function requireGiven<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("a required field is missing");
  return value;
}
