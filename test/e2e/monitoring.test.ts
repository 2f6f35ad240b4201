import { probeEngine } from "@sandgate/test-support/images";
import { requireServer } from "@sandgate/test-support/require";
import { expect, test } from "vitest";
import { readExpressions, selectorsOf } from "../deploy/monitoring.ts";
import { startPlatform } from "../platform/local.ts";

/** Without NATS and the API of a cluster. */
const elsewhere = ["sandgate_bus_connected", "sandgate_bus_unreached_consumers"];

test.runIf(await requireServer("docker", probeEngine))(
  "a running platform shows every metric that is watched",
  async () => {
    const platform = await startPlatform();
    try {
      const shown = await (await fetch(`${platform.adminUrl}/metrics`)).text();
      const { alerts, dashboard } = readExpressions();
      const watched = [...alerts, ...dashboard].flatMap(selectorsOf).map(({ metric }) => metric);
      expect(watched.length).toBeGreaterThan(40);
      const missing = new Set(watched.filter((metric) => !shown.includes(`# TYPE ${metric} `)));
      expect([...missing].sort()).toEqual(elsewhere);
    } finally {
      await platform.stop();
    }
  },
);
