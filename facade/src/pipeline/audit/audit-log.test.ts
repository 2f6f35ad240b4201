import { createClient, createRouterTransport } from "@connectrpc/connect";
import { invalid } from "@sandgate/kit/base/domain-error";
import { IdentityService } from "@sandgate/proto/identity/v1/identity";
import { AuditService } from "@sandgate/proto/telemetry/v1/audit";
import { expect, test } from "vitest";
import { createAuditLog } from "./audit-log.ts";

test("users are found by more names than one call may ask for", async () => {
  const transport = createRouterTransport(({ service }) => {
    service(IdentityService, {
      batchGetUsers({ usernames }) {
        if (usernames.length > 500) throw invalid("usernames", "must have at most 500 items");
        return { users: usernames.map((username) => ({ id: `id of ${username}`, username })) };
      },
    });
  });
  const log = createAuditLog({
    audit: createClient(AuditService, transport),
    identity: createClient(IdentityService, transport),
  });
  const names = Array.from({ length: 1_201 }, (_, i) => `u${i}@example.com`);
  expect(await log.findUserIds(names)).toEqual(new Map(names.map((name) => [name, `id of ${name}`])));
});
