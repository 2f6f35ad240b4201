import type { RawPod } from "@sandgate/kubernetes-api/raw-pod";
import { describe, expect, test } from "vitest";
import { finalizer, pullGate, readPod } from "./pod.ts";
import { isNews, observationOf, pullProblemOf } from "./states.ts";

const now = new Date("2026-01-02T03:05:00Z");
const created = "2026-01-02T03:04:00Z";
const started = "2026-01-02T03:04:03Z";

type Status = NonNullable<RawPod["status"]>;
type ContainerStatus = NonNullable<Status["containerStatuses"]>[number];

function rawPod(
  o: { status?: Status; deleted?: string; graceSeconds?: number; finalizers?: string[]; node?: string | null } = {},
): RawPod {
  return {
    metadata: {
      name: "sandgate-s1",
      namespace: "sandboxes",
      uid: "u1",
      resourceVersion: "7",
      creationTimestamp: created,
      ...(o.deleted !== undefined && { deletionTimestamp: o.deleted }),
      ...(o.graceSeconds !== undefined && { deletionGracePeriodSeconds: o.graceSeconds }),
      finalizers: o.finalizers ?? [finalizer],
      labels: {
        "sandgate.io/sandbox-id": "s1",
        "sandgate.io/workspace-id": "w1",
        "sandgate.io/installation": "i1",
      },
    },
    spec: { ...(o.node !== null && { nodeName: o.node ?? "node1" }), containers: [{ name: "sandbox" }] },
    ...(o.status && { status: o.status }),
  };
}

function see(o: Parameters<typeof rawPod>[0]) {
  const pod = readPod(rawPod(o), "i1");
  if (!pod) throw new Error("not a sandbox's pod");
  return observationOf(pod, now);
}

const running: Status = {
  phase: "Running",
  containerStatuses: [{ name: "sandbox", state: { running: { startedAt: started } } }],
};
const waiting = (reason: string, message = ""): Status => ({
  phase: "Pending",
  containerStatuses: [{ name: "sandbox", state: { waiting: { reason, message } } }],
});
const terminated = (
  end: NonNullable<NonNullable<ContainerStatus["state"]>["terminated"]>,
  rest: Status = {},
): Status => ({
  phase: end.exitCode === 0 ? "Succeeded" : "Failed",
  containerStatuses: [{ name: "sandbox", state: { terminated: { startedAt: started, ...end } } }],
  ...rest,
});
const disrupted = (reason: string, message = ""): Status => ({
  conditions: [{ type: "DisruptionTarget", status: "True", reason, message }],
});

describe("a pod's phase", () => {
  test("is the sandbox's", () => {
    expect(see({})).toMatchObject({
      sandboxId: "s1",
      phase: "created",
      createdAt: new Date(created),
    });
    expect(see({ status: waiting("ContainerCreating") })).not.toHaveProperty("problem");
    expect(see({ status: running })).toMatchObject({ phase: "running", startedAt: new Date(started) });
    expect(see({ status: terminated({ exitCode: 4, reason: "Error" }) })).toMatchObject({
      phase: "exited",
      exitCode: 4,
      outOfMemory: false,
    });
    expect(see({ status: terminated({ exitCode: 137, reason: "OOMKilled" }) })).toMatchObject({ outOfMemory: true });
    expect(see({ status: terminated({ exitCode: 3, reason: "OOMKilled" }) })).toMatchObject({ outOfMemory: false });
  });

  test("is unknown of what is no sandbox's pod, and of one that is being removed", () => {
    const stranger = rawPod();
    expect(readPod({ ...stranger, metadata: { ...stranger.metadata, labels: {} } }, "i1")).toBeUndefined();
    expect(readPod(stranger, "i2")).toBeUndefined();
    expect(see({ status: running, deleted: started, finalizers: [] })).toBeUndefined();
    expect(see({ status: running, finalizers: [] })).toMatchObject({ phase: "running" });
  });

  test("is created where the container could not be started, although the kubelet calls it ended", () => {
    const status = terminated({
      exitCode: 128,
      reason: "StartError",
      startedAt: "1970-01-01T00:00:00Z",
      message:
        'OCI runtime create failed: runc create failed: unable to start container process: exec: "/no": no such file: unknown',
    });
    expect(see({ status })).toMatchObject({
      phase: "created",
      problem: {
        reason: "start_failed",
        isFinal: true,
        message: "The container could not be started: the image lacks its command, or what that needs to run.",
      },
    });
  });
});

