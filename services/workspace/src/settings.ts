import { defineSettings, integer, type SettingValues } from "@sandgate/kit/base/settings";

export const workspaceSettings = defineSettings({
  maxOwned: integer("SANDGATE_USER_MAX_WORKSPACES", {
    default: 20,
    min: 0,
    doc: "Workspaces a user may own, which are those they created or took over; 0 for no limit",
  }),
  maxMembers: integer("SANDGATE_WORKSPACE_MAX_MEMBERS", {
    default: 500,
    min: 0,
    doc: "Members a workspace may have; 0 for no limit",
  }),
});

export type WorkspaceSettings = SettingValues<typeof workspaceSettings>;
