import { newId } from "@sandgate/kit/base/ids";
import { expect } from "vitest";
import type { ImageRecord } from "../domain/images.ts";
import type { RegistryRecord } from "../domain/registries.ts";
import type { ImageRegistryStore } from "./store.ts";

export const at = (ms: number) => new Date(Date.UTC(2026, 0, 1) + ms);
export const unlimited = { maxImages: 0, maxRegistries: 0 };
export const quotas = { maxImages: 2, maxRegistries: 2 };
/** The record of an Idempotency-Key. */
export const record = {
  id: "record",
  sealed: new Uint8Array([1]),
  service: "image-registry",
  workspace: "",
  owner: "ann",
};
export const event = (name: string) => ({ id: newId(), subject: name, bytes: new Uint8Array() });

export function imageOf(fields: Partial<ImageRecord> = {}): ImageRecord {
  return {
    id: newId(),
    workspaceId: "w1",
    name: "tool",
    image: "alpine",
    description: undefined,
    tag: "latest",
    enabled: true,
    memoryMb: 1024,
    readinessPort: undefined,
    ttlSeconds: undefined,
    registryId: undefined,
    createdAt: at(0),
    updatedAt: at(0),
    version: 1,
    ...fields,
  };
}

export function registryOf(fields: Partial<RegistryRecord> = {}): RegistryRecord {
  return {
    id: newId(),
    workspaceId: "w1",
    name: "private",
    url: "https://ghcr.io",
    host: "ghcr.io",
    username: "ann",
    sealedPassword: new Uint8Array([1, 2, 3]),
    createdAt: at(0),
    updatedAt: at(0),
    version: 1,
    ...fields,
  };
}

export async function createImage(store: ImageRegistryStore, fields: Partial<ImageRecord> = {}): Promise<ImageRecord> {
  const image = imageOf(fields);
  expect(await store.images.create(image, undefined, unlimited, [], undefined)).toBe("done");
  return image;
}

export async function createRegistry(
  store: ImageRegistryStore,
  fields: Partial<RegistryRecord> = {},
): Promise<RegistryRecord> {
  const registry = registryOf(fields);
  expect(await store.registries.create(registry, unlimited, [], undefined)).toBe("done");
  return registry;
}

/** The subjects of the events that wait in the outbox. */
export async function subjectsOf(store: ImageRegistryStore): Promise<string[]> {
  return (await store.outbox.unsent(100)).map(({ subject }) => subject);
}
