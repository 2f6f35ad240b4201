import { posix } from "node:path";
import type { V1EnvVar, V1Pod, V1Secret } from "@kubernetes/client-node";
import { containerLabels, containerNameOf, installationLabels } from "@sandgate/container-labels";
import { containerName, helperContainerName } from "@sandgate/kubernetes-api/raw-pod";
import type { ImageAccess } from "../images.ts";
import { capabilities } from "../isolation/capabilities.ts";
import type { RuntimeSpec } from "../lifecycle.ts";
import { helperFolder } from "../operations.ts";
import { finalizer, pullGate } from "./pod.ts";

/**
 * Seconds between SIGTERM and SIGKILL when the kubelet ends a pod by itself, above all at its deadline. The kubelet
 * rounds it up to two. A stop by a user brings its own grace with the deletion.
 */
const graceSeconds = 1;

/**
 * MiB of a node's disk that each pod requests. The limit is what a sandbox may write at most, and few write that much.
 */
const diskRequestMb = 64;

/** Never reached: a sandbox that isn't ready in time is ended by the platform. */
const endless = 2_147_483_647;

/** The address of the API server, which the kubelet puts into every pod's environment, even without service links. */
const serverVariables = [
  "KUBERNETES_SERVICE_HOST",
  "KUBERNETES_SERVICE_PORT",
  "KUBERNETES_SERVICE_PORT_HTTPS",
  "KUBERNETES_PORT",
  "KUBERNETES_PORT_443_TCP",
  "KUBERNETES_PORT_443_TCP_PROTO",
  "KUBERNETES_PORT_443_TCP_PORT",
  "KUBERNETES_PORT_443_TCP_ADDR",
];

/**
 * Where a pod with a Secret has an empty directory: a volume of its Secret, without any of the Secret's keys. A
 * node may read a Secret only a moment after it was given the pod. Until then a kubelet pulls without the Secret, but
 * waits for a volume of it, and it pulls after that. The volume is optional, as the Secret goes once the container
 * runs. In no folder of the image, where that may have a file.
 */
const secretFolder = "/.sandgate-secret";

/** Where an image has the helper (deploy/Dockerfile). */
const helperProgram = "/app/helper";
/** Whoever the helper's image runs as. */
const helperUser = 1_000;
/**
 * What its container may take, and what the scheduler sets aside for it as long as the pod lives, though it runs for
 * some ms: next to nothing but the disk for its copy of 10 MiB, which stays.
 */
const helperResources = {
  requests: { cpu: "1m", memory: "1Mi", "ephemeral-storage": "12Mi" },
  limits: { cpu: "200m", memory: "32Mi", "ephemeral-storage": "32Mi" },
};

/** What the pods of one installation have in common. */
export interface PodDefaults {
  installationId: string;
  /** Thousandths of a core that the scheduler sets aside for each sandbox. */
  cpuRequestMillis: number;
  /** MiB that a sandbox may write, its log included. */
  diskMb: number;
  nameservers: readonly string[];
  /** Pod Security's level. */
  security: "baseline" | "restricted";
  /** Whether root in the pod has no rights on its node. */
  userNamespaces: boolean;
  runtimeClass: string | undefined;
  /** Seconds after which a pod leaves a node that doesn't answer. */
  nodeLostSeconds: number;
  /** Seconds that a pod may take until its container runs. */
  startSeconds: number;
  /** The image that the helper is copied from; undefined: pods have none. */
  helperImage: string | undefined;
  /** The architecture that references are pinned for: `amd64` or `arm64`. */
  architecture: string;
}

/**
 * How a sandbox's pod is created. With a credential or environment variables, it waits for its Secret, which has the
 * pod's name.
 */
