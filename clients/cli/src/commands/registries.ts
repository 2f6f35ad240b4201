import { type Registry, RegistryNotFound } from "@sandgate/client";
import { named, UsageError } from "../args.ts";
import type { Context } from "../context.ts";
import { printList, printOne } from "../output.ts";
import { readPassword } from "../prompt.ts";
import { setUp } from "../setup.ts";

const columns = [
  { title: "name", of: ({ name }: Registry) => name },
  { title: "url", of: ({ url }: Registry) => url },
  { title: "username", of: ({ username }: Registry) => username },
  { title: "id", of: ({ id }: Registry) => id },
];
const name = ({ name }: Registry) => name;

export async function run(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals, values } = setUp(args, signal, { username: { type: "string" } });
  const { sandgate, format } = context;
  const [verb = "ls", ...rest] = positionals;
  if (verb === "ls") {
    named(rest);
    await printList(await sandgate.registries.list({ signal }), format, { columns, name });
    return 0;
  }
  if (verb === "add") {
    const [registryName = "", url = ""] = named(rest, "NAME", "URL");
    const { username } = values;
    if (username === undefined) throw new UsageError("--username is missing");
    const password = await readPassword(signal);
    const made = await sandgate.registries.create({ name: registryName, url, username, password, signal });
    await printOne(made, format, { columns, name });
    return 0;
  }
  if (verb !== "rm") throw new UsageError(`there is no ${JSON.stringify(verb)} of registries`);
  for (const each of named(rest, "NAME…")) {
    const { id } = await findRegistry(context, each);
    await sandgate.registries.delete(id, { signal });
  }
  return 0;
}

/** By its name or id. */
export async function findRegistry({ sandgate, signal }: Context, text: string): Promise<Registry> {
  for await (const registry of sandgate.registries.list({ signal })) {
    if (registry.name === text || registry.id === text) return registry;
  }
  throw new RegistryNotFound({
    code: "registry_not_found",
    message: `The workspace has no registry ${JSON.stringify(text)}.`,
    hint: "`sandgate registries` lists them.",
  });
}
