import { hash } from "node:crypto";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { asFacade } from "@sandgate/kit/rpc/context";
import type { FastifyRequest } from "fastify";
import type { Clients } from "../base/clients.ts";
import { signedInOf } from "../base/request-context.ts";
import type { SignedIn } from "../base/signed-in.ts";
import type { Authenticator } from "./authentication.ts";

/** A ticket, and the process that its request is about. */
interface Given {
  ticket: string;
  sandbox: string;
  processId: string;
}

/** What stands for a credential that a browser can't send with a WebSocket: for one process, once, for 30 s. */
export interface Tickets {
  /** The words by which `open` finds the caller of a request again. They are sealed in the ticket. */
  holderOf(request: FastifyRequest): Uint8Array<ArrayBuffer>;
  /** Who made the ticket, with the rights of today. Throws INVALID_TOKEN. */
  open(given: Given, requestId: string): Promise<SignedIn>;
  /** Throws INVALID_TOKEN when the request's ticket was used before, at any facade. */
  spend(request: FastifyRequest): Promise<void>;
}

/** Longer than any ticket is valid. */
const spentSeconds = 60;
const maxTicketLength = 4_096;

export function createTickets(o: { clients: Clients; authenticator: Authenticator }): Tickets {
  const { identity, processes } = o.clients;
  return {
    holderOf(request) {
      const { ticket: _, ...signedIn } = signedInOf(request);
      const holder = { signedIn, workspaceId: request.inWorkspace?.workspaceId };
      return Buffer.from(JSON.stringify(holder));
    },

    async open(given, requestId) {
      if (given.ticket.length > maxTicketLength) throw new DomainError("INVALID_TOKEN", "The ticket is not valid.");
      const { ticketId, holder } = await processes.openTicket(given, asFacade({ requestId }));
      // What `holderOf` wrote, in this version or in the one before.
      const { signedIn, workspaceId }: { signedIn: SignedIn; workspaceId: string } = JSON.parse(
        Buffer.from(holder).toString(),
      );
      return o.authenticator.confirm({ ...signedIn, ticket: { id: ticketId, workspaceId } }, undefined, requestId);
    },

    async spend(request) {
      const { ticket } = signedInOf(request);
      if (!ticket) return;
      const key = Uint8Array.from(hash("sha256", `ticket ${ticket.id}`, "buffer"));
      const draw = { key, limit: 1, wanted: 1, windowSeconds: spentSeconds };
      const { granted } = await identity.drawRequests(draw, asFacade({ requestId: request.id }));
      if (granted > 0) return;
      throw new DomainError("INVALID_TOKEN", "The ticket was used before.", {
        hint: "Make a new one with POST /sandboxes/{sandbox_id}/processes/{process_id}/tickets.",
      });
    },
  };
}

/** The ticket of a request, if it has one and its path names a process. */
export function ticketOf({ query, params }: FastifyRequest): Given | undefined {
  const { ticket }: { ticket?: unknown } = Object(query);
  const { sandbox_id: sandbox, process_id: processId }: Partial<Record<string, unknown>> = Object(params);
  if (typeof ticket !== "string" || typeof sandbox !== "string" || typeof processId !== "string") return undefined;
  return { ticket, sandbox: sandbox.slice(0, 128), processId: processId.slice(0, 128).toLowerCase() };
}
