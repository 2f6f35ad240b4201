import { posix } from "node:path";
import { expect, test } from "vitest";
import { networkPolicyOf, type PodEgressPolicy } from "./network-policy.ts";
import { type PodDefaults, podOf, podSecretOf } from "./pod-spec.ts";

const defaults: PodDefaults = {
  installationId: "i1",
  cpuRequestMillis: 50,
  diskMb: 100,
  nameservers: ["1.1.1.1"],
  security: "baseline",
  userNamespaces: false,
  runtimeClass: undefined,
  helperImage: undefined,
  nodeLostSeconds: 30,
  startSeconds: 700,
  architecture: "amd64",
};
const spec = {
  sandboxId: "s1",
  workspaceId: "w1",
  reference: "ghcr.io/team/tool@sha256:aa",
  memoryMb: 256,
  cpus: 1,
  pids: 64,
};
const open = { registryHost: "ghcr.io", username: "", password: "", volumes: [] };
const policy: PodEgressPolicy = { nameservers: ["1.1.1.1"], smtp: false, closed: ["10.0.0.0/8"], deny: [], allow: [] };

test("a pod waits for a Secret only where there is a credential", () => {
  expect(podOf(spec, open, "n", defaults).spec).not.toHaveProperty("schedulingGates");
  const access = { ...open, username: "alice", password: "hunter2" };
  const pod = podOf(spec, access, "n", defaults);
  expect(pod.spec).toMatchObject({
    schedulingGates: [{ name: "sandgate.io/pull-secret" }],
    imagePullSecrets: [{ name: "sandgate-s1" }],
    // A kubelet waits for it, and none of its keys gets into the sandbox.
    volumes: [{ secret: { secretName: "sandgate-s1", items: [{ key: "none" }], optional: true } }],
    containers: [{ volumeMounts: [{ mountPath: "/.sandgate-secret", readOnly: true }] }],
  });
  expect(JSON.stringify(pod)).not.toContain("hunter2");
  const config = JSON.parse(
    podSecretOf({ name: "sandgate-s1", namespace: "n", uid: "u1" }, { access, env: {} }).stringData?.[
      ".dockerconfigjson"
    ] ?? "",
  );
  const credential = { username: "alice", password: "hunter2" };
  // The kubelet doesn't take a port that a reference names for none.
  expect(config.auths).toMatchObject({ "ghcr.io": credential, "ghcr.io:443": credential, "ghcr.io:80": credential });
  const hub = podSecretOf(
    { name: "a", namespace: "n", uid: "u1" },
    { access: { ...access, registryHost: "docker.io" }, env: {} },
  );
  expect(hub.stringData?.[".dockerconfigjson"]).toContain("https://index.docker.io/v1/");
});

test("a pod gets the helper by a container that has no more rights, Secrets or variables", () => {
  const bare = podOf(spec, open, "n", defaults);
  expect(bare.spec?.containers.map(({ name }) => name)).toEqual(["sandbox"]);
  const access = { ...open, username: "alice", password: "hunter2", volumes: ["/.sandgate/", "/data"] };
  const env = { names: ["TOKEN"], find: async () => ({ TOKEN: "s3cret" }) };
  const small = { ...spec, env, memoryMb: 16 };
  const { spec: pod } = podOf(small, access, "n", { ...defaults, helperImage: "r/sandgate:1", security: "restricted" });
  expect(pod).not.toHaveProperty("initContainers");
  const [helper, sandbox] = pod?.containers ?? [];
  expect([helper?.name, sandbox?.name]).toEqual(["helper", "sandbox"]);
  expect(helper).toMatchObject({
    image: "r/sandgate:1",
    command: ["/app/helper", "install", "/.sandgate"],
    volumeMounts: [{ name: "helper", mountPath: "/.sandgate", readOnly: false }],
    securityContext: {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      runAsNonRoot: true,
      capabilities: { drop: ["ALL"] },
    },
  });
  expect(helper).not.toHaveProperty("env");
  expect(helper).not.toHaveProperty("startupProbe");
  // A quota may demand all of them of each container.
  for (const list of ["requests", "limits"] as const) {
    expect(Object.keys(helper?.resources?.[list] ?? {})).toEqual(Object.keys(sandbox?.resources?.[list] ?? {}));
  }
  expect(sandbox?.volumeMounts?.filter(({ mountPath }) => posix.join(mountPath, "/") === "/.sandgate/")).toEqual([
    { name: "helper", mountPath: "/.sandgate", readOnly: true },
  ]);
});

test("a command runs as it is, whatever a kubelet would replace in it", () => {
  expect(podOf(spec, open, "n", defaults).spec?.containers[0]).not.toHaveProperty("command");
  const command = ["sh", "-c", "echo $(HOME) $$ $HOME"];
  const [container] = podOf({ ...spec, command }, open, "n", defaults).spec?.containers ?? [];
  expect(container?.command).toEqual(["sh", "-c", "echo $$(HOME) $$$$ $$HOME"]);
  expect(container).not.toHaveProperty("args");
});

