import { DomainError } from "@sandgate/kit/base/domain-error";
import { createFairLimit } from "@sandgate/kit/base/fair-limit";
import {
  type ImageSnapshot,
  isOnEngineAlone,
  type PullProgress,
  recordPulled,
  type Sandbox,
} from "../domain/sandbox.ts";
import type { ImageAccess, ImageStore, PinnedImage, PulledImage } from "../runtime/images.ts";
import type { RuntimeLifecycle } from "../runtime/lifecycle.ts";
import type { Records } from "./records.ts";
import type { Retries } from "./retries.ts";

/** A sandbox whose image is pulled, or is authorized for a runtime that pulls by itself. */
export interface Pulled {
  sandbox: Sandbox;
  access?: ImageAccess;
}

export interface ImageStepOptions {
  runtime: Pick<RuntimeLifecycle, "inspect">;
  records: Pick<Records, "save" | "saveFailure">;
  retries: Pick<Retries, "markUp">;
  /** Undefined: the runtime has no store of images. */
  images: Pick<ImageStore, "find"> | undefined;
  /**
   * Makes sure that the image is on the engine, once the registry has given it out to this workspace. Throws a
   * DomainError with a reason that `failureOf` knows.
   */
  pullImage(sandbox: Sandbox, signal: AbortSignal, onProgress: (now: PullProgress) => void): Promise<PulledImage>;
  limits: { pullTimeoutMs: number };
}

/** How many pulls of one workspace run at once, so that no tenant delays the others: a pull may take minutes. */
const pullLimits = { perKey: 4 };
/**
 * What an attempt may take even once the time for the pull is over, since the platform itself may have been away until
 * then: long enough for image-registry and the engine to say what is wrong.
 */
const shortestAttemptMs = 60_000;

/**
 * Makes the step that brings a sandbox's image to the engine, and saves its pinned reference. It returns undefined when
 * the record changed or failed.
 */
export function createImageStep(
  o: ImageStepOptions,
): (sandbox: Sandbox, signal: AbortSignal) => Promise<Pulled | undefined> {
  const { runtime, records, images } = o;
  const { pullTimeoutMs } = o.limits;
  const limitPulls = createFairLimit(pullLimits);

  /** Undefined: it has to be pulled. Throws IMAGE_NOT_FOUND where no registry may be asked. */
  async function findDefault(image: ImageSnapshot): Promise<PinnedImage | undefined> {
    const found = await images?.find(image.reference);
    if (found || !isOnEngineAlone(image)) return found;
    throw new DomainError(
      "IMAGE_NOT_FOUND",
      `The image ${image.reference} isn't on the engine, and is in no registry.`,
    );
  }

  /** Undefined: the pull took too long. */
  async function pullFromRegistry(sandbox: Sandbox, signal: AbortSignal): Promise<PulledImage | undefined> {
    const leftMs = sandbox.createdAt.getTime() + pullTimeoutMs - Date.now();
    const timeout = AbortSignal.timeout(Math.max(leftMs, Math.min(pullTimeoutMs, shortestAttemptMs)));
    const either = AbortSignal.any([signal, timeout]);
    const onProgress = ({ downloadedBytes }: PullProgress) => {
      // A later outage has all of its own time, as long as there is time for the pull.
      if (downloadedBytes > 0 && leftMs > 0) o.retries.markUp(sandbox.id, "registry");
    };
    try {
      return await limitPulls(sandbox.workspaceId, () => o.pullImage(sandbox, either, onProgress), either);
    } catch (error) {
      if (timeout.aborted && !signal.aborted) return undefined;
      throw error;
    }
  }

  return async (sandbox, signal) => {
    const { pinnedReference } = sandbox;
    if (pinnedReference !== undefined) {
      const known = (await runtime.inspect(sandbox.id)) ?? (await images?.find(pinnedReference));
      if (known) return { sandbox };
    }
    const local = sandbox.image.isDefault ? await findDefault(sandbox.image) : undefined;
    const image: PulledImage | undefined = local ?? (await pullFromRegistry(sandbox, signal));
    if (!image) {
      const message = `The image was not pulled within ${pullTimeoutMs / 1000} s.`;
      await records.saveFailure(sandbox, { reason: "pull_timeout", message });
      return undefined;
    }
    const pulled = recordPulled(sandbox, image, new Date());
    if (!(await records.save(pulled))) return undefined;
    return { sandbox: pulled, ...(image.access && { access: image.access }) };
  };
}
