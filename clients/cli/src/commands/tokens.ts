import type { ApiToken, Permission, Role } from "@sandgate/client";
import { named, toNumber, UsageError } from "../args.ts";
import { openSession } from "../context.ts";
import { ago, ahead, printList, say, write } from "../output.ts";
import { setUp } from "../setup.ts";

const dayMs = 86_400_000;

export async function run(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals, values } = setUp(args, signal, {
    days: { type: "string" },
    role: { type: "string" },
    permission: { type: "string", multiple: true },
    bound: { type: "boolean" },
  });
  const { format } = context;
  const [verb = "ls", ...rest] = positionals;
  if (!["ls", "new", "revoke"].includes(verb)) throw new UsageError(`there is no ${JSON.stringify(verb)} of tokens`);
  const sandgate = await openSession(context);
  if (verb === "ls") {
    named(rest);
    await printList<ApiToken>(await sandgate.apiTokens.list({ signal }), format, {
      name: ({ id }) => id,
      columns: [
        { title: "description", of: ({ description }) => description },
        { title: "token", of: ({ tokenHint }) => tokenHint },
        { title: "created", of: ({ createdAt }) => ago(createdAt) },
        { title: "used", of: ({ lastUsedAt }) => ago(lastUsedAt) },
        { title: "expires", of: ({ expiresAt }) => ahead(expiresAt) },
        { title: "id", of: ({ id }) => id },
      ],
    });
    return 0;
  }
  if (verb === "new") {
    const [description = ""] = named(rest, "DESCRIPTION");
    const days = toNumber(values.days, "--days");
    const created = await sandgate.apiTokens.create({
      description,
      ...(days !== undefined && { expiresAt: new Date(Date.now() + days * dayMs).toISOString() }),
      // The API says which there are.
      ...(values.role !== undefined && { role: values.role as Role }),
      ...(values.permission !== undefined && { permissions: values.permission as Permission[] }),
      ...(values.bound && { workspaceId: await sandgate.workspaceId({ signal }) }),
      signal,
    });
    if (format === "json") await write(`${JSON.stringify(created, null, 2)}\n`);
    else {
      if (process.stdout.isTTY) say("The token is shown this once:");
      await write(`${created.token}\n`);
    }
    return 0;
  }
  for (const each of named(rest, "ID…")) await sandgate.apiTokens.delete(each, { signal });
  return 0;
}