test("environment variables are in the pod's Secret alone, and go before the API server's address", () => {
  const values = { TOKEN: "s3cret $(HOME)", KUBERNETES_PORT: "mine" };
  const env = { names: ["KUBERNETES_PORT", "TOKEN"], find: async () => values };
  const pod = podOf({ ...spec, env }, open, "n", defaults);
  expect(pod.spec).toMatchObject({
    schedulingGates: [{ name: "sandgate.io/pull-secret" }],
    volumes: [{ secret: { secretName: "sandgate-s1", optional: true } }],
  });
  expect(pod.spec).not.toHaveProperty("imagePullSecrets");
  expect(JSON.stringify(pod)).not.toContain("s3cret");
  const variables = pod.spec?.containers[0]?.env ?? [];
  expect(variables.filter(({ name }) => name === "KUBERNETES_PORT")).toEqual([
    { name: "KUBERNETES_PORT", valueFrom: { secretKeyRef: { name: "sandgate-s1", key: "KUBERNETES_PORT" } } },
  ]);
  expect(variables).toContainEqual({ name: "KUBERNETES_SERVICE_HOST", value: "" });
  const secret = podSecretOf({ name: "sandgate-s1", namespace: "n", uid: "u1" }, { access: open, env: values });
  expect(secret).toMatchObject({ type: "Opaque", stringData: values });
});

test("a pod is probed each second until it is ready, and never ended for not being so", () => {
  const probeOf = (readinessPort?: number) =>
    podOf({ ...spec, ...(readinessPort !== undefined && { readinessPort }) }, open, "n", defaults).spec?.containers[0]
      ?.startupProbe;
  const often = { periodSeconds: 1, failureThreshold: 2_147_483_647 };
  expect(probeOf()).toMatchObject({ exec: { command: ["true"] }, ...often });
  expect(probeOf(8080)).toMatchObject({ httpGet: { path: "/", port: 8080 }, ...often });
});

test("no autoscaler is to move a pod, by each one's annotation", () => {
  expect(podOf(spec, open, "n", defaults).metadata?.annotations).toMatchObject({
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
  });
});

test("a deadline is generous at first, and there is none without a time to live", () => {
  expect(podOf(spec, open, "n", defaults).spec).not.toHaveProperty("activeDeadlineSeconds");
  expect(podOf({ ...spec, ttlSeconds: 60 }, open, "n", defaults).spec?.activeDeadlineSeconds).toBe(760);
});

test("an image's volumes are counted directories, each path once", () => {
  const volumes = ["/data", "/data/", "/tmp/../cache", "/", "/a:b", "100%", "/c?d#e"];
  const pod = podOf(spec, { ...open, volumes }, "n", defaults);
  expect(pod.spec?.containers[0]?.volumeMounts?.map(({ mountPath }) => mountPath)).toEqual([
    "/data",
    "/cache",
    "/100%",
    "/c?d#e",
  ]);
  expect(pod.spec?.volumes).toEqual(
    [0, 1, 2, 3].map((index) => ({ name: `volume-${index}`, emptyDir: { sizeLimit: "100Mi" } })),
  );
});

test("a pod has nothing of the cluster and no more rights than root needs inside", () => {
  const pod = podOf(spec, open, "n", defaults).spec;
  expect(pod).toMatchObject({
    restartPolicy: "Never",
    terminationGracePeriodSeconds: 1,
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    dnsPolicy: "None",
    dnsConfig: { nameservers: ["1.1.1.1"], searches: [] },
    securityContext: { seccompProfile: { type: "RuntimeDefault" } },
    nodeSelector: { "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64" },
    topologySpreadConstraints: [{ topologyKey: "kubernetes.io/hostname", whenUnsatisfiable: "ScheduleAnyway" }],
  });
  expect(pod?.tolerations?.map(({ tolerationSeconds }) => tolerationSeconds)).toEqual([30, 30]);
  const [container] = pod?.containers ?? [];
  expect(container).toMatchObject({
    image: spec.reference,
    imagePullPolicy: "Always",
    resources: {
      requests: { cpu: "50m", memory: "256Mi", "ephemeral-storage": "64Mi" },
      limits: { cpu: "1000m", memory: "256Mi", "ephemeral-storage": "100Mi" },
    },
    securityContext: { allowPrivilegeEscalation: false, privileged: false, capabilities: { drop: ["ALL"] } },
  });
  expect(container?.env?.filter(({ value }) => value !== "")).toEqual([]);
  expect(pod).not.toHaveProperty("hostNetwork");
});

