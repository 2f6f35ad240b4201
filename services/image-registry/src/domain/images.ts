import { DomainError, type Violation } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import type { CreateImageRequest, UpdateImageRequest } from "@sandgate/proto/imageregistry/v1/image_registry";
import type { AllowedHosts } from "@sandgate/registry-client/allowed-hosts";
import {
  formatReference,
  hasEngineHost,
  isTag,
  parseReference,
  type Reference,
} from "@sandgate/registry-client/reference";
import { findHostIssue, isAtRegistry, type RegistryAddress } from "@sandgate/registry-client/registry-address";

export interface ImageRecord {
  readonly id: string;
  /** Empty: a global default, which every workspace sees. */
  readonly workspaceId: string;
  readonly name: string;
  /** The reference as it was given. */
  readonly image: string;
  readonly description: string | undefined;
  readonly tag: string;
  readonly enabled: boolean;
  readonly memoryMb: number;
  readonly readinessPort: number | undefined;
  readonly ttlSeconds: number | undefined;
  readonly registryId: string | undefined;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** Grows with every change. */
  readonly version: number;
}

export interface ImageView extends ImageRecord {
  readonly registryName: string | undefined;
}

/** What a caller decides about an image. */
export type ImageFields = Omit<ImageRecord, "id" | "workspaceId" | "createdAt" | "updatedAt" | "version">;

const defaultMemoryMb = 1024;

/** @param workspaceId empty for a global default */
export function newImage(fields: ImageFields, workspaceId: string): ImageRecord {
  const now = new Date();
  return { ...fields, id: newId(), workspaceId, createdAt: now, updatedAt: now, version: 1 };
}

/** The fields of a new image. Throws VALIDATION_ERROR with every offending field. */
export function readNewImage(request: CreateImageRequest, allowed: AllowedHosts): ImageFields {
  const { reference, violations } = checkReference(request, allowed);
  if (request.isDefault && request.registryId !== "") {
    violations.push({ field: "registry_id", issue: "can't be given for a global default image" });
  }
  refuse(violations);
  return {
    name: request.name,
    image: request.image,
    description: request.description,
    tag: request.tag ?? reference?.tag ?? "latest",
    enabled: request.enabled ?? true,
    memoryMb: request.memoryMb ?? defaultMemoryMb,
    readinessPort: request.readinessPort,
    ttlSeconds: request.ttlSeconds,
    registryId: request.registryId || undefined,
  };
}

/**
 * The fields of an image after an update; fields that the request leaves out stay as they are. Throws VALIDATION_ERROR
 * with every offending field.
 */
export function readChangedImage(image: ImageFields, request: UpdateImageRequest, allowed: AllowedHosts): ImageFields {
  const text = request.image ?? image.image;
  const { reference, violations } = checkReference({ image: text, tag: request.tag, isDefault: false }, allowed);
  if (request.isDefault) {
    violations.push({ field: "is_default", issue: "can't be changed" });
  }
  refuse(violations);
  const cleared = new Set(request.clear);
  return {
    name: request.name ?? image.name,
    image: text,
    description: cleared.has("description") ? undefined : (request.description ?? image.description),
    tag: request.tag ?? reference?.tag ?? image.tag,
    enabled: request.enabled ?? image.enabled,
    memoryMb: request.memoryMb ?? image.memoryMb,
    readinessPort: cleared.has("readiness_port") ? undefined : (request.readinessPort ?? image.readinessPort),
    ttlSeconds: cleared.has("ttl_seconds") ? undefined : (request.ttlSeconds ?? image.ttlSeconds),
    registryId: cleared.has("registry_id") ? undefined : request.registryId || image.registryId,
  };
}

export function isGlobalDefault({ workspaceId }: Pick<ImageRecord, "workspaceId">): boolean {
  return workspaceId === "";
}

/** The parts of a stored image's reference, with its tag. */
function referenceOf({ image, tag }: Pick<ImageRecord, "image" | "tag">): Reference {
  const reference = parseReference(image);
  if (reference === undefined) throw new Error(`the stored image "${image}" is not a reference`);
  return { ...reference, tag };
}

/** What a sandbox pulls: host/repository@digest, or host/repository:tag. */
export function fullReferenceOf(image: Pick<ImageRecord, "image" | "tag">): string {
  return formatReference(referenceOf(image));
}

/** Throws VALIDATION_ERROR unless the image is at this registry. */
export function checkRegistryHost(image: Pick<ImageRecord, "image" | "tag">, registry: RegistryAddress): void {
  const { host } = referenceOf(image);
  if (isAtRegistry(host, registry)) return;
  refuse([{ field: "registry_id", issue: `is a credential for ${registry.host}, but the image is at ${host}` }]);
}

function checkReference(
  { image, tag, isDefault }: Pick<CreateImageRequest, "image" | "tag" | "isDefault">,
  allowed: AllowedHosts,
): { reference: Reference | undefined; violations: Violation[] } {
  const violations: Violation[] = [];
  const reference = parseReference(image);
  const pulled = reference && isDefault && hasEngineHost(reference) ? undefined : reference;
  const hostIssue = pulled && findHostIssue(pulled.host, allowed);
  if (reference === undefined) {
    const issue =
      "must be an image reference such as ghcr.io/owner/name:tag; its host (docker.io unless given) and name have up to 255 characters";
    violations.push({ field: "image", issue });
  } else if (hostIssue !== undefined) {
    violations.push({ field: "image", issue: hostIssue });
  }
  if (tag !== undefined && !isTag(tag)) {
    violations.push({ field: "tag", issue: "must be up to 128 letters, digits, dots, dashes and underscores" });
  } else if (tag !== undefined && reference?.tag !== undefined && reference.tag !== tag) {
    violations.push({ field: "tag", issue: `differs from the tag in the image, ${reference.tag}` });
  }
  return { reference, violations };
}

function refuse(violations: readonly Violation[]): void {
  if (violations.length === 0) return;
  throw new DomainError("VALIDATION_ERROR", "The image is not valid.", { violations });
}
