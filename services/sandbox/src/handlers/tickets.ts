import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { ServiceImpl } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { addMs } from "@sandgate/kit/base/time";
import { callOf, workspaceOf } from "@sandgate/kit/rpc/context";
import { createClient } from "@sandgate/kit/rpc/create-client";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import { ProcessService as HelperProcessService } from "@sandgate/proto/helper/v1/process";
import type { ProcessService } from "@sandgate/proto/sandbox/v1/processes";
import type { KnownProcesses } from "../operations/known-processes.ts";
import type { SandboxHelpers } from "../operations/sandbox-helpers.ts";
import type { Sandboxes } from "../store/sandboxes.ts";

const lifeMs = 30_000;
const callMs = 10_000;
/** A ticket is kept nowhere: it is what it says, sealed. */
const sealedAs = { service: "sandgate.sandbox.v1", table: "tickets", record: "ticket" };

interface Ticket {
  id: string;
  workspaceId: string;
  sandboxId: string;
  processId: string;
  /** Epoch milliseconds. */
  expiresAt: number;
  /** In base64. */
  holder: string;
}

/** What answers for tickets of processes. */
export function createTicketHandlers(o: {
  helpers: SandboxHelpers;
  known: KnownProcesses;
  sandboxes: Pick<Sandboxes, "find">;
  keyring: Keyring;
  now?: () => Date;
}) {
  const { now = () => new Date() } = o;

  function open(text: string): Ticket {
    try {
      const sealed = Buffer.from(text, "base64url");
      const ticket: Ticket = JSON.parse(Buffer.from(o.keyring.open(sealed, sealedAs)).toString());
      return ticket;
    } catch (cause) {
      throw badTicket(cause);
    }
  }

  return {
    createTicket({ sandbox: idOrName, processId, holder }, context) {
      return o.helpers.call(context, idOrName, async ({ sandbox, info, transport, signal }) => {
        // One that is lost can be attached to as one that has ended.
        if (!o.known.findLost(sandbox.id, info.instanceId).some(({ id }) => id === processId)) {
          const helper = createClient(HelperProcessService, transport);
          await helper.getProcess({ id: processId }, { signal, timeoutMs: callMs });
        }
        const expiresAt = addMs(now(), lifeMs);
        const ticket: Ticket = {
          id: newId(),
          workspaceId: workspaceOf(callOf(context)),
          sandboxId: sandbox.id,
          processId,
          expiresAt: expiresAt.getTime(),
          holder: Buffer.from(holder).toString("base64"),
        };
        const sealed = o.keyring.seal(Buffer.from(JSON.stringify(ticket)), sealedAs);
        return { ticket: Buffer.from(sealed).toString("base64url"), expiresAt: timestampFromDate(expiresAt) };
      });
    },

    async openTicket({ ticket: text, sandbox: idOrName, processId }) {
      const ticket = open(text);
      const sandbox = await o.sandboxes.find(ticket.workspaceId, idOrName);
      const isFor = sandbox?.id === ticket.sandboxId && processId === ticket.processId;
      if (!isFor || ticket.expiresAt <= now().getTime()) throw badTicket();
      return { ticketId: ticket.id, holder: Buffer.from(ticket.holder, "base64") };
    },
  } satisfies Partial<ServiceImpl<typeof ProcessService>>;
}

function badTicket(cause?: unknown): DomainError {
  return new DomainError("INVALID_TOKEN", "The ticket is not valid for this process, or no longer.", {
    hint: "Make a new one with POST /sandboxes/{sandbox_id}/processes/{process_id}/tickets. It can be used once, within 30 s.",
    cause,
  });
}
