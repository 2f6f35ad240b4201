import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { OwnCluster } from "@sandgate/test-support/cluster";
import { deployed } from "../../deploy/cluster-rights.ts";

function describeVariable([name, value]: [string, string | { fieldRef: object }]): object {
  return typeof value === "string" ? { name, value } : { name, valueFrom: value };
}

/** What an operator sets over overlays/pods. */
export interface Overlay {
  own: OwnCluster;
  /** The platform's. */
  image: { name: string; tag: string };
  registries: readonly string[];
  facadePort: number;
  /** Of a gateway of previews, which is there if it is given. */
  gatewayPort: number | undefined;
  apiServer: { address: string; port: number };
  replicas: number;
  settings: Readonly<Record<string, string>>;
  defaultImage: string;
}

/** Writes the overlay to the folder `overlay` below this one. */
export async function writeOverlay(folder: string, o: Overlay): Promise<void> {
  const { kustomization, policies } = describeOverlay(o);
  // JSON is YAML.
  await writeFile(join(folder, "overlay/kustomization.yaml"), JSON.stringify(kustomization));
  await writeFile(join(folder, "overlay/policies.yaml"), JSON.stringify(policies));
}

/** What an operator writes over overlays/pods. */
function describeOverlay(o: Overlay) {
  const { own } = o;
  const variables = (kind: string, name: string, values: Readonly<Record<string, string | { fieldRef: object }>>) => ({
    patch: JSON.stringify({
      apiVersion: "apps/v1",
      kind,
      metadata: { name, namespace: "any" },
      spec: {
        template: {
          spec: {
            containers: [{ name: "process", env: Object.entries(values).map(describeVariable) }],
          },
        },
      },
    }),
    target: { kind, name },
  });
  const change = (kind: string, name: string | undefined, ...operations: object[]) => ({
    patch: JSON.stringify(operations),
    target: { kind, ...(name && { name }) },
  });
  const replace = (path: string, value: unknown) => ({ op: "replace", path, value });
  const atNode = (service: string, port: number) =>
    change(
      "Service",
      service,
      { op: "add", path: "/spec/type", value: "NodePort" },
      { op: "add", path: "/spec/ports/0/nodePort", value: port },
    );
  const { gatewayPort } = o;
  const kubeletPort = Number(new URL(own.kubeletUrl).port);
  return {
    kustomization: {
      apiVersion: "kustomize.config.k8s.io/v1beta1",
      kind: "Kustomization",
      resources: [
        "../deploy/kubernetes/overlays/pods",
        ...(gatewayPort ? ["../deploy/kubernetes/gateway"] : []),
        "policies.yaml",
      ],
      images: [{ name: "sandgate", newName: o.image.name, newTag: o.image.tag }],
      configMapGenerator: [
        {
          name: "settings",
          namespace: deployed.sandbox.namespace,
          behavior: "merge",
          literals: Object.entries(o.settings).map(([name, value]) => `${name}=${value}`),
        },
      ],
      replicas: ["workspace", "image-registry", "sandbox", "telemetry"].map((name) => ({ name, count: o.replicas })),
      patches: [
        change("HorizontalPodAutoscaler", undefined, replace("/spec/minReplicas", o.replicas)),
        change("Deployment", undefined, replace("/spec/template/spec/containers/0/resources/requests/cpu", "30m")),
        atNode("facade", o.facadePort),
        ...(gatewayPort ? [atNode("gateway", gatewayPort)] : []),
        variables("Deployment", "identity", { SANDGATE_SMTP_URL_FILE: "/run/sandgate/smtp-url" }),
        variables("Deployment", "image-registry", {
          SANDGATE_REGISTRY_ALLOW: o.registries.join(),
          SANDGATE_DEFAULT_IMAGE: o.defaultImage,
        }),
        variables("Deployment", "sandbox", {
          SANDGATE_REGISTRY_ALLOW: o.registries.join(),
          // Its kubelet evicts nothing before the machine's disk is full.
          SANDGATE_PULL_RESERVE_PERCENT: "0",
        }),
        ...["facade", "identity"].map((name) =>
          variables("Deployment", name, { SANDGATE_REDIRECT_URIS: o.settings.SANDGATE_REDIRECT_URIS ?? "" }),
        ),
        variables("DaemonSet", "collector", {
          NODE_ADDRESS: { fieldRef: { fieldPath: "status.hostIP" } },
          SANDGATE_KUBELET_URL: `https://$(NODE_ADDRESS):${kubeletPort}`,
        }),
        // Several kubelets share this machine.
        change("DaemonSet", "collector", replace("/spec/template/spec/volumes/1/hostPath/path", own.podLogsFolder)),
        change("NetworkPolicy", "collector", replace("/spec/egress/2/ports/0/port", kubeletPort)),
        change(
          "NetworkPolicy",
          "to-api-server",
          replace("/spec/egress/0/to/0/ipBlock/cidr", `${o.apiServer.address}/32`),
          replace("/spec/egress/0/ports/1/port", o.apiServer.port),
        ),
      ],
    },
    policies: {
      apiVersion: "networking.k8s.io/v1",
      kind: "NetworkPolicy",
      metadata: { name: "to-private-registry", namespace: deployed.sandbox.namespace },
      spec: {
        podSelector: {
          matchExpressions: [{ key: "app.kubernetes.io/name", operator: "In", values: ["image-registry", "sandbox"] }],
        },
        policyTypes: ["Egress"],
        egress: o.registries.map((host) => {
          const [address, port] = host.split(":");
          return { to: [{ ipBlock: { cidr: `${address}/32` } }], ports: [{ port: Number(port) }] };
        }),
      },
    },
  };
}
