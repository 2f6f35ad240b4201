import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import { newId } from "@sandgate/kit/base/ids";
import { usernameKey } from "@sandgate/kit/base/usernames";
import { toCredential } from "@sandgate/kit/rpc/access";
import { asFacade } from "@sandgate/kit/rpc/context";
import { Credential } from "@sandgate/proto/common/v1/access";
import type { Clients } from "../base/clients.ts";
import type { AuditEntry } from "./recorder.ts";

/** As many as the contract lets one call ask for. */
const namesAtOnce = 500;

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
      const ids = new Map<string, string>();
      for (let from = 0; from < usernames.length; from += namesAtOnce) {
        const asked = usernames.slice(from, from + namesAtOnce);
        const { users } = await identity.batchGetUsers({ usernames: asked }, asFacade({ requestId: newId() }));
        for (const { id, username } of users) ids.set(usernameKey(username), id);
      }
      return ids;
    },
  };
}
