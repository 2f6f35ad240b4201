import { invalid } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import type { CreateRegistryRequest, UpdateRegistryRequest } from "@sandgate/proto/imageregistry/v1/image_registry";
import type { AllowedHosts } from "@sandgate/registry-client/allowed-hosts";
import { findUrlIssue, parseRegistryUrl, type RegistryAddress } from "@sandgate/registry-client/registry-address";
import { sealPassword } from "./credentials.ts";
import { decideCreate, type Quotas, type WorkspaceState } from "./quotas.ts";

export interface RegistryRecord {
  readonly id: string;
  readonly workspaceId: string;
  readonly name: string;
  readonly url: string;
  /** The host[:port] that its images name. */
  readonly host: string;
  readonly username: string;
  readonly sealedPassword: Uint8Array;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** Grows with every change, and so tells one credential from the next. */
  readonly version: number;
}

/** A registry as it was when an image was checked against it. */
export interface RegistryVersion {
  readonly id: string;
  readonly version: number;
}

/** Where the registry is. */
export function addressOf({ host, url }: Pick<RegistryRecord, "host" | "url">): RegistryAddress {
  return { host, scheme: parseRegistryUrl(url)?.scheme };
}

/** What a transaction reads of a registry credential before it changes it. */
export interface RegistryState {
  /** Its host before the change. */
  readonly host: string;
  /** An image uses it. */
  readonly inUse: boolean;
  /** Another credential of the workspace has the new name. */
  readonly nameTaken: boolean;
}

export function decideCreateRegistry(
  workspace: WorkspaceState,
  nameTaken: boolean,
  { maxRegistries }: Quotas,
): "done" | "workspace_deleted" | "name_taken" | "too_many" {
  return nameTaken && !workspace.deleted ? "name_taken" : decideCreate(workspace, maxRegistries);
}

/** The host of a credential can't change while images use it. */
export function decideUpdateRegistry(
  before: RegistryState,
  { host }: Pick<RegistryRecord, "host">,
): "done" | "in_use" | "name_taken" {
  if (host !== before.host && before.inUse) return "in_use";
  return before.nameTaken ? "name_taken" : "done";
}

/** What a caller decides about a registry credential. */
interface RegistryFields {
  readonly name: string;
  readonly url: string;
  readonly address: RegistryAddress;
  readonly username: string;
  /** Undefined: it stays. */
  readonly password: string | undefined;
}

/** The fields of a new registry credential. Throws VALIDATION_ERROR for a URL that is malformed or not allowed. */
export function readNewRegistry(
  { name, url, username, password }: CreateRegistryRequest,
  allowed: AllowedHosts,
): RegistryFields & { readonly password: string } {
  return { name, url, address: readRegistryUrl(url, allowed), username, password };
}

/**
 * The fields after an update; fields that the request leaves out stay as they are. Throws VALIDATION_ERROR for a URL
 * that is malformed or not allowed, and for another url or username without the password.
 */
export function readChangedRegistry(
  before: RegistryRecord,
  { name = before.name, url = before.url, username = before.username, password }: UpdateRegistryRequest,
  allowed: AllowedHosts,
): RegistryFields {
  const address = readRegistryUrl(url, allowed);
  if (password === undefined && (url !== before.url || username !== before.username)) {
    throw invalid("password", "must be given again when url or username changes");
  }
  return { name, url, address, username, password };
}

export function newRegistry(
  keyring: Keyring,
  workspaceId: string,
  { name, url, address, username, password }: RegistryFields & { readonly password: string },
): RegistryRecord {
  const id = newId();
  const now = new Date();
  return {
    id,
    workspaceId,
    name,
    url,
    host: address.host,
    username,
    sealedPassword: sealPassword(keyring, { id, workspaceId }, password),
    createdAt: now,
    updatedAt: now,
    version: 1,
  };
}

export function changeRegistry(
  keyring: Keyring,
  before: RegistryRecord,
  { name, url, address, username, password }: RegistryFields,
): RegistryRecord {
  const sealedPassword = password === undefined ? before.sealedPassword : sealPassword(keyring, before, password);
  return { ...before, name, url, host: address.host, username, sealedPassword, updatedAt: new Date() };
}

function readRegistryUrl(url: string, allowed: AllowedHosts): RegistryAddress {
  const address = parseRegistryUrl(url);
  if (address === undefined) throw invalid("url", "must be [http(s)://]host[:port]");
  const issue = findUrlIssue(address, allowed);
  if (issue !== undefined) throw invalid("url", issue);
  return address;
}
