import type { Client } from "@connectrpc/connect";
import { DomainError, hasReason, invalid } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { type Call, onBehalfOf, userOf, workspaceOf } from "@sandgate/kit/rpc/context";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import type { ImageRegistryService, ResolvedImage } from "@sandgate/proto/imageregistry/v1/image_registry";
import type { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { type Env, sealEnv } from "../domain/env.ts";
import { generateName } from "../domain/names.ts";
import type { Quotas } from "../domain/quota.ts";
import { acceptSandbox, type ImageSnapshot, type Requested, type Sandbox } from "../domain/sandbox.ts";
import { sandboxProvisioned } from "../events.ts";
import type { SandboxStore } from "../store/store.ts";
import type { Changes } from "./changes.ts";
import { findQuotaOwner } from "./quota-owners.ts";

export interface ProvisionContext {
  store: Pick<SandboxStore, "sandboxes">;
  changes: Changes;
  keyring: Keyring;
  images: Client<typeof ImageRegistryService>;
  workspaces: Client<typeof WorkspaceService>;
  quotas: Quotas;
  /** What keeps sandboxes from being run, if anything does. */
  runtimeProblem(): DomainError | undefined;
  /** Describes the disk that has less free than the reserve, in one line. Undefined: every disk has enough. */
  diskShortage(): Promise<string | undefined>;
}

/** Accepts a sandbox; the reconciler makes it run. */
export async function provisionSandbox(
  context: ProvisionContext,
  o: {
    call: Call;
    /** By id, or by a name or id. */
    image: { imageId: string; image: string; orDefault: boolean };
    requested: Requested;
    env: Env;
    /** Makes the record of the answer, for a call with an Idempotency-Key. */
    recordFor(accepted: Sandbox): Promise<IdempotencyRecord | undefined>;
    signal: AbortSignal;
  },
): Promise<Sandbox> {
  const { store, changes, images, workspaces, quotas } = context;
  const { call, signal } = o;
  await checkHost(context);
  const [{ image }, quotaOwner] = await Promise.all([
    images.resolveImage(o.image, onBehalfOf(call)),
    findQuotaOwner(workspaces, call),
  ]);
  if (!image) throw new DomainError("IMAGE_NOT_FOUND", "There is no such image.");
  checkTtl(o.requested, image);
  const create = async (name: string): Promise<Sandbox> => {
    const sandbox = acceptSandbox({
      ...o.requested,
      name,
      id: newId(),
      workspaceId: workspaceOf(call),
      image: toSnapshot(image),
      createdBy: userOf(call).id,
      now: new Date(),
    });
    const events = [sandboxProvisioned(call, sandbox)];
    const record = await o.recordFor(sandbox);
    const sealedEnv = sandbox.envNames && sealEnv(context.keyring, sandbox, o.env);
    await store.sandboxes.create(sandbox, { quotaOwner, quotas, events, record, sealedEnv }, signal);
    return sandbox;
  };
  const sandbox = await create(o.requested.name || generateName()).catch((error: unknown) => {
    if (o.requested.name || !hasReason(error, "SANDBOX_NAME_CONFLICT")) throw error;
    return create(generateName());
  });
  // The replica that has its shard goes to work.
  changes.announce(sandbox.id);
  return sandbox;
}

/** Refuses a time to live that is longer than the image's. */
function checkTtl({ ttlSeconds }: Requested, { ttlSeconds: longest }: ResolvedImage): void {
  if (ttlSeconds === undefined || longest === undefined || ttlSeconds <= longest) return;
  throw invalid("ttl_seconds", `must be ${longest} or less, the time to live of the image`);
}

async function checkHost({ runtimeProblem, diskShortage }: ProvisionContext): Promise<void> {
  const problem = runtimeProblem();
  if (problem?.reason === "ISOLATION_UNAVAILABLE") {
    throw new DomainError("PROVISIONING_FAILED", "Sandboxes can't be isolated on this host.", {
      hint: "Ask the operator: the log and /readyz of sandbox say what is missing.",
      cause: problem,
    });
  }
  const shortage = await diskShortage();
  if (shortage !== undefined) {
    throw new DomainError("PROVISIONING_FAILED", "The host is short of disk space.", {
      hint: `Try again later, or ask the operator for more: ${shortage}.`,
    });
  }
}

/** Takes every field of the message, so that a new field needs no change here. */
function toSnapshot({
  $typeName: _,
  $unknown: __,
  readinessPort,
  ttlSeconds,
  ...fields
}: ResolvedImage): ImageSnapshot {
  return {
    ...fields,
    ...(readinessPort === undefined ? {} : { readinessPort }),
    ...(ttlSeconds === undefined ? {} : { ttlSeconds }),
  };
}