export function podOf(spec: RuntimeSpec, access: ImageAccess, namespace: string, defaults: PodDefaults): V1Pod {
  const { sandboxId, workspaceId, readinessPort, ttlSeconds } = spec;
  const { installationId, diskMb, nodeLostSeconds } = defaults;
  const name = containerNameOf(sandboxId);
  const isPrivate = access.username !== "";
  const hasSecret = isPrivate || spec.env !== undefined;
  const volumes = [
    // What is written to the image's volumes counts as written by the pod.
    ...volumePaths(access.volumes).map((path, index) => ({
      volume: { name: `volume-${index}`, emptyDir: { sizeLimit: `${diskMb}Mi` } },
      mount: { name: `volume-${index}`, mountPath: path },
    })),
    ...(hasSecret ? [secretVolumeOf(name)] : []),
    ...(defaults.helperImage === undefined ? [] : [helperVolume]),
  ];
  const isRestricted = defaults.security === "restricted";
  const unreachable = ["not-ready", "unreachable"].map((taint) => ({
    key: `node.kubernetes.io/${taint}`,
    operator: "Exists",
    effect: "NoExecute",
    tolerationSeconds: nodeLostSeconds,
  }));
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name,
      namespace,
      labels: containerLabels({ sandboxId, workspaceId, installationId }),
      annotations: {
        // kubectl takes the first one otherwise.
        "kubectl.kubernetes.io/default-container": containerName,
        // An autoscaler must not move what can't be moved. Each has an annotation of its own.
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
        "karpenter.sh/do-not-disrupt": "true",
      },
      finalizers: [finalizer],
    },
    spec: {
      restartPolicy: "Never",
      terminationGracePeriodSeconds: graceSeconds,
      // Lowered to the time to live once the container runs; until then it ends pods that the platform has lost.
      ...(ttlSeconds !== undefined && { activeDeadlineSeconds: defaults.startSeconds + ttlSeconds }),
      ...(hasSecret && { schedulingGates: [{ name: pullGate }] }),
      ...(isPrivate && { imagePullSecrets: [{ name }] }),
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      hostname: sandboxId,
      dnsPolicy: "None",
      dnsConfig: {
        nameservers: [...defaults.nameservers],
        // Without a search domain nothing of the cluster is looked up.
        searches: [],
        options: [{ name: "ndots", value: "1" }],
      },
      ...(defaults.userNamespaces && { hostUsers: false }),
      ...(defaults.runtimeClass !== undefined && { runtimeClassName: defaults.runtimeClass }),
      nodeSelector: { "kubernetes.io/os": "linux", "kubernetes.io/arch": defaults.architecture },
      tolerations: unreachable,
      topologySpreadConstraints: [
        {
          maxSkew: 1,
          topologyKey: "kubernetes.io/hostname",
          whenUnsatisfiable: "ScheduleAnyway",
          labelSelector: { matchLabels: installationLabels(installationId) },
        },
      ],
      securityContext: {
        seccompProfile: { type: "RuntimeDefault" },
        ...(isRestricted && { runAsNonRoot: true }),
      },
      containers: [
        // First: so it has ended before the kubelet looks whether the sandbox has started.
        ...(defaults.helperImage === undefined ? [] : [helperContainerOf(defaults.helperImage)]),
        {
          name: containerName,
          image: spec.reference,
          ...(spec.command && { command: spec.command.map(literal) }),
          // With the sandbox's own credential each time, even where the node has the image.
          imagePullPolicy: "Always",
          env: environmentOf(name, spec),
          resources: resourcesOf(spec, defaults),
          securityContext: {
            allowPrivilegeEscalation: false,
            privileged: false,
            capabilities: { drop: ["ALL"], add: isRestricted ? ["NET_BIND_SERVICE"] : [...capabilities] },
          },
          // A startup probe, as it ends with its first success. What can't be run, `true` in an image without it, is no
          // failure. The first one comes up to a period after the start.
          startupProbe:
            readinessPort === undefined
              ? { exec: { command: ["true"] }, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: endless }
              : {
                  httpGet: { path: "/", port: readinessPort, scheme: "HTTP" },
                  periodSeconds: 1,
                  timeoutSeconds: 2,
                  failureThreshold: endless,
                },
          ...(volumes.length > 0 && {
            volumeMounts: volumes.map(({ mount }) => mount),
          }),
        },
      ],
      ...(volumes.length > 0 && { volumes: volumes.map(({ volume }) => volume) }),
    },
  };
}

