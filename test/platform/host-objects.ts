import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { readdir, rmdir } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { hostNamesOf } from "@sandgate/sandbox/docker-names";
import { openTestEngine } from "@sandgate/test-support/images";

const execute = promisify(execFile);

/** Removes the networks, firewall rules and control groups of an installation without containers. A platform leaves them. */
export async function removeHostObjects(installationId: string): Promise<void> {
  const engine = openTestEngine();
  const networks = await engine.listNetworks({
    filters: { label: [`sandgate.io/installation=${installationId}`] },
  });
  await Promise.all(networks.map(({ Id }) => engine.getNetwork(Id).remove()));
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