describe("the container that brings the helper", () => {
  const brought = { terminated: { exitCode: 0, reason: "Completed" } };
  const withHelper = (state: ContainerStatus["state"], { containerStatuses = [], ...rest }: Status) => {
    const raw = rawPod({
      status: { ...rest, containerStatuses: [{ name: "helper", ...(state && { state }) }, ...containerStatuses] },
    });
    const pod = readPod({ ...raw, spec: { ...raw.spec, containers: [{ name: "helper" }, { name: "sandbox" }] } }, "i1");
    if (!pod) throw new Error("not a sandbox's pod");
    return observationOf(pod, now);
  };
  const started: Status = {
    ...running,
    containerStatuses: running.containerStatuses?.map((each) => ({ ...each, started: true })) ?? [],
  };
  const node = { reason: "node_error", message: "The node can't get the platform's helper." };

  test("is no problem while it is on its way, and once it has done its work", () => {
    for (const state of [
      undefined,
      { waiting: { reason: "ContainerCreating" } },
      { running: { startedAt: created } },
    ]) {
      expect(withHelper(state, waiting("ContainerCreating"))).not.toHaveProperty("problem");
      expect(withHelper(state, started)).toMatchObject({ phase: "running" });
      expect(withHelper(state, started)).not.toHaveProperty("isReady");
    }
    expect(withHelper(brought, waiting("ContainerCreating"))).toMatchObject({ phase: "created" });
    expect(withHelper(brought, started)).toMatchObject({ phase: "running", isReady: true });
    expect(withHelper(brought, running)).not.toHaveProperty("isReady");
  });

  test("is the platform's to mend, in words of ours, and its sandbox isn't ready without", () => {
    const pulling = { waiting: { reason: "ErrImagePull", message: "unauthorized" } };
    const detail = "the container that brings the helper: ErrImagePull unauthorized";
    expect(withHelper(pulling, waiting("ContainerCreating"))).toMatchObject({
      phase: "created",
      problem: { ...node, detail, isFinal: false },
    });
    const waitingForIt = withHelper(pulling, started);
    expect(waitingForIt).toMatchObject({ phase: "running", problem: { ...node, detail, isFinal: false } });
    expect(waitingForIt).not.toHaveProperty("isReady");
    const failed = { terminated: { exitCode: 1, reason: "Error", message: "no space left" } };
    expect(withHelper(failed, started)).toMatchObject({ phase: "running", problem: { ...node, isFinal: true } });
  });

  test("says nothing of how its sandbox ended", () => {
    const failed = { terminated: { exitCode: 1, reason: "Error" } };
    const seen = withHelper(failed, terminated({ exitCode: 4, reason: "Error" }));
    expect(seen).toMatchObject({ phase: "exited", exitCode: 4 });
    expect(seen).not.toHaveProperty("failure");
  });
});

test("a pod that never ran has no times that could be read", () => {
  const status = terminated({ exitCode: 137, reason: "ContainerStatusUnknown", startedAt: null });
  expect(see({ status })).not.toHaveProperty("startedAt");
});