test("what is made for a pod is kept with it: a finalizer keeps the pod, and the pod its Secret", () => {
  const { metadata } = podOf(spec, open, "n", defaults);
  expect(metadata).toMatchObject({ name: "sandgate-s1", namespace: "n", finalizers: ["sandgate.io/sandbox"] });
  const access = { ...open, username: "alice", password: "hunter2" };
  expect(podSecretOf({ name: "sandgate-s1", namespace: "n", uid: "u1" }, { access, env: {} }).metadata).toEqual({
    name: "sandgate-s1",
    namespace: "n",
    ownerReferences: [{ apiVersion: "v1", kind: "Pod", name: "sandgate-s1", uid: "u1" }],
  });
});

test("settings choose user namespaces, a RuntimeClass and the restricted level", () => {
  const pod = podOf(spec, open, "n", {
    ...defaults,
    security: "restricted",
    userNamespaces: true,
    runtimeClass: "gvisor",
  });
  expect(pod.spec).toMatchObject({
    hostUsers: false,
    runtimeClassName: "gvisor",
    securityContext: { runAsNonRoot: true, seccompProfile: { type: "RuntimeDefault" } },
  });
  expect(pod.spec?.containers[0]?.securityContext?.capabilities).toEqual({ drop: ["ALL"], add: ["NET_BIND_SERVICE"] });
});

test("the network policy opens the outside but for SMTP, and the resolvers", () => {
  const { spec: rules } = networkPolicyOf("i1", "n", policy);
  expect(rules).toMatchObject({ policyTypes: ["Ingress", "Egress"], ingress: [] });
  expect(rules?.egress).toEqual([
    {
      to: [{ ipBlock: { cidr: "1.1.1.1/32" } }],
      ports: [
        { protocol: "UDP", port: 53 },
        { protocol: "TCP", port: 53 },
      ],
    },
    {
      to: [{ ipBlock: { cidr: "0.0.0.0/0", except: ["10.0.0.0/8"] } }],
      ports: [
        { protocol: "TCP", port: 1, endPort: 24 },
        { protocol: "TCP", port: 26, endPort: 65_535 },
        { protocol: "UDP", port: 1, endPort: 65_535 },
      ],
    },
  ]);
});

test("the operator's lists close and open networks and single ports, and what is closed counts first", () => {
  const { spec: rules } = networkPolicyOf("i1", "n", {
    ...policy,
    smtp: true,
    deny: [
      { network: "203.0.113.0/24", port: undefined },
      { network: "198.51.100.7/32", port: 443 },
      { network: "10.1.2.0/24", port: undefined },
    ],
    allow: [{ network: "10.1.0.0/16", port: 5432 }],
  });
  const [, outside, ports, allowed] = rules?.egress ?? [];
  expect(outside?.to?.[0]?.ipBlock?.except).toEqual(["10.0.0.0/8", "203.0.113.0/24", "198.51.100.7/32"]);
  expect(ports).toEqual({
    to: [{ ipBlock: { cidr: "198.51.100.7/32" } }],
    ports: [
      { protocol: "TCP", port: 1, endPort: 442 },
      { protocol: "TCP", port: 444, endPort: 65_535 },
      { protocol: "UDP", port: 1, endPort: 442 },
      { protocol: "UDP", port: 444, endPort: 65_535 },
    ],
  });
  expect(allowed).toEqual({
    to: [{ ipBlock: { cidr: "10.1.0.0/16", except: ["10.1.2.0/24"] } }],
    ports: [
      { protocol: "TCP", port: 5432 },
      { protocol: "UDP", port: 5432 },
    ],
  });
});

test("a closed port of a private network, or of one within a closed one, opens nothing", () => {
  const { spec: rules } = networkPolicyOf("i1", "n", { ...policy, deny: [{ network: "10.9.0.0/16", port: 80 }] });
  expect(rules?.egress).toHaveLength(2);
  const within = networkPolicyOf("i1", "n", {
    ...policy,
    deny: [
      { network: "203.0.113.0/24", port: undefined },
      { network: "203.0.113.7/32", port: 80 },
    ],
  });
  expect(within.spec?.egress).toHaveLength(2);
});

test("a closed port counts for what is opened too", () => {
  const { spec: rules } = networkPolicyOf("i1", "n", {
    ...policy,
    smtp: true,
    deny: [{ network: "10.1.2.3/32", port: 22 }],
    allow: [{ network: "10.1.0.0/16", port: undefined }],
  });
  const opened = rules?.egress?.filter(({ to }) => to?.[0]?.ipBlock?.cidr?.startsWith("10.")) ?? [];
  expect(
    opened.map(({ to, ports }) => [to?.[0]?.ipBlock, ports?.filter(({ protocol }) => protocol === "TCP")]),
  ).toEqual([
    [{ cidr: "10.1.0.0/16", except: ["10.1.2.3/32"] }, [{ protocol: "TCP", port: 1, endPort: 65_535 }]],
    [
      { cidr: "10.1.2.3/32" },
      [
        { protocol: "TCP", port: 1, endPort: 21 },
        { protocol: "TCP", port: 23, endPort: 65_535 },
      ],
    ],
  ]);
});
