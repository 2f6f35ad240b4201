import type { Sandbox, SandboxState } from "@sandgate/client";
import { named, toMap } from "../args.ts";
import { ago, ahead, printList } from "../output.ts";
import { setUp } from "../setup.ts";

const live: readonly SandboxState[] = ["provisioning", "ready", "stopping"];

export async function run(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals, values } = setUp(args, signal, {
    all: { type: "boolean", short: "a" },
    quiet: { type: "boolean", short: "q" },
    label: { type: "string", multiple: true },
    state: { type: "string" },
  });
  named(positionals);
  const asked = values.state as SandboxState | undefined;
  const state = asked ?? (values.all ? undefined : live);
  const labels = toMap(values.label, "--label");
  const sandboxes = await context.sandgate.sandboxes.list({ state, labels, limit: 500, signal });
  await printList<Sandbox>(sandboxes, values.quiet ? "name" : context.format, {
    name: ({ id, name }) => (values.quiet ? id : name),
    json: ({ record }) => record,
    columns: [
      { title: "name", of: ({ name }) => name },
      { title: "state", of: ({ state, record }) => (record.stateReason ? `${state} (${record.stateReason})` : state) },
      { title: "image", of: ({ record }) => record.image },
      { title: "created", of: ({ record }) => ago(record.createdAt) },
      { title: "expires", of: ({ record }) => ahead(record.expiresAt) },
      { title: "labels", of: ({ record }) => labelsOf(record.labels) },
      { title: "id", of: ({ id }) => id },
    ],
  });
  return 0;
}

function labelsOf(labels: Record<string, string>): string {
  return Object.entries(labels)
    .map(([key, value]) => `${key}=${value}`)
    .join(",");
}
