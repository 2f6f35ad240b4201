import type { Cursor } from "@sandgate/kit/base/page";
import type { StagedEvent } from "@sandgate/kit/events/outbox";
import type { Account, FirstOperator, User } from "../domain/users.ts";

export interface Users {
  /** Creates a verified operator unless there is one, also when several replicas try at once. */
  createFirstOperator(operator: FirstOperator): Promise<boolean>;
  /** Whether there is any operator. */
  hasOperator(): Promise<boolean>;
  findAccount(who: { usernameKey: string } | { id: string }): Promise<Account | undefined>;
  /** Users of these ids or these names, each once; what is not found is left out. */
  find(ids: readonly string[], usernameKeys: readonly string[]): Promise<User[]>;
  /** Up to `limit` users after `before`, newest first; with a name that user alone. */
  list(usernameKey: string | undefined, limit: number, before: Cursor | undefined): Promise<User[]>;
  /** Undefined: no such user with a verified address, or a disabled one. */
  makeOperator(userId: string, events: readonly StagedEvent[]): Promise<User | undefined>;
  /**
   * Disables the user and ends all sessions, whose ids it returns, or enables the user. Undefined: no such user. The
   * last operator stays enabled (`isLastOperator`).
   */
  setDisabled(
    userId: string,
    disabled: boolean,
    now: Date,
    events: readonly StagedEvent[],
  ): Promise<{ user: User; endedSessionIds: string[] } | "last_operator" | undefined>;
  /**
   * Deletes the user with all tokens and links, and ends all sessions, whose ids it returns. Undefined: no such user.
   * The last operator stays (`isLastOperator`).
   */
  delete(userId: string, events: readonly StagedEvent[], now: Date): Promise<string[] | "last_operator" | undefined>;
}
