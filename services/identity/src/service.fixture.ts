import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Client } from "@connectrpc/connect";
import { newId } from "@sandgate/kit/base/ids";
import { createLogger } from "@sandgate/kit/base/logging";
import { createMetrics } from "@sandgate/kit/base/metrics";
import type { EventBus } from "@sandgate/kit/events/bus";
import { openLocalBus } from "@sandgate/kit/events/bus.local";
import { createInMemoryNetwork } from "@sandgate/kit/rpc/clients";
import { asFacade, type UserCaller } from "@sandgate/kit/rpc/context";
import { createClient } from "@sandgate/kit/rpc/create-client";
import { openKeyring } from "@sandgate/kit/storage/sealing";
import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { createLocalJWKSet, jwtVerify } from "jose";
import { afterEach, expect } from "vitest";
import { defineIdentityService } from "./service.ts";

const logger = createLogger({ service: "identity", level: "silent" });
export const password = "correct horse battery";
export const username = "Ann@Example.com";
export let folder: string;
export let now: number;
export let bus: EventBus;
export let network: Awaited<ReturnType<typeof createInMemoryNetwork>>;
export let service: Awaited<ReturnType<ReturnType<typeof defineIdentityService>["open"]>>;
export let identity: Client<typeof IdentityService>;

export async function open(
  env: NodeJS.ProcessEnv = {},
  o: { operatorPassword?: "made" | "settings" } = {},
): Promise<void> {
  const metrics = createMetrics();
  bus = await openLocalBus({ file: join(folder, "events.sqlite"), logger, metrics });
  network = await createInMemoryNetwork();
  const definition = defineIdentityService(() => new Date(now), o);
  service = await definition.open(
    {
      database: { kind: "sqlite", file: join(folder, "identity.sqlite") },
      bus,
      transport: (name) => network.transport("identity", name),
      keyring: await openKeyring({ file: join(folder, "keys.json"), create: true }),
      logger,
      metrics,
    },
    definition.readSettings({ SANDGATE_DATA: folder, ...env }),
  );
  network.serve("identity", { routes: service.routes, logger, metrics });
  await service.start();
  identity = createClient(IdentityService, network.transport("facade", "identity"));
}

export async function close(): Promise<void> {
  await service.drain();
  await service.close();
  await bus.close();
}

/** Gives each test of a file a folder of its own, and closes what the test opened. */
export function useService(): void {
  test.beforeEach(async ({ folder: own }) => {
    folder = own;
    now = Date.UTC(2026, 0, 1);
  });

  afterEach(async () => {
    await close();
  });
}

/** Lets time pass for the service. */
export function advance(ms: number): void {
  now += ms;
}

export const nobody = (idempotencyKey?: string) => asFacade({ requestId: newId(), idempotencyKey });
export const from = (clientAddress: string) => asFacade({ requestId: newId(), clientAddress });

export function as(
  id: string,
  more: Partial<Pick<UserCaller, "credential" | "credentialId">> & { idempotencyKey?: string } = {},
) {
  const { idempotencyKey, ...credential } = more;
  const user = { id, credential: "session" as const, credentialId: newId(), operator: false, ...credential };
  return asFacade({ requestId: newId(), user, idempotencyKey });
}

/** The tokens of the mails written so far, the oldest first, once there are `count` mails. */
export async function readMails(count: number): Promise<{ token: string | undefined; text: string }[]> {
  const mailFolder = join(folder, "mail");
  const files = await until(async () => {
    const names = (await readdir(mailFolder).catch(() => [])).filter((name) => name.endsWith(".eml"));
    expect(names.length).toBeGreaterThanOrEqual(count);
    return names.toSorted();
  });
  return Promise.all(
    files.map(async (file) => {
      const text = await readFile(join(mailFolder, file), "utf8");
      return { text, token: /token=([A-Za-z0-9_-]+)/.exec(text)?.[1] };
    }),
  );
}

export async function createUser(): Promise<string> {
  await identity.register({ username, password }, nobody());
  const [mail] = await readMails(1);
  await identity.verifyEmail({ token: mail?.token ?? "", password }, nobody());
  const { users } = await identity.batchGetUsers({ usernames: [username] }, nobody());
  return users[0]?.id ?? "";
}

export const signIn = async () => (await identity.signIn({ username, password }, nobody())).tokens;

export async function signedIn() {
  const tokens = await signIn();
  if (!tokens) throw new Error("The answer has no tokens.");
  return tokens;
}

/** How the user calls with a session that begins now. */
export async function signedInAs(id: string, who = username) {
  const { tokens } = await identity.signIn({ username: who, password }, nobody());
  const { sid } = await verifyAccessToken(tokens?.accessToken ?? "");
  return () => as(id, { credentialId: String(sid) });
}

export async function verifyAccessToken(token: string) {
  const { jwks, issuer, audience } = await identity.getSigningKeys({}, nobody());
  const options = { issuer, audience, typ: "at+jwt", currentDate: new Date(now) };
  return (await jwtVerify(token, createLocalJWKSet(JSON.parse(jwks)), options)).payload;
}
