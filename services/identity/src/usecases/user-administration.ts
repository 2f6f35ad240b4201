import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Cursor } from "@sandgate/kit/base/page";
import { addMs, dayMs } from "@sandgate/kit/base/time";
import type { EventBus } from "@sandgate/kit/events/bus";
import { type Call, userOf } from "@sandgate/kit/rpc/context";
import { unverifiedDays } from "../domain/registrations.ts";
import { type User, usernameKey } from "../domain/users.ts";
import {
  signalApiTokenRevoked,
  signalSessionsEnded,
  userApiTokensRevoked,
  userDeleted,
  userDisabled,
  userEnabled,
  userMadeOperator,
  userSessionsEnded,
} from "../events.ts";
import type { PasswordHasher } from "../passwords/hasher.ts";
import type { IdentityStore } from "../store/store.ts";
import { confirmCaller } from "./confirmation.ts";

const unverifiedBatchSize = 100;

/**
 * How accounts are listed, closed and deleted, by operators and by their users. Those of operators that change a user
 * throw NOT_FOUND for no such user.
 */
export interface UserAdministration {
  /** Throws what `confirmCaller` throws. */
  confirm(call: Call, password: string | undefined): Promise<void>;
  /** The caller's own account. Throws INVALID_TOKEN when it was deleted meanwhile. */
  findOwn(call: Call): Promise<User>;
  /** Deletes the caller's own account. Throws what `confirmCaller` throws, CONFLICT for the last operator. */
  deleteOwn(call: Call, password: string | undefined): Promise<void>;
  /** Deletes the accounts that were never verified in time. */
  deleteUnverified(signal: AbortSignal): Promise<void>;
  /** Up to `limit` users after `before`, newest first; with a name that user alone. */
  list(username: string | undefined, limit: number, before: Cursor | undefined): Promise<User[]>;
  /** Users of these ids or these names, each once; what is not found is left out. */
  find(ids: readonly string[], usernames: readonly string[]): Promise<User[]>;
  /** Ends all sessions of a user. */
  endSessions(call: Call, userId: string): Promise<void>;
  /** Throws CONFLICT for disabling the operator who asks or the last one. */
  setDisabled(call: Call, userId: string, disabled: boolean): Promise<User>;
  /** Throws CONFLICT for the last operator. */
  delete(call: Call, userId: string): Promise<void>;
  /** Revokes all API tokens of a user. */
  revokeApiTokens(call: Call, userId: string): Promise<void>;
  /** Gives a user an operator's rights. Throws NOT_FOUND for no such enabled user with a verified address. */
  makeOperator(username: string): Promise<User>;
}

export function createUserAdministration(o: {
  store: IdentityStore;
  hasher: PasswordHasher;
  bus: EventBus;
  now: () => Date;
}): UserAdministration {
  const { store, bus, now } = o;

  async function deleteUser(call: Call, userId: string): Promise<void> {
    const ended = await store.users.delete(userId, [userDeleted(call, userId)], now());
    if (ended === undefined) throw userNotFound();
    if (ended === "last_operator") throw lastOperator();
    signalSessionsEnded(bus, ended);
    signalApiTokenRevoked(bus, userId);
  }

  async function requireUser(userId: string): Promise<void> {
    if ((await store.users.find([userId], [])).length === 0) throw userNotFound();
  }

  return {
    async confirm(call, password) {
      await confirmCaller(o, userOf(call), password);
    },

    async findOwn(call) {
      const [user] = await store.users.find([userOf(call).id], []);
      if (!user) throw new DomainError("INVALID_TOKEN", "The account was deleted.");
      return user;
    },

    async deleteOwn(call, password) {
      const { id } = await confirmCaller(o, userOf(call), password);
      await deleteUser(call, id);
    },

    async deleteUnverified(signal) {
      for (;;) {
        const at = now();
        const due = await store.registrations.listAbandoned(
          addMs(at, -unverifiedDays * dayMs),
          at,
          unverifiedBatchSize,
        );
        for (const id of due) {
          if (signal.aborted) return;
          await store.registrations.deleteAbandoned(id, [userDeleted(undefined, id)], at);
        }
        if (due.length < unverifiedBatchSize) return;
      }
    },

    list: (username, limit, before) =>
      store.users.list(username === undefined ? undefined : usernameKey(username), limit, before),

    find: (ids, usernames) => store.users.find(ids, usernames.map(usernameKey)),

    async endSessions(call, userId) {
      await requireUser(userId);
      const events = [userSessionsEnded(call, userId)];
      signalSessionsEnded(bus, await store.sessions.endOthers(userId, undefined, now(), events));
    },

    async setDisabled(call, userId, disabled) {
      if (disabled && userOf(call).id === userId) {
        throw new DomainError("CONFLICT", "This is your own account.", {
          hint: "Another operator can disable it. The command make-operator on the server's machine makes one.",
        });
      }
      const events = [(disabled ? userDisabled : userEnabled)(call, userId)];
      const changed = await store.users.setDisabled(userId, disabled, now(), events);
      if (changed === undefined) throw userNotFound();
      if (changed === "last_operator") throw lastOperator();
      signalSessionsEnded(bus, changed.endedSessionIds);
      // The facades forget the tokens that they remember.
      signalApiTokenRevoked(bus, userId);
      return changed.user;
    },

    delete: deleteUser,

    async revokeApiTokens(call, userId) {
      await requireUser(userId);
      await store.apiTokens.revokeAll(userId, [userApiTokensRevoked(call, userId)]);
      signalApiTokenRevoked(bus, userId);
    },

    async makeOperator(username) {
      const found = await store.users.findAccount({ usernameKey: usernameKey(username) });
      const made =
        found && (await store.users.makeOperator(found.user.id, [userMadeOperator(undefined, found.user.id)]));
      if (!made) throw new DomainError("NOT_FOUND", "There is no enabled user of this name with a verified address.");
      // The facades forget what rights the user's tokens had.
      signalApiTokenRevoked(bus, made.id);
      return made;
    },
  };
}

function userNotFound(): DomainError {
  return new DomainError("NOT_FOUND", "There is no such user.", { hint: "Check the id against GET /admin/users." });
}

function lastOperator(): DomainError {
  return new DomainError("CONFLICT", "This is the only enabled operator.", {
    hint: "First enable another operator, or make one with the command make-operator on the server's machine.",
  });
}
