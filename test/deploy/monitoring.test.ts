import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { requireServer } from "@sandgate/test-support/require";
import { describe, expect, test } from "vitest";
import { parse, parseAllDocuments } from "yaml";
import { readText, root } from "./deployment.ts";
import { labelsOfMetrics, readAlerts, readExpressions, selectorsOf } from "./monitoring.ts";

const execute = promisify(execFile);
const folder = join(root, "deploy/monitoring");

describe("deploy/monitoring", () => {
  const defined = labelsOfMetrics();
  const { alerts, dashboard } = readExpressions();

  test.each([...alerts, ...dashboard])("names only metrics and labels that exist: %s", (expression) => {
    const selectors = selectorsOf(expression);
    expect(selectors).not.toEqual([]);
    for (const { metric, labels } of selectors) {
      expect(defined.get(metric), metric).toBeDefined();
      expect(defined.get(metric), metric).toEqual(expect.arrayContaining(labels));
    }
  });

  test("each alert leads to a part of the runbook", () => {
    const headings = readText("deploy/README.md").match(/^## .*/gm) ?? [];
    const anchors = headings.map((heading) => heading.slice(3).toLowerCase().replaceAll(" ", "-"));
    for (const { alert, annotations } of readAlerts()) {
      const [file, anchor] = annotations.runbook.split("#");
      expect(file).toBe("deploy/README.md");
      expect(anchors, alert).toContain(anchor);
    }
  });
});

describe.runIf(await requireServer("promtool", () => execute("promtool", ["--version"])))("promtool", () => {
  test("takes the rules, and they fire when they should", async () => {
    await execute("promtool", ["check", "rules", "alerts.yaml"], { cwd: folder });
    await execute("promtool", ["test", "rules", "alerts.test.yaml"], { cwd: folder });
  });
});

interface Workload {
  kind: string;
  metadata: { namespace: string };
  spec: {
    template: {
      metadata: { labels: Record<string, string>; annotations: Record<string, string> };
      spec: { containers: { ports?: { name: string; containerPort: number }[] }[] };
    };
  };
}

describe.runIf(await requireServer("kubectl", () => execute("kubectl", ["version", "--client"])))("pod monitor", () => {
  test("selects every process that has metrics, by its port", async () => {
    const { spec } = parse(readText("deploy/monitoring/pod-monitor.yaml"));
    const { stdout } = await execute("kubectl", ["kustomize", join(root, "deploy/kubernetes/overlays/pods")]);
    const workloads: Workload[] = parseAllDocuments(stdout).map((document) => document.toJS());
    const scraped = workloads.filter(
      (each) => each.spec?.template?.metadata.annotations?.["prometheus.io/scrape"] === "true",
    );
    expect(scraped).toHaveLength(7);
    for (const { metadata, spec: workload } of scraped) {
      expect(spec.namespaceSelector.matchNames).toContain(metadata.namespace);
      expect(workload.template.metadata.labels).toMatchObject(spec.selector.matchLabels);
      const port = Number(workload.template.metadata.annotations["prometheus.io/port"]);
      const ports = workload.template.spec.containers.flatMap((container) => container.ports ?? []);
      expect(ports).toContainEqual({ name: spec.podMetricsEndpoints[0].port, containerPort: port });
    }
  });
});
