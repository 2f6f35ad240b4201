import { readFile, writeFile } from "node:fs/promises";
import { totalmem } from "node:os";
import { join } from "node:path";
import { messageOf } from "@sandgate/kit/base/domain-error";
import { createStateLog, type Logger } from "@sandgate/kit/base/logging";
import { mebibyte } from "@sandgate/kit/base/sizes";

/** What the engine and the platform need for a running sandbox, at least (deploy/README.md, "How to size a host"). */
const bytesBesideSandbox = 4 * mebibyte;

/** The addresses of a sandbox's network, each of which it can make the kernel look for. */
const neighboursPerSandbox = 254;

/** What most of these limits are to the kernel. */
const maxInteger = 2 ** 31 - 1;

/** What the kernel counts for the host and all sandboxes together, or for all of a user, who is root in most. */
export interface KernelLimits {
  /** Raises the limits that are too low, and warns of those that can't be raised from here. Never rejects. */
  apply(): Promise<void>;
}

/**
 * Without it one sandbox takes all that the kernel gives out, from the engine, the platform and other sandboxes alike.
 * @param o.maxConnections those of a sandbox, 0 for any number
 * @param o.root where the kernel's parameters are
 */
export function createKernelLimits(o: { maxConnections: number; logger: Logger; root?: string }): KernelLimits {
  const { root = "/proc/sys" } = o;
  const limits = Object.entries(limitsOf(totalmem(), o.maxConnections));
  const tellRefused = createStateLog(
    o.logger,
    "one sandbox can take all that the kernel has of some things, from this host and from other sandboxes: set these sysctls on the host, since they can't be set from here",
  );

  return {
    async apply() {
      const refused: Record<string, number> = {};
      let reason: string | undefined;
      for (const [name, limit] of limits) {
        try {
          await raise(join(root, name.replaceAll(".", "/")), limit);
        } catch (error) {
          refused[name] = limit;
          reason = messageOf(error);
        }
      }
      tellRefused(Object.keys(refused).join() || undefined, { sysctls: refused, reason });
    },
  };
}

/**
 * Sandboxes are short of memory of their own first. Where no sandbox's memory counts what the kernel needs, the limit is
 * what all sandboxes that a host can hold may use.
 */
function limitsOf(memoryBytes: number, maxConnections: number): Record<string, number> {
  const sandboxes = memoryBytes / bytesBesideSandbox;
  const limits = {
    // By the bytes that each takes of its sandbox's memory at least.
    "fs.epoll.max_user_watches": memoryBytes / 128,
    "fs.inotify.max_user_instances": memoryBytes / 1024,
    "fs.inotify.max_user_watches": memoryBytes / 64,
    "fs.aio-max-nr": memoryBytes / 64,
    "fs.file-max": memoryBytes / 256,
    // A terminal takes 32 KiB, of which a tenth counts: a sixteenth of the host's memory.
    "kernel.pty.max": memoryBytes / 16 / 32_768,
    // Half a KiB each.
    "net.ipv4.neigh.default.gc_thresh3": sandboxes * neighboursPerSandbox,
    "net.ipv4.neigh.default.gc_thresh2": sandboxes * neighboursPerSandbox,
    "net.netfilter.nf_conntrack_max": sandboxes * Math.min(maxConnections, 1_024),
  };
  return Object.fromEntries(
    Object.entries(limits).map(([name, limit]) => [name, Math.min(Math.floor(limit), maxInteger)]),
  );
}

/** One that the kernel doesn't have needs nothing. */
async function raise(file: string, limit: number): Promise<void> {
  const current = await readFile(file, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw error;
  });
  if (current !== undefined && Number(current) < limit) await writeFile(file, String(limit));
}
