import type { AuditEntry, AuditLogOptions } from "@sandgate/client";
import { named, toMoment, toNumber } from "../args.ts";
import { printList } from "../output.ts";
import { setUp } from "../setup.ts";

const defaultLimit = 50;

export async function run(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals, values } = setUp(args, signal, {
    action: { type: "string" },
    actor: { type: "string" },
    since: { type: "string" },
    until: { type: "string" },
    limit: { type: "string" },
  });
  named(positionals);
  const limit = toNumber(values.limit, "--limit") ?? defaultLimit;
  const entries: AuditEntry[] = [];
  const { action, actor } = values;
  const list = context.sandgate.auditLog.list({
    // The API says which there are.
    ...(action !== undefined && { action: action as NonNullable<AuditLogOptions["action"]> }),
    ...(actor !== undefined && { actor }),
    ...dates({ since: toMoment(values.since, "--since"), until: toMoment(values.until, "--until") }),
    limit: Math.max(1, Math.min(500, limit)),
    signal,
  });
  for await (const entry of list) {
    if (entries.length >= limit) break;
    entries.push(entry);
  }
  await printList(entries, context.format, {
    name: ({ id }) => id,
    columns: [
      { title: "at", of: ({ at }) => at },
      { title: "actor", of: ({ actor }) => actor?.userId },
      { title: "action", of: ({ action }) => action },
      { title: "target", of: ({ target }) => target && `${target.type} ${target.id}` },
      { title: "outcome", of: ({ outcome }) => outcome },
      { title: "count", of: ({ count }) => count },
      { title: "address", of: ({ address }) => address },
    ],
  });
  return 0;
}

function dates(given: { since: Date | undefined; until: Date | undefined }): { since?: string; until?: string } {
  const { since, until } = given;
  return { ...(since && { since: since.toISOString() }), ...(until && { until: until.toISOString() }) };
}
