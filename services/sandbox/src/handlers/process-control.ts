import type { ServiceImpl } from "@connectrpc/connect";
import { ProcessState } from "@sandgate/proto/helper/v1/process";
import type { ProcessService } from "@sandgate/proto/sandbox/v1/processes";
import { processEnded } from "../operations/helper-errors.ts";
import { callMs, type ProcessCalls, requireGiven } from "../operations/process-calls.ts";
import type { ProcessUses } from "../operations/process-uses.ts";

const endGraceMs = 5_000;
const stdinMs = 30_000;

type Answered = "writeStdin" | "signalProcess" | "resizeTerminal" | "endProcess";

/** What answers for input, signals, sizes and ends of processes. */
export function createProcessControlHandlers(
  { call }: Pick<ProcessCalls, "call">,
  uses: ProcessUses,
): Pick<ServiceImpl<typeof ProcessService>, Answered> {
  return {
    writeStdin({ sandbox, processId, offset, data, eof }, context) {
      return call(context, sandbox, async ({ client, within, findLost }) => {
        if (findLost(processId)) throw processEnded();
        const answer = await client.writeStdin(
          { id: processId, data, eof, timeoutMs: BigInt(stdinMs), ...(offset !== undefined && { offset }) },
          within(stdinMs + callMs),
        );
        const { offset: reached, closed, taken } = answer;
        return { offset: reached, closed, ...(taken !== undefined && { taken }) };
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
