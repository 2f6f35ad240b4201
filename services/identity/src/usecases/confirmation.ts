import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import type { UserCaller } from "@sandgate/kit/rpc/context";
import { recentSignInStart } from "../domain/sessions.ts";
import type { User } from "../domain/users.ts";
import type { PasswordHasher } from "../passwords/hasher.ts";
import type { IdentityStore } from "../store/store.ts";

interface Clocked {
  store: IdentityStore;
  now: () => Date;
}

/**
 * Returns the caller's user once the password is right. An account of single sign-on may have none: there a recent
 * sign-in confirms the caller. Throws INVALID_CREDENTIALS, or VALIDATION_ERROR for a password that is missing.
 */
export async function confirmCaller(
  { hasher, ...o }: Clocked & { hasher: PasswordHasher },
  caller: UserCaller,
  password: string | undefined,
): Promise<User> {
  const found = await o.store.users.findAccount({ id: caller.id });
  if (found?.passwordHash === undefined) {
    if (found && (await hasSignedInRecently(o, caller))) return found.user;
    throw new DomainError("INVALID_CREDENTIALS", "This requires a sign-in within the last 5 minutes.", {
      hint: "The account has no password. Sign in with your provider again, then retry.",
    });
  }
  if (password === undefined) throw invalid("password", "is required");
  if (await hasher.verify(password, found.passwordHash)) return found.user;
  throw new DomainError("INVALID_CREDENTIALS", "The password is wrong.");
}

/**
 * For what outlives a session, and would keep its user out. Throws FORBIDDEN unless the caller's session was signed in
 * recently and hasn't ended.
 */
export async function requireRecentSignIn(o: Clocked, caller: UserCaller): Promise<void> {
  if (!(await hasSignedInRecently(o, caller))) throw signInNeeded("Sign in again, then retry.");
}

export function signInNeeded(hint: string): DomainError {
  return new DomainError("FORBIDDEN", "This requires a sign-in within the last 5 minutes.", { hint });
}

async function hasSignedInRecently({ store, now }: Clocked, { id, credentialId }: UserCaller): Promise<boolean> {
  const at = now();
  const session = await store.sessions.find(id, credentialId, at);
  return session !== undefined && session.createdAt > recentSignInStart(at);
}
