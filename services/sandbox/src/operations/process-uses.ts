import type { AuditAction } from "@sandgate/kit/base/audit-actions";
import type { Command } from "@sandgate/proto/sandbox/v1/processes";
import { LRUCache } from "lru-cache";
import { programOf } from "../domain/audited-uses.ts";
import { callMs, type Used } from "./process-calls.ts";
import type { HelperUse } from "./sandbox-helpers.ts";

/** Processes whose programs are remembered for the audit log. */
const maxPrograms = 10_000;

export type ProcessUses = ReturnType<typeof createProcessUses>;

/** What the audit log tells of uses of processes. */
export function createProcessUses() {
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
