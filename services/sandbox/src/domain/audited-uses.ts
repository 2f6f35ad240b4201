import type { AuditAction, AuditDetails } from "@sandgate/kit/base/audit-actions";

/** Something that somebody did in a sandbox, as the audit log shows it. */
export interface AuditedUse {
  workspaceId: string;
  sandboxId: string;
  action: AuditAction;
  /** What in the sandbox it was done to. */
  details: AuditDetails;
  /** `upstream_error`: nobody knows whether it was done. */
  outcome: "success" | "upstream_error";
  /** The same of a use that is repeated, which then has one entry. */
  id?: string | undefined;
}

/** Uses that are alike, as one. */
export interface CountedUses extends Omit<AuditedUse, "sandboxId"> {
  /** Undefined: of several. */
  sandboxId: string | undefined;
  count: number;
}

const maxProgramLength = 128;
const maxPathLength = 1_000;

/** The name of a command's program, and nothing else of the command. */
export function programOf({ argv }: { argv: readonly string[] }): string {
  const [path = "sh"] = argv;
  return shorten(path.split("/").findLast((part) => part !== "") ?? path, maxProgramLength);
}

/** A path as text, which may lack the end of a long one. */
export function pathText(path: Uint8Array): string {
  return shorten(new TextDecoder().decode(path), maxPathLength);
}

function shorten(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length)}…` : text;
}
