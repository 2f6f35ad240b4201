import { invalid } from "@sandgate/kit/base/domain-error";
import { rememberFrozen } from "@sandgate/kit/base/freeze";
import { createMessage } from "@sandgate/kit/rpc/messages";
import { HostHeader, type Preview as PreviewMessage, PreviewSchema } from "@sandgate/proto/sandbox/v1/previews";
import {
  type ProvisionSandboxRequest,
  type Sandbox as SandboxMessage,
  SandboxSchema,
  SandboxState as StateCode,
} from "@sandgate/proto/sandbox/v1/sandbox";
import { checkCommandOfSandbox } from "./domain/commands.ts";
import { checkEnv } from "./domain/env.ts";
import { checkName } from "./domain/names.ts";
import { type Preview, previewEndOf } from "./domain/previews.ts";
import {
  isPlatformsFault,
  lastUseOf,
  type Requested,
  type Sandbox,
  type SandboxState,
  sandboxStates,
  ttlSecondsOf,
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

/** Remembers the message of a frozen record: the store returns the same one until the stored record changes. */
export const toMessage = rememberFrozen((sandbox: Sandbox): SandboxMessage => {
  const { image } = sandbox;
  return createMessage(SandboxSchema, {
    ...sandbox,
    imageId: image.imageId,
    image: image.reference,
    imageName: image.name ?? "",
    state: codes[sandbox.state],
    memoryMb: image.memoryMb,
    readinessPort: image.readinessPort,
    ttlSeconds: ttlSecondsOf(sandbox),
    lastUsedAt: lastUseOf(sandbox),
    platformsFault: isPlatformsFault(sandbox),
    pull: sandbox.state === "provisioning" ? toPullProgress(sandbox) : undefined,
    command: sandbox.command ? [...sandbox.command] : [],
    envNames: sandbox.envNames ? [...sandbox.envNames] : [],
  });
});

function toPullProgress({ pull }: Sandbox) {
  return pull && { downloadedBytes: BigInt(pull.downloadedBytes), totalBytes: BigInt(pull.totalBytes) };
}

const hostHeaders: Record<Preview["hostHeader"], HostHeader> = {
  preview: HostHeader.PREVIEW,
  localhost: HostHeader.LOCALHOST,
};

export function toPreviewMessage(preview: Preview, sandbox: Sandbox): PreviewMessage {
  const { hostHeader } = preview;
  const expiresAt = previewEndOf(preview, sandbox);
  return createMessage(PreviewSchema, { ...preview, hostHeader: hostHeaders[hostHeader], expiresAt });
}

/** Throws VALIDATION_ERROR for a name that could be mistaken for an id, and for a command or variables that can't be. */
export function toRequested(request: ProvisionSandboxRequest): Requested {
  const { name, labels, command, env, ttlSeconds, idleTimeoutSeconds } = request;
  checkName(name);
  checkCommandOfSandbox(command);
  checkEnv(env);
  const envNames = Object.keys(env).sort();
  return {
    name,
    labels,
    ...(command.length > 0 && { command }),
    ...(envNames.length > 0 && { envNames }),
    ...(ttlSeconds !== undefined && { ttlSeconds }),
    ...(idleTimeoutSeconds !== undefined && { idleTimeoutSeconds }),
  };
}
