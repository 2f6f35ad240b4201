import type { ServiceStore } from "@sandgate/kit/storage/open-store";
import type { Accounts } from "./accounts.ts";
import type { Deletions } from "./deletions.ts";
import type { Members } from "./members.ts";
import type { Workspaces } from "./workspaces.ts";

export interface WorkspaceStore extends ServiceStore {
  readonly workspaces: Workspaces;
  readonly members: Members;
  readonly accounts: Accounts;
  readonly deletions: Deletions;
}
