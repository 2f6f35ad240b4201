import { createClient, createRouterTransport } from "@connectrpc/connect";
import { newId } from "@sandgate/kit/base/ids";
import { Role } from "@sandgate/proto/common/v1/access";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { expect, test } from "vitest";
import type { SignedIn } from "../base/signed-in.ts";
import { createWorkspaceScope } from "./workspace-scope.ts";

test("a user's requests in a workspace have the same caller, until the role or the workspace is another", async () => {
  let role: Role = Role.OWNER;
  let changed = () => {};
  const transport = createRouterTransport((router) =>
    router.service(WorkspaceService, { getMembership: () => ({ workspaceExists: true, role }) }),
  );
  const scope = createWorkspaceScope({
    clients: { workspace: createClient(WorkspaceService, transport) },
    bus: {
      watch(_subject, listener) {
        changed = () => listener(`${first} *`);
        return () => {};
      },
    },
  });
  const user: SignedIn["user"] = { id: newId(), credential: "session", credentialId: newId(), operator: false };
  const [first, second] = [newId(), newId()];
  const enter = (workspaceId: string, as = user) =>
    scope.enter({ user: as }, workspaceId, { inPath: false, least: Role.MEMBER, requestId: "r" });

  const owner = await enter(first);
  expect(owner).toEqual({ ...user, workspaceId: first, role: "owner" });
  expect(await enter(first)).toBe(owner);

  role = Role.MEMBER;
  changed();
  expect(await enter(first)).toEqual({ ...user, workspaceId: first, role: "member" });
  expect(await enter(second)).toEqual({ ...user, workspaceId: second, role: "member" });
  expect(await enter(first)).toEqual({ ...user, workspaceId: first, role: "member" });
  const other = { ...user, id: newId() };
  expect(await enter(first, other)).toEqual({ ...other, workspaceId: first, role: "member" });
});