describe("when a container started", () => {
  const scheduled = { type: "PodScheduled", status: "True", lastTransitionTime: "2026-01-02T03:04:01Z" };
  // By the control plane's clock as well, and later than the node's last report.
  const taken = { type: "DisruptionTarget", status: "True", lastTransitionTime: "2026-01-02T03:05:30Z" };
  /** As a node's clock has them, and when its report came by the control plane's. */
  const at = (acceptedAt: string, startedAt: string, reportedAt?: string, ready = startedAt, lostAt = ready) => {
    const raw = rawPod({
      status: {
        phase: "Running",
        startTime: acceptedAt,
        conditions: [
          scheduled,
          taken,
          { type: "ContainersReady", status: "True", lastTransitionTime: ready },
          { type: "Ready", status: "True", lastTransitionTime: lostAt },
        ],
        containerStatuses: [{ name: "sandbox", state: { running: { startedAt } } }],
      },
    });
    const report = { fieldsV1: { "f:status": { "f:startTime": {} } } };
    const later = { time: "2026-01-02T03:05:00Z", fieldsV1: {} };
    raw.metadata.managedFields = [later, { ...report, ...(reportedAt !== undefined && { time: reportedAt }) }];
    const pod = readPod(raw, "i1");
    return pod && observationOf(pod, now)?.startedAt?.toISOString();
  };

  test("is told by the control plane's clock where the node's is off", () => {
    expect(at("2026-01-02T03:04:02Z", "2026-01-02T03:04:10Z", "2026-01-02T03:04:11Z")).toBe("2026-01-02T03:04:10.000Z");
    expect(at("2026-01-02T03:05:01Z", "2026-01-02T03:05:10Z", "2026-01-02T03:04:10Z")).toBe("2026-01-02T03:04:10.000Z");
    expect(at("2026-01-02T03:03:01Z", "2026-01-02T03:03:10Z", "2026-01-02T03:04:11Z")).toBe("2026-01-02T03:04:10.000Z");
  });

  test("stays the same when the node reports something later", () => {
    const readyAt = "2026-01-02T03:05:40Z";
    expect(at("2026-01-02T03:05:01Z", "2026-01-02T03:05:10Z", "2026-01-02T03:04:40Z", readyAt)).toBe(
      "2026-01-02T03:04:10.000Z",
    );
  });

  test("is as the node says where it took the pod up late, as a kubelet that was restarted does, or reported late", () => {
    const startedAt = "2026-01-02T03:04:50Z";
    expect(at("2026-01-02T03:04:41Z", startedAt, "2026-01-02T03:04:51Z")).toBe("2026-01-02T03:04:50.000Z");
    expect(at("2026-01-02T03:04:41Z", startedAt)).toBe("2026-01-02T03:04:50.000Z");
    expect(at("2026-01-02T03:04:02Z", "2026-01-02T03:04:10Z", "2026-01-02T03:04:59Z")).toBe("2026-01-02T03:04:10.000Z");
  });

  test("stays the same when the control plane says that the node is lost", () => {
    const startedAt = "2026-01-02T03:04:10Z";
    const lostAt = "2026-01-02T03:04:58Z";
    expect(at("2026-01-02T03:04:02Z", startedAt, "2026-01-02T03:04:11Z", startedAt, lostAt)).toBe(
      "2026-01-02T03:04:10.000Z",
    );
  });

  test("is neither before it was created nor later than now", () => {
    expect(at("2026-01-02T03:04:01Z", "2026-01-02T03:03:59Z")).toBe("2026-01-02T03:04:00.000Z");
    expect(at("2026-01-02T03:04:01Z", "2026-01-02T03:09:00Z")).toBe("2026-01-02T03:05:00.000Z");
  });
});

test("what a cluster has added to a pod is not looked at", () => {
  const added = { name: "a-proxy", started: true, state: { terminated: { exitCode: 0 } } };
  const raw = rawPod({ status: { ...running, containerStatuses: [added, ...(running.containerStatuses ?? [])] } });
  raw.spec.containers = [
    { name: "a-proxy", startupProbe: { httpGet: { port: 15_021 } } },
    { name: "sandbox", startupProbe: { httpGet: { port: 80 } } },
  ];
  const pod = readPod(raw, "i1");
  expect(pod).toMatchObject({ readinessPort: 80, container: { isStarted: false } });
  expect(pod && observationOf(pod, now)).toMatchObject({ phase: "running", startedAt: new Date(started) });
});

const killed = { exitCode: 137, reason: "Error" };
const rejected = (reason: string, message = ""): Status => ({ phase: "Failed", reason, message });
const lost = (reason: string, exitCode: number): Status =>
  terminated({ exitCode, reason, startedAt: null, message: "The container could not be located" });

