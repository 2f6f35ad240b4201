import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Call } from "@sandgate/kit/rpc/context";
import type { IdempotencyRecord } from "@sandgate/kit/storage/idempotency-record";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import {
  hashOf,
  isOpen,
  isTokenOf,
  makeLink,
  makePreview,
  type Preview,
  type PreviewLink,
  previewEndOf,
} from "../domain/previews.ts";
import type { Sandbox } from "../domain/sandbox.ts";
import { previewCreated, previewLinkCreated, previewRevoked } from "../events.ts";
import type { SandboxStore } from "../store/store.ts";
import { requireReady } from "./require-ready.ts";

export interface PreviewContext {
  store: Pick<SandboxStore, "previews" | "sandboxes">;
  keyring: Keyring;
  now: () => Date;
}

/** A preview that leads somewhere, and its sandbox. */
export interface OpenPreview {
  preview: Preview;
  sandbox: Sandbox;
}

/** Makes a preview of a ready sandbox, with the token that opens it. Throws CONFLICT when the sandbox has too many. */
export async function createPreview(
  { store, now }: PreviewContext,
  o: {
    call: Call;
    sandbox: Sandbox;
    asked: Parameters<typeof makePreview>[1];
    recordFor(made: OpenPreview & { token: string }): Promise<IdempotencyRecord | undefined>;
  },
): Promise<OpenPreview & { token: string }> {
  const { sandbox, call } = o;
  const made = { sandbox, ...makePreview(sandbox, o.asked, now()) };
  const events = [previewCreated(call, sandbox, made.preview)];
  const record = await o.recordFor(made);
  if (await store.previews.create(made.preview, { events, record })) return made;
  // It has ended since it was read.
  requireReady(await store.sandboxes.get(sandbox.id));
  throw new Error("a sandbox is ready, and was not a moment before");
}

/** The previews of a ready sandbox that have not expired. */
export async function listPreviews({ store, now }: PreviewContext, sandbox: Sandbox): Promise<Preview[]> {
  const previews = await store.previews.list(sandbox.id);
  return previews.filter((preview) => isOpen(preview, sandbox, now()));
}

/** Throws NOT_FOUND for one that isn't the sandbox's, or has ended. */
export async function findPreview({ store, now }: PreviewContext, sandbox: Sandbox, id: string): Promise<Preview> {
  const preview = await store.previews.get(id);
  if (preview?.sandboxId !== sandbox.id || !isOpen(preview, sandbox, now())) throw noSuchPreview();
  return preview;
}

/** Ends a preview. Throws NOT_FOUND as `findPreview` does. */
export async function revokePreview(
  o: PreviewContext,
  { call, sandbox, id }: { call: Call; sandbox: Sandbox; id: string },
): Promise<void> {
  const preview = await findPreview(o, sandbox, id);
  if (await o.store.previews.delete(preview.id, [previewRevoked(call, sandbox, preview)])) return;
  throw noSuchPreview();
}

/** Makes what opens a preview once. Throws NOT_FOUND, or CONFLICT when it has too many. */
export async function createPreviewLink(
  o: PreviewContext,
  { call, sandbox, id, ttlSeconds }: { call: Call; sandbox: Sandbox; id: string; ttlSeconds: number },
): Promise<{ preview: Preview; link: PreviewLink; secret: string }> {
  const preview = await findPreview(o, sandbox, id);
  const now = o.now();
  const made = makeLink(preview, { ttlSeconds, previewEnd: previewEndOf(preview, sandbox) }, now);
  const events = [previewLinkCreated(call, sandbox, preview)];
  if (await o.store.previews.createLink(made.link, { now, events })) return { preview, ...made };
  throw noSuchPreview();
}

/** Throws NOT_FOUND for a label that leads nowhere, whatever the cause. */
export async function resolveLabel(o: PreviewContext, label: string): Promise<OpenPreview> {
  return requireOpen(o, await o.store.previews.findByLabel(label));
}

/** Those of the ids that lead somewhere. */
export async function findOpenPreviews(o: PreviewContext, ids: readonly string[]): Promise<OpenPreview[]> {
  const found = await Promise.all(ids.map(async (id) => findOpen(o, await o.store.previews.get(id))));
  return found.filter((open) => open !== undefined);
}

/** Throws NOT_FOUND for one that leads nowhere. */
export async function findOpenPreview(o: PreviewContext, id: string): Promise<OpenPreview> {
  return requireOpen(o, await o.store.previews.get(id));
}

async function requireOpen(o: PreviewContext, preview: Preview | undefined): Promise<OpenPreview> {
  const found = await findOpen(o, preview);
  if (!found) throw noSuchPreview();
  return found;
}

async function findOpen(
  { store, now }: PreviewContext,
  preview: Preview | undefined,
): Promise<OpenPreview | undefined> {
  const sandbox = preview && (await store.sandboxes.get(preview.sandboxId));
  return sandbox && isOpen(preview, sandbox, now()) ? { preview, sandbox } : undefined;
}

/** Whether a token opens the preview, or else a cookie. Undefined: neither was shown, and it is private. */
export function opens(
  { keyring }: PreviewContext,
  preview: Preview,
  shown: { token: string; cookie: string },
): boolean | undefined {
  if (preview.public) return true;
  if (shown.token !== "") return isTokenOf(preview, shown.token);
  return shown.cookie === "" ? undefined : isCookieOf(keyring, preview, shown.cookie);
}

/**
 * Spends a link of the preview with this label, and returns the cookie that opens it. Throws NOT_FOUND as `resolveLabel`
 * does, and INVALID_TOKEN for a link that is unknown, spent, expired or another preview's.
 */
export async function openLink(
  o: PreviewContext,
  label: string,
  secret: string,
): Promise<{ cookie: string; expiresAt: Date }> {
  const { preview, sandbox } = await resolveLabel(o, label);
  const link = await o.store.previews.takeLink(hashOf(secret));
  if (link?.previewId !== preview.id || link.expiresAt <= o.now()) {
    throw new DomainError("INVALID_TOKEN", "The link is not valid. It may have been used or have expired.", {
      hint: "Make a new one with POST /sandboxes/{sandbox_id}/ports/{preview_id}/links. It can be opened once.",
    });
  }
  return { cookie: sealCookie(o.keyring, preview), expiresAt: previewEndOf(preview, sandbox) };
}

/** A cookie is kept nowhere: it says whose it is, sealed. */
const sealedFor = ({ id }: Preview) => ({ service: "sandgate.sandbox.v1", table: "preview_cookies", record: id });

function sealCookie(keyring: Keyring, preview: Preview): string {
  return Buffer.from(keyring.seal(Buffer.from(preview.id), sealedFor(preview))).toString("base64url");
}

function isCookieOf(keyring: Keyring, preview: Preview, cookie: string): boolean {
  try {
    keyring.open(Buffer.from(cookie, "base64url"), sealedFor(preview));
    return true;
  } catch {
    return false;
  }
}

function noSuchPreview(): DomainError {
  return new DomainError("NOT_FOUND", "There is no such preview.", {
    hint: "List those of the sandbox with GET /sandboxes/{sandbox_id}/ports.",
  });
}
