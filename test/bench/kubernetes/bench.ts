import type { TestCluster } from "@sandgate/test-support/cluster";
import { createToken, deployed } from "../../deploy/cluster-rights.ts";
import { unlimitedSandboxes } from "../../platform/limits.ts";
import type { TestPlatform } from "../../platform/local.ts";
import { startOnCluster } from "../../platform/on-cluster.ts";
import { type Operator, openOperator, readRows } from "../../platform/operator.ts";
import { type JsonClient, openJsonClient } from "../json-client.ts";

/** What the parts of the bench share. */
export interface Bench {
  cluster: TestCluster;
  /** Of the API server's certificate, PEM. */
  certificateAuthority: Buffer;
  /** A reference at a registry that needs no credential. */
  image: string;
  /** Where a container of the image answers. */
  port: number;
  /** What real pods get the helper from. */
  helperImage: string;
}

/** The path of the sandboxes' pods. */
export const podsPath = `/api/v1/namespaces/${deployed.sandboxes}/pods`;

/** The ids of the sandboxes' records that a platform is not done with. */
export function readRecords(platform: TestPlatform): string[] {
  const rows = readRows(platform, "sandbox", "SELECT id FROM sandboxes WHERE cleaned_at IS NULL");
  return rows.map(({ id }) => String(id));
}

/** Of a platform on the cluster, besides those that any has there. */
export const benchSettings = {
  SANDGATE_LOG_LEVEL: "warn",
  SANDGATE_KUBERNETES_WRITES_PER_SECOND: "10000",
  ...unlimitedSandboxes,
};

/** A platform on the cluster, with clients of its API and of the API server. */
export interface Opened {
  platform: TestPlatform;
  operator: Operator;
  /** Of the platform, as the operator. */
  api: JsonClient;
  /** Of the API server, with the platform's rights. */
  client: JsonClient;
}

export async function openOnBench(
  bench: Bench,
  closing: AsyncDisposableStack,
  settings: Record<string, string> = {},
): Promise<Opened> {
  const client = closing.adopt(await openBareClient(bench), (each) => each.close());
  const started = startOnCluster(bench.cluster, { settings: { ...benchSettings, ...settings } });
  const platform = closing.adopt(await started, (each) => each.stop());
  const operator = await openOperator(platform);
  return { platform, operator, api: openApiClient(platform, operator, closing), client };
}

/** A client of a platform's API, as its operator. */
export function openApiClient({ url }: { url: string }, { as }: Operator, closing: AsyncDisposableStack): JsonClient {
  const headers = { authorization: `Bearer ${as.token}` };
  return closing.adopt(openJsonClient(url, { headers }), (each) => each.close());
}

/** A client of the API server with the same rights. */
export async function openBareClient({ cluster, certificateAuthority }: Bench): Promise<JsonClient> {
  const token = await createToken(cluster, deployed.sandbox);
  return openJsonClient(cluster.server, { headers: { authorization: `Bearer ${token}` }, ca: certificateAuthority });
}

/** How many pods there are. */
export async function countPods(client: JsonClient): Promise<number> {
  const { items, metadata } = await client.call("GET", `${podsPath}?limit=1`);
  return items.length + (metadata.remainingItemCount ?? 0);
}

/**
 * Waits until there have been that many pods, `until` aborts, or the cluster fails. By a watch for little more than
 * their names, since a busy API server takes half a second for a list.
 */
export async function awaitPods(client: JsonClient, count: number, until: AbortSignal): Promise<void> {
  const seen = new Set<string>();
  const counted = new AbortController();
  const signal = AbortSignal.any([counted.signal, until]);
  const see = ({ metadata }: { metadata: { name: string } }) => {
    seen.add(metadata.name);
    if (seen.size === count) counted.abort();
  };
  const as = (kind: string) => ({ accept: `application/json;as=${kind};g=meta.k8s.io;v=v1` });
  // A server may end a watch that it can't keep up with.
  while (!signal.aborted) {
    const { items, metadata } = await client.call("GET", podsPath, { headers: as("PartialObjectMetadataList") });
    // An empty list of these is null.
    items?.forEach(see);
    await client.follow(`${podsPath}?watch=true&resourceVersion=${metadata.resourceVersion}`, {
      headers: as("PartialObjectMetadata"),
      signal,
      onLine(line) {
        if (line.startsWith('{"type":"ADDED"')) see(JSON.parse(line).object);
      },
    });
  }
}

/** A pod as the API server takes and gives it. */
export interface PodObject {
  metadata: { name: string; labels: Record<string, string> };
  spec: Record<string, unknown> & { containers: { name: string }[] };
}

/** The pod of a sandbox as somebody else would create it: with the same spec, of no installation that is watched. */
export async function readBarePod(client: JsonClient, sandboxId: string): Promise<(name: string) => PodObject> {
  const pod: PodObject = await client.call("GET", `${podsPath}/sandgate-${sandboxId}`);
  const installation = pod.metadata.labels["sandgate.io/installation"] ?? "";
  const { nodeName: _, ...spec } = pod.spec;
  const text = JSON.stringify({ metadata: { labels: pod.metadata.labels }, spec }).replaceAll(installation, "bare");
  return (name) => {
    const { metadata, ...rest }: PodObject = JSON.parse(text);
    return { apiVersion: "v1", kind: "Pod", ...rest, metadata: { ...metadata, name } };
  };
}