// As the kubelet, the scheduler and the controllers of 1.34 set them.
test.each<[what: string, Status | undefined, deleted: string | undefined, reason: string]>([
  [
    "eviction of a node short of memory",
    terminated(killed, {
      ...disrupted("TerminationByKubelet"),
      reason: "Evicted",
      message: "The node was low on resource: memory.",
    }),
    undefined,
    "evicted",
  ],
  [
    "eviction told by its condition alone",
    terminated({ exitCode: 0 }, disrupted("TerminationByKubelet", "low on memory")),
    undefined,
    "evicted",
  ],
  [
    "a disk used up",
    terminated(killed, {
      reason: "Evicted",
      message: "Pod ephemeral local storage usage exceeds the total limit of containers 16Mi. ",
    }),
    undefined,
    "disk_full",
  ],
  [
    "a disk used up by the container",
    terminated(killed, {
      reason: "Evicted",
      message: 'Container sandbox exceeded its local ephemeral storage limit "16Mi". ',
    }),
    undefined,
    "disk_full",
  ],
  [
    "a volume used up",
    terminated(killed, {
      reason: "Evicted",
      message: 'Usage of EmptyDir volume "volume-0" exceeds the limit "16Mi". ',
    }),
    undefined,
    "disk_full",
  ],
  ["preemption by the scheduler", terminated(killed, disrupted("PreemptionByScheduler")), started, "preempted"],
  [
    "preemption by the kubelet",
    terminated(killed, {
      ...disrupted("TerminationByKubelet"),
      reason: "Preempting",
      message: "Preempted in order to admit critical pod",
    }),
    undefined,
    "preempted",
  ],
  ["a drain", terminated(killed, disrupted("EvictionByEvictionAPI")), started, "node_drained"],
  [
    "a shutdown of the node",
    terminated(killed, {
      ...disrupted("TerminationByKubelet", "Pod was terminated in response to imminent node shutdown."),
      reason: "Terminated",
      message: "Pod was terminated in response to imminent node shutdown.",
    }),
    undefined,
    "node_drained",
  ],
  [
    "a node that is being shut down",
    rejected("NodeShutdown", "Pod was rejected as the node is shutting down."),
    undefined,
    "node_drained",
  ],
  ["a node that is out of reach", terminated(killed, disrupted("DeletionByTaintManager")), started, "node_lost"],
  ["a node that was removed", { ...disrupted("DeletionByPodGC"), phase: "Failed" }, started, "node_lost"],
  ["a node out of reach, as earlier versions tell it", { ...running, reason: "NodeLost" }, started, "node_lost"],
  ["a container that the kubelet doesn't find", lost("ContainerStatusUnknown", 137), undefined, "node_lost"],
  ["a container from before the node's restart", lost("Unknown", 255), undefined, "node_lost"],
  ...[
    "OutOfcpu",
    "OutOfmemory",
    "OutOfpods",
    "OutOfephemeral-storage",
    "NodeAffinity",
    "NodeName",
    "UnexpectedAdmissionError",
    "TopologyAffinityError",
    "InvalidNodeInfo",
    "PodOSNotSupported",
    "AppArmor",
    "SysctlForbidden",
  ].map((reason): [string, Status, undefined, string] => [
    `a node's refusal: ${reason}`,
    rejected(reason, "Pod was rejected: why"),
    undefined,
    "unschedulable",
  ]),
  [
    "a deadline before it ran",
    rejected("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"),
    undefined,
    "pull_timeout",
  ],
  ["a deletion", terminated(killed), started, "runtime_lost"],
  // It should have ended long ago.
  ["a kubelet that doesn't answer", running, started, "node_lost"],
])("%s has a reason of its own", (_what, status, deleted, reason) => {
  const seen = see({ ...(status && { status }), ...(deleted !== undefined && { deleted }) });
  expect([seen?.phase, seen?.failure?.reason]).toEqual(["exited", reason]);
  expect(seen?.failure?.message).toMatch(/^The .{10,}/);
  expect(seen).not.toHaveProperty("isExpired");
});

test("a pod that is deleted before it has a node is lost", () => {
  expect(see({ deleted: started, node: null })).toMatchObject({ phase: "exited", failure: { reason: "runtime_lost" } });
});

test("a container that ended before its pod was deleted ended by itself", () => {
  const end = (finishedAt: string) =>
    see({
      status: terminated({ exitCode: 4, reason: "Error", finishedAt }, disrupted("EvictionByEvictionAPI")),
      deleted: "2026-01-02T03:04:40Z",
      graceSeconds: 10,
    });
  expect(end("2026-01-02T03:04:20Z")).toMatchObject({ phase: "exited", exitCode: 4 });
  expect(end("2026-01-02T03:04:20Z")).not.toHaveProperty("failure");
  // The clocks of a node and of the control plane may differ by as much.
  expect(end("2026-01-02T03:04:27Z")).toMatchObject({ failure: { reason: "node_drained" } });
  expect(end("2026-01-02T03:04:31Z")).toMatchObject({ failure: { reason: "node_drained" } });
});

