// Previews of ports: what opens them, and how long they live. No I/O.
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { addMs } from "@sandgate/kit/base/time";
import type { Sandbox } from "./sandbox.ts";

/** A host name that leads to a port of a sandbox. */
export interface Preview {
  readonly id: string;
  readonly sandboxId: string;
  readonly workspaceId: string;
  /** The first part of its host name. */
  readonly label: string;
  /** Of what opens it: the token itself is kept nowhere. */
  readonly tokenHash: Uint8Array;
  readonly port: number;
  /** It opens without a token. */
  readonly public: boolean;
  /** The Host header that the server in the sandbox gets: the preview's host, or `localhost:<port>`. */
  readonly hostHeader: "preview" | "localhost";
  readonly createdBy: string;
  readonly createdAt: Date;
  /** It may end earlier, with its sandbox. */
  readonly expiresAt: Date;
}

/** What opens a preview once, for a browser. */
export interface PreviewLink {
  readonly hash: Uint8Array;
  readonly previewId: string;
  readonly expiresAt: Date;
}

/** Previews that a sandbox may have, and links that a preview may have which nobody opened yet. */
export const maxPreviews = 20;
export const maxLinks = 100;

const base32 = "abcdefghijklmnopqrstuvwxyz234567";

/** A part of a host name that can't be guessed: 130 random bits as letters and digits. */
function newLabel(): string {
  return Array.from(randomBytes(26), (byte) => base32[byte % base32.length]).join("");
}

/** A new preview of a sandbox, with the token that opens it. */
export function makePreview(
  sandbox: Sandbox,
  o: Pick<Preview, "port" | "public" | "hostHeader" | "createdBy"> & { ttlSeconds: number },
  now: Date,
): { preview: Preview; token: string } {
  const { ttlSeconds, ...asked } = o;
  const token = `sgp_${newSecret()}`;
  const preview = {
    ...asked,
    id: newId(),
    sandboxId: sandbox.id,
    workspaceId: sandbox.workspaceId,
    label: newLabel(),
    tokenHash: hashOf(token),
    createdAt: now,
    expiresAt: addMs(now, ttlSeconds * 1000),
  };
  return { preview, token };
}

/** A new link of a preview that ends at `previewEnd`. */
export function makeLink(
  preview: Preview,
  o: { ttlSeconds: number; previewEnd: Date },
  now: Date,
): { link: PreviewLink; secret: string } {
  const secret = newSecret();
  const expiresAt = earlierOf(addMs(now, o.ttlSeconds * 1000), o.previewEnd);
  return { link: { hash: hashOf(secret), previewId: preview.id, expiresAt }, secret };
}

/** When a preview ends: never after its sandbox. */
export function previewEndOf({ expiresAt }: Preview, sandbox: Pick<Sandbox, "expiresAt">): Date {
  return sandbox.expiresAt ? earlierOf(sandbox.expiresAt, expiresAt) : expiresAt;
}

function earlierOf(one: Date, other: Date): Date {
  return new Date(Math.min(one.getTime(), other.getTime()));
}

/** Whether a preview leads anywhere: only into a sandbox that is ready. */
export function isOpen(preview: Preview, sandbox: Pick<Sandbox, "state" | "expiresAt">, now: Date): boolean {
  return sandbox.state === "ready" && previewEndOf(preview, sandbox) > now;
}

/** Throws CONFLICT for a preview above the limit of its sandbox, which has `count` that have not expired. */
export function checkPreviewCount(count: number): void {
  if (count < maxPreviews) return;
  throw new DomainError("CONFLICT", `A sandbox can have at most ${maxPreviews} previews.`, {
    hint: "Delete one with DELETE /sandboxes/{sandbox_id}/ports/{preview_id}.",
  });
}

/** Throws CONFLICT for a link above the limit of its preview, which has `count` that can still be opened. */
export function checkLinkCount(count: number): void {
  if (count < maxLinks) return;
  throw new DomainError("CONFLICT", `A preview can have at most ${maxLinks} unopened links.`, {
    hint: "Open one of them, or wait until one expires.",
  });
}

/** What is stored of a token or a link. They are random and long, so a fast hash without a salt is enough. */
export function hashOf(secret: string): Uint8Array {
  return new Uint8Array(createHash("sha256").update(secret).digest());
}

export function isTokenOf({ tokenHash }: Preview, token: string): boolean {
  return timingSafeEqual(tokenHash, hashOf(token));
}

/** 256 random bits that fit into a header and a URL. */
function newSecret(): string {
  return randomBytes(32).toString("base64url");
}
