import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { newId } from "@sandgate/kit/base/ids";
import { usernameKey } from "@sandgate/kit/base/usernames";
import { toCredential } from "@sandgate/kit/rpc/access";
import { asFacade } from "@sandgate/kit/rpc/context";
import { Credential } from "@sandgate/proto/common/v1/access";
import type { Clients } from "../base/clients.ts";
import type { AuditEntry } from "./recorder.ts";

/** The audit log that telemetry keeps, and the users that identity knows. */
export function createAuditLog({ audit, identity }: Pick<Clients, "audit" | "identity">) {
  return {
    async store(entries: readonly AuditEntry[]): Promise<void> {
      const messages = entries.map(({ at, user, target, workspaceId = "", address = "", ...entry }) => ({
        ...entry,
        at: timestampFromDate(at),
        workspaceId,
        address,
        actorId: user?.id ?? "",
        credential: user ? toCredential(user.credential) : Credential.UNSPECIFIED,
        credentialId: user?.credentialId ?? "",
        targetType: target?.type ?? "",
        targetId: target?.id ?? "",
      }));
      await audit.recordAuditEntries({ entries: messages }, asFacade({ requestId: newId() }));
    },

    /** The names are `usernameKey`s. */
    async findUserIds(usernames: readonly string[]): Promise<Map<string, string>> {
      const { users } = await identity.batchGetUsers({ usernames: [...usernames] }, asFacade({ requestId: newId() }));
      return new Map(users.map(({ id, username }) => [usernameKey(username), id]));
    },
  };
}
