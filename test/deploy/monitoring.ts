import { parse } from "yaml";
import { listFiles, readText } from "./deployment.ts";

/** What Prometheus and histograms add to each metric's own labels. */
const addedLabels = ["instance", "le"];

/** The labels that each metric of the platform can have, from its definition. */
export function labelsOfMetrics(): Map<string, string[]> {
  const source = [...listFiles("services"), ...listFiles("facade/src")]
    .filter((file) => file.endsWith(".ts") && !file.endsWith(".test.ts"))
    .map(readText)
    .join("\n");
  const definitions = source.matchAll(/name: "(sandgate_\w+)",\s*help:\s*".*"(?:,\s*labelNames: \[(.*?)\])?/g);
  return new Map(
    [...definitions].map(([, metric = "", labels = ""]) => [
      metric,
      [...addedLabels, ...[...labels.matchAll(/"(\w+)"/g)].map(([, label = ""]) => label)],
    ]),
  );
}

export function readAlerts(): { alert: string; expr: string; annotations: { runbook: string } }[] {
  const { groups }: { groups: { rules: ReturnType<typeof readAlerts> }[] } = parse(
    readText("deploy/monitoring/alerts.yaml"),
  );
  return groups.flatMap(({ rules }) => rules);
}

/** Every expression of the alerts and of the dashboard. */
export function readExpressions(): { alerts: string[]; dashboard: string[] } {
  const { panels }: { panels: { targets: { expr: string }[] }[] } = JSON.parse(
    readText("deploy/monitoring/dashboard.json"),
  );
  return {
    alerts: readAlerts().map(({ expr }) => expr),
    dashboard: panels.flatMap(({ targets }) => targets.map(({ expr }) => expr)),
  };
}

/** The metrics of an expression, each with the labels that it is selected by and those that it is grouped by. */
export function selectorsOf(expression: string): { metric: string; labels: string[] }[] {
  const grouped = [...expression.matchAll(/\bby \(([^)]*)\)/g)].flatMap(([, labels = ""]) => labels.split(", "));
  return [...expression.matchAll(/\b(sandgate_\w+?)(?:_bucket|_count|_sum)?\b(?:\{([^}]*)\})?/g)].map(
    ([, metric = "", matchers = ""]) => ({
      metric,
      labels: [...grouped, ...[...matchers.matchAll(/(\w+)(?:!~|=~|!=|=)"/g)].map(([, label = ""]) => label)],
    }),
  );
}
