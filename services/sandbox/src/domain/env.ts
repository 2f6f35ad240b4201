import { invalid } from "@sandgate/kit/base/domain-error";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import type { Sandbox } from "./sandbox.ts";

/** Environment variables by name. */
export type Env = Readonly<Record<string, string>>;

/** Bytes of all names and values together. */
const maxEnvBytes = 65_536;

/** Refuses variables that are too large together. Their other rules are in the contract. */
export function checkEnv(env: Env): void {
  const bytes = Object.entries(env).reduce((sum, each) => sum + Buffer.byteLength(each.join("")), 0);
  if (bytes > maxEnvBytes) throw invalid("env", `must have ${maxEnvBytes} bytes of names and values or fewer`);
}

const contextOf = ({ id, workspaceId }: Pick<Sandbox, "id" | "workspaceId">) => ({
  service: "sandbox",
  table: "envs",
  record: id,
  workspace: workspaceId,
});

/** Seals the variables of a sandbox for the store. */
export function sealEnv(keyring: Keyring, of: Pick<Sandbox, "id" | "workspaceId">, env: Env): Uint8Array {
  return keyring.seal(Buffer.from(JSON.stringify(env)), contextOf(of));
}

/** Opens what `sealEnv` has sealed. */
export function openEnv(keyring: Keyring, of: Pick<Sandbox, "id" | "workspaceId">, sealed: Uint8Array): Env {
  return JSON.parse(Buffer.from(keyring.open(sealed, contextOf(of))).toString());
}
