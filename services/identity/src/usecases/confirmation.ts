import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { addMs, minuteMs } from "@sandgate/kit/base/time";
import type { UserCaller } from "@sandgate/kit/rpc/context";
import type { User } from "../domain/users.ts";
import type { PasswordHasher } from "../passwords/hasher.ts";
import type { IdentityStore } from "../store/store.ts";

/** How old a sign-in may be to stand for the password in an account without one. */
const freshMs = 5 * minuteMs;

/**
 * Returns the caller's user once the password is right. An account of single sign-on may have none: there a recent
 * sign-in confirms the caller. Throws INVALID_CREDENTIALS, or VALIDATION_ERROR for a password that is missing.
 */
export async function confirmCaller(
  { store, hasher, now }: { store: IdentityStore; hasher: PasswordHasher; now: () => Date },
  caller: UserCaller,
  password: string | undefined,
): Promise<User> {
  const found = await store.users.findAccount({ id: caller.id });
  if (found?.passwordHash === undefined) {
    const signedInAt = await store.sessions.findStart(caller.id, caller.credentialId);
    if (found && signedInAt && signedInAt > addMs(now(), -freshMs)) return found.user;
    throw new DomainError("INVALID_CREDENTIALS", "This requires a sign-in within the last 5 minutes.", {
      hint: "The account has no password. Sign in with your provider again, then retry.",
    });
  }
  if (password === undefined) throw invalid("password", "is required");
  if (await hasher.verify(password, found.passwordHash)) return found.user;
  throw new DomainError("INVALID_CREDENTIALS", "The password is wrong.");
}
