import { SandgateError } from "@sandgate/client";
import { readStoredLogin, writeStoredLogin } from "@sandgate/client/stored-login";
import { named, UsageError } from "../args.ts";
import { printList, say } from "../output.ts";
import { setUp } from "../setup.ts";

export async function run(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals } = setUp(args, signal, {});
  const { sandgate, format } = context;
  const [verb = "ls", ...rest] = positionals;
  const all = await sandgate.workspaces.list({ signal, limit: 500 });
  if (verb === "ls") {
    named(rest);
    const current = all.length > 0 ? await sandgate.workspaceId({ signal }) : undefined;
    await printList(all, format, {
      name: ({ name }) => name,
      columns: [
        { title: "", of: ({ id }) => (id === current ? "*" : "") },
        { title: "name", of: ({ name }) => name },
        { title: "id", of: ({ id }) => id },
        { title: "role", of: ({ role }) => role },
      ],
    });
    return 0;
  }
  if (verb !== "use") throw new UsageError(`there is no ${JSON.stringify(verb)} of workspaces`);
  const [name = ""] = named(rest, "NAME");
  const [stored, url] = await Promise.all([readStoredLogin(), sandgate.url()]);
  if (stored.url !== url) {
    throw new SandgateError({
      code: "not_signed_in",
      message: `You have not signed in to ${url}, so no choice can be stored.`,
      hint: "Use `sandgate login`, --workspace or SANDGATE_WORKSPACE.",
    });
  }
  const found = all.filter((each) => each.id === name || each.name === name);
  const [workspace] = found;
  if (!workspace || found.length > 1) {
    throw new SandgateError({
      code: "workspace_not_found",
      message: `You have ${found.length === 0 ? "no workspace" : "several workspaces"} ${JSON.stringify(name)}.`,
      hint: "`sandgate workspaces` lists them with their ids.",
    });
  }
  await writeStoredLogin({ ...stored, workspace: workspace.id });
  say(`Commands are for the workspace ${workspace.name} now.`);
  if (process.env.SANDGATE_WORKSPACE) say("But SANDGATE_WORKSPACE is set, which goes first.");
  return 0;
}