/** The variables of the container: its own are in its Secret, which nobody sees who may only see pods. */
function environmentOf(secretName: string, { env }: RuntimeSpec): V1EnvVar[] {
  const own = env?.names ?? [];
  const unset = serverVariables.filter((name) => !own.includes(name));
  return [
    ...unset.map((name) => ({ name, value: "" })),
    ...own.map((name) => ({ name, valueFrom: { secretKeyRef: { name: secretName, key: name } } })),
  ];
}

/** The text as the kubelet takes it, which would replace `$(NAME)` by a variable, and `$$` by `$`. */
function literal(text: string): string {
  return text.replaceAll("$", "$$$$");
}

function resourcesOf({ cpus, memoryMb }: RuntimeSpec, { cpuRequestMillis, diskMb }: PodDefaults) {
  const millis = Math.round(cpus * 1000);
  return {
    requests: {
      cpu: `${Math.min(cpuRequestMillis, millis)}m`,
      memory: `${memoryMb}Mi`,
      "ephemeral-storage": `${Math.min(diskRequestMb, diskMb)}Mi`,
    },
    limits: {
      cpu: `${millis}m`,
      memory: `${memoryMb}Mi`,
      "ephemeral-storage": `${diskMb}Mi`,
    },
  };
}

const helperVolume = {
  volume: { name: "helper", emptyDir: { sizeLimit: helperResources.limits["ephemeral-storage"] } },
  mount: { name: "helper", mountPath: helperFolder, readOnly: true },
};

/**
 * Copies the helper, and ends; a sandbox is ready after that. It is no init container, as a kubelet looks only once a
 * second whether one has ended.
 */
function helperContainerOf(image: string) {
  return {
    name: helperContainerName,
    image,
    imagePullPolicy: "IfNotPresent",
    command: [helperProgram, "install", helperFolder],
    resources: helperResources,
    securityContext: {
      allowPrivilegeEscalation: false,
      privileged: false,
      readOnlyRootFilesystem: true,
      runAsNonRoot: true,
      runAsUser: helperUser,
      runAsGroup: helperUser,
      capabilities: { drop: ["ALL"] },
    },
    volumeMounts: [{ ...helperVolume.mount, readOnly: false }],
  };
}

function secretVolumeOf(secretName: string) {
  const name = "pull-secret";
  const none = [{ key: "none", path: "none" }];
  return {
    volume: { name, secret: { secretName, optional: true, items: none } },
    mount: { name, mountPath: secretFolder, readOnly: true },
  };
}

/** The paths that an image declares as volumes, each once, as Kubernetes takes them. */
function volumePaths(declared: readonly string[]): string[] {
  const paths = declared.map((path) => posix.resolve("/", path));
  const ours = ["/", secretFolder, helperFolder];
  return [...new Set(paths)].filter((path) => !ours.includes(path) && !path.includes(":"));
}

/** What a pod's Secret has. It goes with the pod. */
export interface SecretContent {
  /** How its image is pulled. */
  access: ImageAccess;
  /** Its environment variables. */
  env: Readonly<Record<string, string>>;
}

export function podSecretOf(pod: { name: string; namespace: string; uid: string }, content: SecretContent): V1Secret {
  const { access, env } = content;
  return {
    apiVersion: "v1",
    kind: "Secret",
    metadata: {
      name: pod.name,
      namespace: pod.namespace,
      ownerReferences: [{ apiVersion: "v1", kind: "Pod", name: pod.name, uid: pod.uid }],
    },
    type: access.username === "" ? "Opaque" : "kubernetes.io/dockerconfigjson",
    stringData: { ...env, ...(access.username !== "" && { ".dockerconfigjson": JSON.stringify(configOf(access)) }) },
  };
}

function configOf({ registryHost, username, password }: ImageAccess) {
  const auth = Buffer.from(`${username}:${password}`).toString("base64");
  return { auths: Object.fromEntries(serversOf(registryHost).map((server) => [server, { username, password, auth }])) };
}

/** The names by which the kubelet may look for a registry's credential. */
function serversOf(registryHost: string): string[] {
  // It knows Docker Hub by this address alone.
  if (registryHost === "docker.io") return ["https://index.docker.io/v1/"];
  // It compares ports as text, and a reference may name the default one, of https or of http.
  return /:\d+$/.test(registryHost) ? [registryHost] : [registryHost, `${registryHost}:443`, `${registryHost}:80`];
}