test("how nobody knows it ended has no exit code", () => {
  const status = terminated({ exitCode: 255, reason: "Unknown" });
  expect(see({ status })).not.toHaveProperty("exitCode");
});

test("a pod that is being ended runs on until its kubelet says otherwise", () => {
  expect(see({ status: running, deleted: "2026-01-02T03:04:55Z" })).toMatchObject({ phase: "running" });
});

test("the end of its time to live is told as such, and is no failure", () => {
  const seen = see({ status: terminated({ exitCode: 143 }, { phase: "Failed", reason: "DeadlineExceeded" }) });
  expect(seen).toMatchObject({ phase: "exited", isExpired: true, exitCode: 143 });
  expect(seen).not.toHaveProperty("failure");
});

describe("what keeps a container from running", () => {
  test("is named, and whether it may pass", () => {
    const problems: [Status, string, boolean][] = [
      [
        waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
        "container_config_error",
        true,
      ],
      [
        waiting("CreateContainerConfigError", "container has runAsNonRoot and image has non-numeric user (node)"),
        "container_config_error",
        true,
      ],
      [waiting("CreateContainerConfigError", "failed to sync secret cache: timed out waiting"), "node_error", false],
      [
        waiting(
          "CreateContainerConfigError",
          "services have not yet been read at least once, cannot construct envvars",
        ),
        "node_error",
        false,
      ],
      [waiting("CreateContainerConfigError", 'secret "sandgate-s1" not found'), "node_error", false],
      [waiting("InvalidImageName", "couldn't parse"), "image_invalid", true],
      [waiting("ErrImageNeverPull", "not present with pull policy of Never"), "image_invalid", true],
      [waiting("SignatureValidationFailed", "Source image rejected: no signature"), "image_invalid", true],
      [waiting("ImageInspectError", "rpc error: code = Unavailable"), "image_pull_failed", false],
      [waiting("RegistryUnavailable", "the registry is unavailable"), "registry_unreachable", false],
      [waiting("ErrImagePull", "manifest unknown"), "image_not_found_in_registry", true],
      [waiting("ImagePullBackOff", 'Back-off pulling image "r/a"'), "image_pull_failed", false],
      [waiting("CreateContainerError", "failed to generate spec: no command specified"), "start_failed", true],
      [
        waiting("CreateContainerError", "unable to find user app: no matching entries in passwd file"),
        "start_failed",
        true,
      ],
      [
        waiting("CreateContainerError", "executable file `serve` not found in $PATH: No such file or directory"),
        "start_failed",
        true,
      ],
      [waiting("CreateContainerError", 'exec: "/app": permission denied'), "start_failed", true],
      [waiting("CreateContainerError", "context deadline exceeded"), "start_failed", false],
      [waiting("RunContainerError", "exec format error"), "start_failed", true],
      [waiting("PreStartHookError", "rpc error: code = Unavailable"), "start_failed", false],
    ];
    for (const [status, reason, isFinal] of problems) {
      expect(see({ status })?.problem, JSON.stringify(status)).toMatchObject({ reason, isFinal });
    }
    const message = "0/3 nodes are available: 3 Insufficient memory.";
    const unschedulable = { conditions: [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message }] };
    expect(see({ status: unschedulable, node: null })?.problem).toEqual({
      reason: "unschedulable",
      message: "No node has enough free memory for the sandbox.",
      detail: message,
      isFinal: false,
    });
    // No scheduler runs, or somebody else's gate holds it back.
    expect(see({ node: null })?.problem).toMatchObject({ reason: "unschedulable", isFinal: false });
    const gated = rawPod({ node: null });
    gated.spec.schedulingGates = [{ name: pullGate }];
    const pod = readPod(gated, "i1");
    expect(pod && observationOf(pod, now)).not.toHaveProperty("problem");
  });

  // As containerd 1.6 to 2.1 and the kubelet put them.
  test.each([
    [
      "image_pull_unauthorized",
      true,
      "pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed",
    ],
    [
      "image_pull_unauthorized",
      true,
      'failed to resolve reference "r/a@sha256:0": unexpected status from HEAD request to http://r/v2/a/manifests/sha256:0: 401 Unauthorized',
    ],
    [
      "image_pull_unauthorized",
      true,
      "failed to authorize: failed to fetch anonymous token: unexpected status: 403 Forbidden",
    ],
    [
      "image_not_found_in_registry",
      true,
      'rpc error: code = NotFound desc = failed to pull and unpack image "r/a@sha256:0": failed to resolve reference "r/a@sha256:0": r/a@sha256:0: not found',
    ],
    [
      "registry_unreachable",
      false,
      'failed to do request: Head "http://127.0.0.1:1/v2/a": dial tcp 127.0.0.1:1: connect: connection refused',
    ],
    ["registry_unreachable", false, 'failed to do request: Head "https://r/v2/a": dial tcp: lookup r: no such host'],
    ["registry_unreachable", false, "tls: failed to verify certificate: x509: certificate signed by unknown authority"],
    [
      "registry_unreachable",
      false,
      "unexpected status from GET request to https://r/v2/a/blobs/sha256:0: 503 Service Unavailable",
    ],
    [
      "registry_unreachable",
      false,
      "429 Too Many Requests - Server message: toomanyrequests: You have reached your pull rate limit.",
    ],
    ["image_invalid", true, "no match for platform in manifest: not found"],
    [
      "image_pull_failed",
      false,
      "failed to extract layer sha256:0: write /var/lib/containerd/x: no space left on device",
    ],
    ["image_pull_failed", false, "something new"],
    // CRI-O
    [
      "image_pull_unauthorized",
      true,
      "unable to pull image or OCI artifact: pull image err: initializing source docker://r/a@sha256:0: reading manifest sha256:0 in r/a: unauthorized: authentication required",
    ],
    [
      "image_not_found_in_registry",
      true,
      "initializing source docker://r/a@sha256:0: reading manifest sha256:0 in r/a: manifest unknown",
    ],
    [
      "registry_unreachable",
      false,
      'pinging container registry r: Get "https://r/v2/": dial tcp 203.0.113.7:443: i/o timeout',
    ],
    [
      "image_invalid",
      true,
      'choosing image instance: no image found in image index for architecture "arm64", variant "v8", OS "linux"',
    ],
    // What tenants name must not look like a cause.
    [
      "registry_unreachable",
      false,
      'failed to resolve reference "r/denied-404/app-403@sha256:0": failed to do request: Head "https://r/v2/denied-404/unauthorized/manifests/sha256:0": dial tcp: lookup denied.example on 10.0.0.1:53: no such host',
    ],
    ["image_not_found_in_registry", true, "reading manifest sha256:0 in r/timeout/denied: manifest unknown"],
    ["image_pull_failed", false, "failed to extract layer sha256:0: mkdir /var/lib/containerd/x: permission denied"],
    ["image_pull_failed", false, "failed commit on ref: unexpected commit digest sha256:1, expected sha256:2"],
    ["image_pull_failed", false, "pull QPS exceeded"],
  ])("a pull that failed: %s", (reason, isFinal, message) => {
    expect(pullProblemOf(`Back-off pulling image "r/a@sha256:0": ErrImagePull: ${message}`)).toMatchObject({
      reason,
      isFinal,
      message: expect.stringMatching(/^(The (registry|image|node)) [\w' ]+\.$/),
      detail: message,
    });
  });
});

describe("a user gets no words of a node or of the control plane", () => {
  const said = 'dial tcp 10.0.0.5:6443: connect: connection refused "node7" /var/lib/kubelet';
  const reasonsOfWaiting = [
    "ErrImagePull",
    "ImagePullBackOff",
    "RegistryUnavailable",
    "ImageInspectError",
    "InvalidImageName",
    "ErrImageNeverPull",
    "SignatureValidationFailed",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "PreCreateHookError",
    "PreStartHookError",
  ];
  const reasonsOfPods = ["Evicted", "Preempting", "Terminated", "NodeShutdown", "NodeLost", "OutOfmemory", "AppArmor"];
  const disruptions = ["PreemptionByScheduler", "EvictionByEvictionAPI", "DeletionByTaintManager", "DeletionByPodGC"];
  const unschedulable = { type: "PodScheduled", status: "False", reason: "Unschedulable", message: said };

  test.each<[string, Parameters<typeof rawPod>[0]]>([
    ...reasonsOfWaiting.map((reason): [string, object] => [`waiting: ${reason}`, { status: waiting(reason, said) }]),
    ...["StartError", "ContainerCannotRun"].map((reason): [string, object] => [
      `never started: ${reason}`,
      { status: terminated({ exitCode: 128, reason, message: said }) },
    ]),
    ...["Unknown", "ContainerStatusUnknown"].map((reason): [string, object] => [
      `lost: ${reason}`,
      { status: terminated({ exitCode: 137, reason, message: said }) },
    ]),
    ...reasonsOfPods.map((reason): [string, object] => [`ended: ${reason}`, { status: rejected(reason, said) }]),
    ...disruptions.map((reason): [string, object] => [
      `disrupted: ${reason}`,
      { status: terminated(killed, disrupted(reason, said)), deleted: started },
    ]),
    ["unschedulable", { status: { conditions: [unschedulable] }, node: null }],
  ])("%s", (_what, o) => {
    const { problem, failure } = see(o) ?? {};
    const { message } = problem ?? failure ?? expect.fail("nothing is wrong with it");
    expect(message).toMatch(/^(The|No) .{10,}\.$/);
    expect(message).not.toMatch(/\d|dial|tcp|connect|kubelet|[/"]/);
  });

  test.each([
    ["memory", "The node was low on resource: memory. Threshold quantity: 100Mi, available: 20Mi."],
    ["inodes", "The node was low on resource: inodes. Threshold quantity: 5, available: 1."],
    ["disk", "The node was low on resource: ephemeral-storage."],
    ["process ids", "The node was low on resource: pids."],
    ["a resource", "The node had condition: [DiskPressure]."],
  ])("but what a node that evicted it was short of: %s", (what, message) => {
    const { failure } = see({ status: terminated(killed, { reason: "Evicted", message }) }) ?? {};
    expect(failure).toMatchObject({ reason: "evicted", message: expect.stringContaining(`short of ${what}`) });
    expect(failure?.detail).toBe(message);
  });
});

describe("a change of a pod", () => {
  const read = (o?: Parameters<typeof rawPod>[0]) => o && readPod(rawPod(o), "i1");
  const isNewsOf = (before: Parameters<typeof read>[0], after: Parameters<typeof read>[0]) =>
    isNews(read(before), read(after), now);
  const unschedulable = (message: string): Parameters<typeof rawPod>[0] => ({
    node: null,
    status: { conditions: [{ type: "PodScheduled", status: "False", reason: "Unschedulable", message }] },
  });
  const started: Status = {
    ...running,
    containerStatuses: [{ name: "sandbox", ...running.containerStatuses?.[0], started: true }],
  };

  test.for<[string, Parameters<typeof read>[0], Parameters<typeof read>[0]]>([
    ["its creation", undefined, { node: null }],
    ["its node", { node: null }, {}],
    ["what its node prepares", {}, { status: waiting("ContainerCreating") }],
    ["a condition of one that runs", { status: started }, { status: { ...started, conditions: [] } }],
  ])("is none of its sandbox: %s", ([, before, after]) => {
    expect(isNewsOf(before, after)).toBe(false);
  });

  test.for<[string, Parameters<typeof read>[0], Parameters<typeof read>[0]]>([
    ["it is found running", undefined, { status: running }],
    ["no node can take it", { node: null }, unschedulable("0/1")],
    ["another cause", unschedulable("0/1"), unschedulable("0/2")],
    ["a node can take it after all", unschedulable("0/1"), {}],
    ["its image can't be pulled", {}, { status: waiting("ErrImagePull", "denied") }],
    ["it runs", {}, { status: running }],
    ["it is ready", { status: running }, { status: started }],
    ["its end", { status: started }, { status: terminated({ exitCode: 1 }) }],
    ["somebody deletes it", { status: started }, { status: started, deleted: "2026-01-02T03:04:59Z" }],
    ["somebody deletes it before it runs", {}, { deleted: "2026-01-02T03:04:59Z" }],
    ["it is let go", { status: started, deleted: created }, { status: started, deleted: created, finalizers: [] }],
    ["it has gone", {}, undefined],
  ])("is one of its sandbox: %s", ([, before, after]) => {
    expect(isNewsOf(before, after)).toBe(true);
  });
});
