import { invalid } from "@sandgate/kit/base/domain-error";
import { rememberFrozen } from "@sandgate/kit/base/freeze";
import { createMessage } from "@sandgate/kit/rpc/messages";
import type { ResolvedImage } from "@sandgate/proto/imageregistry/v1/image_registry";
import {
  type ProvisionSandboxRequest,
  type Sandbox as SandboxMessage,
  SandboxSchema,
  SandboxState as StateCode,
} from "@sandgate/proto/sandbox/v1/sandbox";
import { generateName } from "./domain/names.ts";
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

/** The store gives the same frozen record as long as it is what is stored. */
export const toMessage = rememberFrozen((sandbox: Sandbox): SandboxMessage => {
  const { image } = sandbox;
  return createMessage(SandboxSchema, {
    ...sandbox,
    imageId: image.imageId,
    image: image.reference,
    state: codes[sandbox.state],
    memoryMb: image.memoryMb,
    readinessPort: image.readinessPort,
    ttlSeconds: image.ttlSeconds,
  });
});

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
  return { name: name || generateName(), labels };
}
