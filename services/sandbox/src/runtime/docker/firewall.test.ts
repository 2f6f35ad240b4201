import { chmodSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createLogger } from "@sandgate/kit/base/logging";
import { test } from "@sandgate/test-support/test";
import { afterEach, expect, vi } from "vitest";
import { createFirewallRules, removeFirewallRules } from "./firewall.ts";
import { hostNamesOf } from "./names.ts";

const names = hostNamesOf("i1");
const limits = { maxConnections: 5, newConnectionsPerSecond: 100, bandwidthMbit: 8 };

afterEach(() => {
  vi.unstubAllEnvs();
});

/**
 * The programs of iptables 1.8 (nf_tables) on a host whose table `filter` has rules of nftables that they can't show,
 * and whose other tables are empty. Answers what was committed to these.
 */
function install(folder: string): () => string {
  const committed = join(folder, "committed");
  const scripts = {
    "": `case "$*" in *filter*) echo "table 'filter' is incompatible, use 'nft' tool." >&2; exit 1;; esac`,
    "-save": `case "$*" in *filter*) echo "# Table 'filter' is incompatible, use 'nft' tool.";; esac`,
    "-restore": `cat >> ${committed}`,
  };
  for (const family of ["iptables", "ip6tables"]) {
    for (const [suffix, script] of Object.entries(scripts)) {
      writeFileSync(join(folder, `${family}${suffix}`), `#!/bin/sh\n${script}\n`);
      chmodSync(join(folder, `${family}${suffix}`), 0o755);
    }
  }
  vi.stubEnv("PATH", `${folder}:${process.env.PATH}`);
  return () => (existsSync(committed) ? readFileSync(committed, "utf8") : "");
}

function open() {
  const logger = createLogger({ service: "sandbox", level: "silent" });
  const policy = { ...limits, nameservers: [], smtp: false, deny: [], allow: [] };
  return { rules: createFirewallRules({ policy, names, logger }), warn: vi.spyOn(logger, "warn") };
}

test("sets and removes its rules beside those of others in nftables that iptables can't show", async ({ folder }) => {
  const readCommitted = install(folder);
  const { rules, warn } = open();
  await rules.apply();
  expect(readCommitted()).toContain(`*mangle\n:${names.chainPrefix}-INPUT`);
  expect(warn).not.toHaveBeenCalled();
  expect(await removeFirewallRules(names)).toEqual([]);
});

test("counts in tables of its own, beside the rules of a version that had them in another table", async ({
  folder,
}) => {
  const readCommitted = install(folder);
  await open().rules.apply();
  const tables = [...readCommitted().matchAll(/--hashlimit-name (\S+)/g)].map(([, name]) => name);
  expect(tables).toHaveLength(3);
  const earlier = ["n100", "s8", "d8"].map((name) => `${names.bridgePrefix}${name}`);
  expect(earlier.filter((name) => tables.includes(name))).toEqual([]);
});
