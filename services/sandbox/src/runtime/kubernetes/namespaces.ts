import { createHash } from "node:crypto";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { type Api, ApiError, ignoreStatus, toRuntimeUnavailable } from "@sandgate/kubernetes-api/api";
import { SandboxRefused } from "../lifecycle.ts";
import { networkPolicyOf, type PodEgressPolicy, policyNameOf } from "./network-policy.ts";

/** How long a check holds. */
const recheckMs = 60_000;
const enforceLabel = "pod-security.kubernetes.io/enforce";

/** What the message of the API server says has refused a pod. */
const refusals: readonly (readonly [pattern: RegExp, text: string])[] = [
  [/exceeded quota|insufficient quota|must specify \S+ for: /i, "The cluster's quota is used up"],
  [/violates PodSecurity/i, "The cluster's Pod Security does not allow the sandbox"],
  [/(maximum|minimum) \S+ usage per|limit to request ratio/i, "A limit of the cluster does not allow the sandbox"],
  [/admission webhook|ValidatingAdmissionPolicy/i, "A policy of the cluster does not allow the sandbox"],
  [/ is invalid: |unable to parse|cannot unmarshal/i, "The cluster rejected the sandbox's pod as invalid"],
];

/** The namespaces of an installation's pods: one, or several that workspaces are spread over. */
export interface Namespaces {
  all: readonly string[];
  of(workspaceId: string): string;
  /**
   * Checks that they are there, enforce Pod Security, and have the installation's network policy; what is missing is
   * created, where that is allowed. Throws RUNTIME_UNAVAILABLE, or ISOLATION_UNAVAILABLE with what is missing.
   */
  verify(): Promise<void>;
  /** Verifies unless that was done within the last minute. */
  verifyRecent(): Promise<void>;
  /** The error of a request that was refused because its namespace, with the rights in it, is gone or going. */
  missing(namespace: string, cause: ApiError): DomainError;
  /**
   * Creates an object of a sandbox, and returns it; undefined: there is one of that name. Throws SandboxRefused where
   * the API server refuses that, unless it is the namespace or a right that is missing.
   */
  make(namespace: string, resource: "pods" | "secrets", body: object): Promise<unknown>;
}

