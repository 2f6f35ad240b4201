import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { stderr } from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { messageOf } from "@sandgate/kit/base/domain-error";
import { hostNamesOf } from "@sandgate/sandbox/docker-names";
import { openTestEngine } from "@sandgate/test-support/images";
import type { Network } from "dockerode";

const execute = promisify(execFile);

/** How long the engine may take to release the networks of containers that it has removed. */
const releaseMs = 5_000;

/**
 * Removes a network once its last container is gone. Docker Engine 20.10 may count one too many after many ended at
 * once, and then keeps the network until it is started again: nobody else can mend that, so it is only told.
 */
async function removeNetwork(network: Network, name: string): Promise<void> {
  const deadline = performance.now() + releaseMs;
  for (;;) {
    try {
      return await network.remove();
    } catch (error) {
      const status = error instanceof Error && "statusCode" in error ? error.statusCode : undefined;
      if (status === 404) return;
      if (status !== 403) throw error;
      if (performance.now() > deadline) {
        stderr.write(`the engine keeps the network ${name}: ${messageOf(error)}\n`);
        return;
      }
    }
    await delay(100);
  }
}

/**
 * Removes the networks, firewall rules and control groups of an installation without containers. A platform leaves
 * them.
 */
export async function removeHostObjects(installationId: string): Promise<void> {
  const engine = openTestEngine();
  const networks = await engine.listNetworks({
    filters: { label: [`sandgate.io/installation=${installationId}`] },
  });
  for (const { Id, Name } of networks) await removeNetwork(engine.getNetwork(Id), Name);
  const { chainPrefix, bridgePrefix, controlGroup } = hostNamesOf(installationId);
  for (const command of ["iptables", "ip6tables"]) {
    // Who can't run it hasn't set rules either.
    const { stdout } = await execute(command, ["-w", "10", "-S"]).catch(() => ({ stdout: "" }));
    const lines = stdout.split("\n");
    const jumps = lines.filter(
      (line) => / -j /.test(line) && (line.includes(` ${bridgePrefix}+ `) || line.includes(`-j ${chainPrefix}-`)),
    );
    const chains = lines.flatMap((line) => (line.startsWith(`-N ${chainPrefix}-`) ? [line.slice("-N ".length)] : []));
    const ours = jumps.filter((line) => !line.startsWith(`-A ${chainPrefix}-`)).map((line) => line.replace("-A", "-D"));
    const removals = [...ours, ...chains.map((chain) => `-F ${chain}`), ...chains.map((chain) => `-X ${chain}`)];
    if (removals.length === 0) continue;
    const child = spawn(`${command}-restore`, ["-w", "10", "--noflush"], { stdio: ["pipe", "ignore", "inherit"] });
    child.stdin.end(["*filter", ...removals, "COMMIT", ""].join("\n"));
    await once(child, "exit");
  } // With control groups v1 there is one of each controller.
  const folders = [".", ...(await readdir("/sys/fs/cgroup").catch(() => []))];
  for (const folder of folders) {
    await rmdir(join("/sys/fs/cgroup", folder, controlGroup)).catch(() => {});
  }
}
