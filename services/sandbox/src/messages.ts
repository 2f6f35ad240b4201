import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { invalid } from "@sandgate/kit/base/domain-error";
import type { ResolvedImage } from "@sandgate/proto/imageregistry/v1/image_registry";
import {
  type ProvisionSandboxRequest,
  type Sandbox as SandboxMessage,
  SandboxSchema,
  SandboxState as StateCode,
} from "@sandgate/proto/sandbox/v1/sandbox";
import { makeUpName } from "./domain/names.ts";
import {
  type ImageSnapshot,
  type Requested,
  type Sandbox,
  type SandboxState,
  sandboxStates,
} from "./domain/sandbox.ts";

const codes: Record<SandboxState, StateCode> = {
  provisioning: StateCode.PROVISIONING,
  ready: StateCode.READY,
  stopping: StateCode.STOPPING,
  stopped: StateCode.STOPPED,
  failed: StateCode.FAILED,
};

export function toStates(wanted: readonly StateCode[]): SandboxState[] {
  return wanted.map((code) => {
    const state = sandboxStates.find((name) => codes[name] === code);
    if (!state) {
      throw invalid("query.state", "is not a state of a sandbox");
    }
    return state;
  });
}

function optionalTime<K extends string>(key: K, at: Date | undefined) {
  return at === undefined ? {} : { [key]: timestampFromDate(at) };
}

export function toMessage(sandbox: Sandbox): SandboxMessage {
  const { image } = sandbox;
  return create(SandboxSchema, {
    id: sandbox.id,
    name: sandbox.name,
    workspaceId: sandbox.workspaceId,
    imageId: image.imageId,
    image: image.reference,
    imageDigest: sandbox.imageDigest ?? "",
    state: codes[sandbox.state],
    stateReason: sandbox.stateReason ?? "",
    message: sandbox.message ?? "",
    labels: sandbox.labels,
    memoryMb: image.memoryMb,
    createdBy: sandbox.createdBy,
    createdAt: timestampFromDate(sandbox.createdAt),
    updatedAt: timestampFromDate(sandbox.updatedAt),
    timeline: sandbox.timeline.map(({ phase, at }) => ({ phase, at: timestampFromDate(at) })),
    ...(sandbox.exitCode === undefined ? {} : { exitCode: sandbox.exitCode }),
    ...(image.readinessPort === undefined ? {} : { readinessPort: image.readinessPort }),
    ...(image.ttlSeconds === undefined ? {} : { ttlSeconds: image.ttlSeconds }),
    ...optionalTime("readyAt", sandbox.readyAt),
    ...optionalTime("expiresAt", sandbox.expiresAt),
    ...optionalTime("stoppedAt", sandbox.stoppedAt),
  });
}

export function toSnapshot(image: ResolvedImage): ImageSnapshot {
  const { imageId, reference, registryId, isDefault, memoryMb, readinessPort, ttlSeconds } = image;
  return {
    imageId,
    reference,
    registryId,
    isDefault,
    memoryMb,
    ...(readinessPort === undefined ? {} : { readinessPort }),
    ...(ttlSeconds === undefined ? {} : { ttlSeconds }),
  };
}

export function toRequested({ name, labels }: ProvisionSandboxRequest): Requested {
  return { name: name || makeUpName(), labels };
}