export function createNamespaces(o: {
  api: Api;
  namespace: string;
  namespaces: number;
  installationId: string;
  isolation: boolean;
  network: PodEgressPolicy;
  pod: { security: "baseline" | "restricted" };
  logger: Logger;
}): Namespaces {
  const { api, namespace, installationId } = o;
  const all =
    o.namespaces === 1 ? [namespace] : Array.from({ length: o.namespaces }, (_, index) => `${namespace}-${index}`);
  let verifiedAt = Number.NEGATIVE_INFINITY;
  let verifying: Promise<void> | undefined;
  let hasWarned = false;

  async function verifyOne(name: string): Promise<void> {
    const labels = await readLabels(name);
    if (!o.isolation) return;
    if (labels === "unreadable") {
      if (!hasWarned)
        o.logger.warn(
          { namespace: name },
          "can't check whether the namespace enforces Pod Security: the right to get it is missing",
        );
      hasWarned = true;
    } else if (labels[enforceLabel] !== "restricted" && labels[enforceLabel] !== o.pod.security) {
      throw new DomainError(
        "ISOLATION_UNAVAILABLE",
        `The namespace ${name} doesn't enforce Pod Security: label it ${enforceLabel}=${o.pod.security}.`,
      );
    }
    try {
      await verifyPolicy(name);
    } catch (error) {
      // Its rights go with a namespace, even before it has gone.
      const hasNone = labels === "unreadable" && error instanceof ApiError && error.status === 403;
      if (hasNone || isTerminating(error)) throw missing(name, error);
      throw error instanceof ApiError && error.status !== 404 ? policyUnset(name, error) : error;
    }
  }

  /** Reads a namespace's labels, and creates a namespace that is missing. */
  async function readLabels(name: string): Promise<Record<string, string> | "unreadable"> {
    const path = `/api/v1/namespaces/${name}`;
    try {
      const known = (await api.call({ method: "GET", path })) as { metadata: { labels?: Record<string, string> } };
      return known.metadata.labels ?? {};
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 403) return "unreadable";
      if (error.status !== 404) throw error;
    }
    const labels = { [enforceLabel]: o.pod.security };
    const body = { apiVersion: "v1", kind: "Namespace", metadata: { name, labels } };
    try {
      await ignoreStatus([409], api.call({ method: "POST", path: "/api/v1/namespaces", body }));
      return labels;
    } catch (error) {
      throw new DomainError("RUNTIME_UNAVAILABLE", `The namespace ${name} is missing and can't be created.`, {
        cause: error,
      });
    }
  }

  async function verifyPolicy(name: string, mayConflict = true): Promise<void> {
    const wanted = networkPolicyOf(installationId, name, o.network);
    const policies = `/apis/networking.k8s.io/v1/namespaces/${name}/networkpolicies`;
    const path = `${policies}/${policyNameOf(installationId)}`;
    const known = (await ignoreStatus([404], api.call({ method: "GET", path }))) as
      | { metadata: object; spec?: unknown }
      | undefined;
    // What is there beyond what is wanted may open or close more, too.
    if (known && includes(known.spec, wanted.spec) && includes(wanted.spec, known.spec)) return;
    const change = known
      ? api.call({ method: "PUT", path, body: { ...wanted, metadata: known.metadata } })
      : api.call({ method: "POST", path: policies, body: wanted });
    const changed = await ignoreStatus(mayConflict ? [409] : [], change);
    // Another process was faster, most likely with the same policy.
    if (changed === undefined) await verifyPolicy(name, false);
  }

  async function verify(): Promise<void> {
    try {
      for (const name of all) await verifyOne(name);
      verifiedAt = performance.now();
    } catch (error) {
      throw toRuntimeUnavailable(error);
    }
  }

  /** Why the API server refused an object of a sandbox. */
  function explainRefusal(name: string, error: ApiError): Error {
    if (error.status === 404 || isTerminating(error)) {
      verifiedAt = Number.NEGATIVE_INFINITY;
      return missing(name, error);
    }
    if (/cannot (create|get|patch|delete) resource/i.test(error.message)) {
      verifiedAt = Number.NEGATIVE_INFINITY;
      return toRuntimeUnavailable(error);
    }
    // The quota was just created, and nothing is counted yet.
    if (/status unknown for quota/i.test(error.message)) return toRuntimeUnavailable(error);
    const [, text = "The cluster refused the sandbox"] =
      refusals.find(([pattern]) => pattern.test(error.message)) ?? [];
    return new SandboxRefused({ reason: "provisioning_failed", message: `${text}.`, detail: error.message });
  }

  return {
    all,
    missing,
    of: (workspaceId) =>
      all[createHash("sha256").update(workspaceId).digest().readUInt32BE() % all.length] ?? namespace,
    verify,
    async verifyRecent() {
      if (performance.now() - verifiedAt <= recheckMs) return;
      verifying ??= verify().finally(() => {
        verifying = undefined;
      });
      await verifying;
    },
    async make(name, resource, body) {
      try {
        return await api.call({ method: "POST", path: `/api/v1/namespaces/${name}/${resource}`, body });
      } catch (error) {
        if (!(error instanceof ApiError)) throw error;
        if (error.reason === "AlreadyExists") return undefined;
        throw [400, 403, 404, 422].includes(error.status) ? explainRefusal(name, error) : error;
      }
    },
  };
}

function isTerminating(error: unknown): boolean {
  return error instanceof ApiError && /being terminated|because it is being deleted/i.test(error.message);
}

function missing(name: string, cause: unknown): DomainError {
  const message = `The namespace ${name} is missing, being deleted, or not accessible to the platform.`;
  return new DomainError("RUNTIME_UNAVAILABLE", message, { cause });
}

function policyUnset(name: string, error: ApiError): DomainError {
  const message = `The network policy of sandboxes can't be set in ${name} (${error.status} ${error.reason}).`;
  return new DomainError("ISOLATION_UNAVAILABLE", message, { cause: error });
}

/** Whether an object has all fields of another. An empty list is as good as none: the server leaves those out. */
function includes(object: unknown, part: unknown): boolean {
  if (Array.isArray(part)) {
    const list = Array.isArray(object) ? object : [];
    return list.length === part.length && part.every((each, index) => includes(list[index], each));
  }
  if (typeof part !== "object" || part === null) return object === part;
  const fields = typeof object === "object" && object !== null ? Object.entries(object) : [];
  const byName = new Map(fields);
  return Object.entries(part).every(([name, value]) => includes(byName.get(name), value));
}
