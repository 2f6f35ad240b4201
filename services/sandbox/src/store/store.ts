import type { ServiceStore } from "@sandgate/kit/storage/open-store";
import type { PurgeStore } from "@sandgate/kit/workspaces/workspace-purges";
import type { ImageUses } from "./image-uses.ts";
import type { Previews } from "./previews.ts";
import type { QuotaOwners } from "./quota-owners.ts";
import type { Retention, SandboxActivity, Sandboxes, UnfinishedSandboxes } from "./sandboxes.ts";

interface Installation {
  /** This installation's id, which the first call ever generates. */
  findId(): Promise<string>;
}

/** What the service stores, a port for each role. Each method is a transaction; a write stores its events with it. */
export interface SandboxStore extends ServiceStore {
  readonly sandboxes: Sandboxes;
  readonly unfinished: UnfinishedSandboxes;
  readonly activity: SandboxActivity;
  readonly retention: Retention;
  readonly quotaOwners: QuotaOwners;
  readonly imageUses: ImageUses;
  readonly previews: Previews;
  readonly purges: PurgeStore;
  readonly installation: Installation;
}
