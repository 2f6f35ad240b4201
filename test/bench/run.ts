// `npm run bench`: what the platform costs, each figure a ratio or a size measured in one run, beside its aim.
import { stdout } from "node:process";
import { measureCollectors } from "./collectors.ts";
import { measureDashboard } from "./dashboard.ts";
import { measureE2b } from "./e2b.ts";
import type { Figure } from "./figure.ts";
import { measureKubernetes } from "./kubernetes.ts";
import { measurePreviews } from "./previews.ts";
import { measureProvision } from "./provision.ts";
import { measureRequests } from "./requests.ts";
import { measureRows } from "./rows.ts";
import { measureStalls } from "./stalls.ts";
import { measureStart } from "./start.ts";
import { measureTelemetry } from "./telemetry.ts";
import { measureThousand } from "./thousand.ts";
import { measureTransports } from "./transports.ts";
import { measureUse } from "./use.ts";

const benches: Record<string, () => Promise<Figure[]>> = {
  start: measureStart,
  requests: measureRequests,
  provision: measureProvision,
  transports: measureTransports,
  use: measureUse,
  previews: measurePreviews,
  e2b: measureE2b,
  dashboard: measureDashboard,
  telemetry: measureTelemetry,
  stalls: measureStalls,
  rows: measureRows,
  thousand: measureThousand,
  collectors: measureCollectors,
  kubernetes: measureKubernetes,
};

const wanted = process.argv.slice(2);
for (const [name, measure] of Object.entries(benches)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  for (const { what, value, unit, aim, detail } of await measure()) {
    stdout.write(`${what}: ${value.toFixed(2)}${unit} (aim: ${aim}); ${detail}\n`);
  }
}
