import { requireDistributed, single, startDistributed } from "../../platform/distributed/platform.ts";
import { settingsOnCluster } from "../../platform/on-cluster.ts";
import { openOperator } from "../../platform/operator.ts";
import type { Figure } from "../figure.ts";
import { report } from "../report.ts";
import { openWorkspaces } from "../sandboxes.ts";
import { type Bench, benchSettings, openApiClient, openBareClient } from "./bench.ts";
import { churnThrough, compareEnds, type Live, provision } from "./live.ts";

const most = 1_000;
const workspaceCount = 10;

/**
 * The platform as processes of its own, one of whose two sandbox processes is killed while sandboxes come and go, for
 * good.
 */
export async function measureLostReplica(bench: Bench, live: number): Promise<Figure[]> {
  if (!(await requireDistributed())) return [];
  const count = Math.min(most, live);
  await using closing = new AsyncDisposableStack();
  const client = closing.adopt(await openBareClient(bench), (each) => each.close());
  const platform = closing.adopt(
    await startDistributed({
      replicas: { ...single, sandbox: 2 },
      settings: await settingsOnCluster(bench.cluster, { settings: benchSettings }),
    }),
    (each) => each.stop(),
  );
  const operator = await openOperator(platform);
  const remaining: Live = {
    adminUrl: () => platform.replica("sandbox", 1).adminUrl,
    api: openApiClient(platform, operator, closing),
    workspaces: await openWorkspaces(operator, workspaceCount),
    imageId: await operator.registerImage(bench.image, { readiness_port: bench.port }),
    sandboxes: [],
    async readRecords() {
      const records = platform.database("sandbox").collection<{ _id: string }>("sandboxes");
      const found = await records.find({ cleanedAt: { $exists: false } }, { projection: { _id: 1 } }).toArray();
      return found.map(({ _id }) => _id);
    },
  };
  report("the processes are ready");
  await provision(remaining, count).catch((error: unknown) => {
    report(`provisioning failed: ${error}`);
    throw error;
  });
  report(`${count} are ready on two sandbox processes`);
  const failed = await churnThrough(remaining, () => platform.replica("sandbox", 0).kill());
  const end = await compareEnds(remaining, client);
  report(`without one of two sandbox processes: ${end.text}`);
  return [
    {
      what: `one of two sandbox processes killed while ${count} sandboxes come and go: left over or missing at the end`,
      value: end.wrong,
      unit: "",
      aim: "0",
      detail: `${end.text}; ${failed} calls failed`,
    },
  ];
}
