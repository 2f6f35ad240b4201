import { type Image, ImageNotFound } from "@sandgate/client";
import { named, toNumber, toSeconds, UsageError } from "../args.ts";
import type { Context } from "../context.ts";
import { printList, printOne } from "../output.ts";
import { setUp } from "../setup.ts";
import { findRegistry } from "./registries.ts";

const columns = [
  { title: "name", of: ({ name }: Image) => name },
  { title: "image", of: ({ image, tag }: Image) => (tag ? `${image}:${tag}` : image) },
  { title: "memory", of: ({ memoryMb }: Image) => `${memoryMb} MiB` },
  { title: "ttl", of: ({ ttlSeconds }: Image) => (ttlSeconds === null ? "-" : `${ttlSeconds}s`) },
  { title: "enabled", of: ({ enabled }: Image) => (enabled ? "yes" : "no") },
  { title: "default", of: ({ isDefault }: Image) => (isDefault ? "yes" : "no") },
  { title: "id", of: ({ id }: Image) => id },
];
const name = ({ name }: Image) => name;

export async function run(args: readonly string[], signal: AbortSignal): Promise<number> {
  const { context, positionals, values } = setUp(args, signal, {
    memory: { type: "string" },
    ttl: { type: "string" },
    port: { type: "string" },
    description: { type: "string" },
    registry: { type: "string" },
  });
  const { sandgate, format } = context;
  const [verb = "ls", ...rest] = positionals;
  if (verb === "ls") {
    named(rest);
    await printList(await sandgate.images.list({ signal }), format, { columns, name });
    return 0;
  }
  if (verb === "add") {
    const [imageName = "", image = ""] = named(rest, "NAME", "REFERENCE");
    const registry = values.registry === undefined ? undefined : await findRegistry(context, values.registry);
    const port = toNumber(values.port, "--port");
    const made = await sandgate.images.create({
      name: imageName,
      image,
      memoryMb: toNumber(values.memory, "--memory") ?? 512,
      ttlSeconds: toSeconds(values.ttl, "--ttl") ?? 3600,
      ...(port !== undefined && { readinessPort: port }),
      ...(values.description !== undefined && { description: values.description }),
      ...(registry && { registryId: registry.id }),
      signal,
    });
    await printOne(made, format, { columns, name });
    return 0;
  }
  if (verb !== "rm" && verb !== "enable" && verb !== "disable") {
    throw new UsageError(`there is no ${JSON.stringify(verb)} of images`);
  }
  for (const each of named(rest, "NAME…")) {
    const { id } = await findImage(context, each);
    if (verb === "rm") await sandgate.images.delete(id, { signal });
    else await sandgate.images.update(id, { enabled: verb === "enable", signal });
  }
  return 0;
}

async function findImage({ sandgate, signal }: Context, text: string): Promise<Image> {
  const all = await sandgate.images.list({ signal });
  // One's own go before the defaults.
  const named = all.filter(({ name }) => name === text).sort((a, b) => Number(a.isDefault) - Number(b.isDefault));
  const found = all.find(({ id }) => id === text) ?? named[0];
  if (found) return found;
  throw new ImageNotFound({
    code: "image_not_found",
    message: `The workspace has no image ${JSON.stringify(text)}.`,
    hint: "`sandgate images` lists them.",
  });
}
