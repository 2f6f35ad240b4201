import type { Sandbox, SandboxRecord } from "@sandgate/client";
import { named, toMap, toNumber, toSeconds, UsageError } from "../args.ts";
import { runInForeground } from "../foreground.ts";
import { bytes, createStatus, say, write } from "../output.ts";
import { setUp } from "../setup.ts";

export async function run(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals, rest, values } = setUp(args, signal, {
    name: { type: "string" },
    label: { type: "string", multiple: true },
    ttl: { type: "string" },
    rm: { type: "boolean" },
    interactive: { type: "boolean", short: "i" },
    tty: { type: "boolean", short: "t" },
    env: { type: "string", short: "e", multiple: true },
    port: { type: "string", short: "p", multiple: true },
  });
  const [image = "", ...more] = named(positionals, "IMAGE", "[COMMAND…]");
  const command = rest ?? more;
  const interactive = values.interactive ?? false;
  const tty = values.tty ?? false;
  if (values.rm && command.length === 0 && !tty) throw new UsageError("--rm needs a command, or -it for a shell");
  const ports = (values.port ?? []).map((each) => toNumber(each, "--port") ?? 0);
  const status = createStatus();
  const sandbox = await context.sandgate.sandboxes
    .create(image, {
      name: values.name,
      labels: toMap(values.label, "--label"),
      ttlSeconds: toSeconds(values.ttl, "--ttl"),
      env: toMap(values.env, "--env"),
      signal,
      onProgress: (record) => status.show(describe(record)),
    })
    .finally(status.clear);
  try {
    for (const port of ports) {
      const { url, token } = await sandbox.ports.open(port, { signal });
      say(`${port}: ${url} (X-Sandgate-Token: ${token})`);
    }
    const isForeground = command.length > 0 || tty;
    if (!isForeground) {
      await print(sandbox, context.format);
      return 0;
    }
    if (!values.rm) say(`sandbox: ${sandbox.name}`);
    return await runInForeground(sandbox, {
      command: command.length > 0 ? command : undefined,
      interactive,
      tty,
      signal,
    });
  } finally {
    if (values.rm) await sandbox.stop({ timeoutMs: 30_000 });
  }
}

async function print(sandbox: Sandbox, format: string): Promise<void> {
  if (format === "json") await write(`${JSON.stringify(sandbox.record, null, 2)}\n`);
  else await write(`${sandbox.name}\n`);
}

function describe({ name, timeline, pull }: SandboxRecord): string {
  const phase = timeline.at(-1)?.phase ?? "accepted";
  const pulled = pull ? `, ${bytes(pull.downloadedBytes)} of ${bytes(pull.totalBytes)} pulled` : "";
  return `${name}: ${phase.replaceAll("_", " ")}${pulled}`;
}
