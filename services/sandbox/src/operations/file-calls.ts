import type { Client, HandlerContext } from "@connectrpc/connect";
import type { AuditAction } from "@sandgate/kit/base/audit-actions";
import { createClient } from "@sandgate/kit/rpc/create-client";
import { FileService } from "@sandgate/proto/helper/v1/file";
import { pathText } from "../domain/audited-uses.ts";
import { helperTooOld } from "./helper-errors.ts";
import type { HelperUse, SandboxHelper, SandboxHelpers } from "./sandbox-helpers.ts";

/** For a call that takes no longer for a large folder. */
export const callMs = 10_000;
/** For one that goes through all of a folder. */
export const folderMs = 120_000;
/** The first helper that takes a user with a request for files. */
const firstWithUsers = 2;

export type Files = Client<typeof FileService>;

/** Whose files of what sandbox a request is about. */
export interface Asked {
  sandbox: string;
  user?: string;
}

/** Options of a call. */
export interface Within {
  signal: AbortSignal;
  timeoutMs: number;
}

/** A client of the helper. Throws CONFLICT for a user that a helper of an earlier version would take no notice of. */
export function filesOf({ info, transport }: Pick<SandboxHelper, "info" | "transport">, { user = "" }: Asked): Files {
  if (user !== "" && info.version < firstWithUsers) throw helperTooOld();
  return createClient(FileService, transport);
}

/** What the audit log tells of a use of files. */
export function fileUse(action: AuditAction, path: Uint8Array, to?: Uint8Array): HelperUse {
  return { action, details: { path: pathText(path), ...(to && { to: pathText(to) }) } };
}

/** Returns what makes a call that the helper answers soon. */
export function createFileCall(helpers: SandboxHelpers) {
  return <T>(
    context: HandlerContext,
    asked: Asked,
    work: (client: Files, within: Within) => Promise<T>,
    { use, timeoutMs = callMs }: { use?: HelperUse; timeoutMs?: number } = {},
  ): Promise<T> =>
    helpers.call(context, asked.sandbox, (helper) => {
      const run = () => work(filesOf(helper, asked), { signal: helper.signal, timeoutMs });
      return use ? helper.audited(use, run) : run();
    });
}
