import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { invalid } from "@sandgate/kit/base/domain-error";
import { createMessage, toTimestamp } from "@sandgate/kit/rpc/messages";
import type { ResolvedImage } from "@sandgate/proto/imageregistry/v1/image_registry";
import {
  type ProvisionSandboxRequest,
  type Sandbox as SandboxMessage,
  SandboxSchema,
  SandboxState as StateCode,
  TimelineEntrySchema,
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

export function toMessage(sandbox: Sandbox): SandboxMessage {
  const { image } = sandbox;
  return createMessage(SandboxSchema, {
    id: sandbox.id,
    name: sandbox.name,
    workspaceId: sandbox.workspaceId,
    imageId: image.imageId,
    image: image.reference,
    imageDigest: sandbox.imageDigest ?? "",
    state: codes[sandbox.state],
    stateReason: sandbox.stateReason ?? "",
    message: sandbox.message ?? "",
    exitCode: sandbox.exitCode,
    labels: sandbox.labels,
    memoryMb: image.memoryMb,
    readinessPort: image.readinessPort,
    ttlSeconds: image.ttlSeconds,
    createdBy: sandbox.createdBy,
    createdAt: timestampFromDate(sandbox.createdAt),
    updatedAt: timestampFromDate(sandbox.updatedAt),
    readyAt: toTimestamp(sandbox.readyAt),
    expiresAt: toTimestamp(sandbox.expiresAt),
    stoppedAt: toTimestamp(sandbox.stoppedAt),
    timeline: sandbox.timeline.map(({ phase, at }) =>
      create(TimelineEntrySchema, { phase, at: timestampFromDate(at) }),
    ),
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
