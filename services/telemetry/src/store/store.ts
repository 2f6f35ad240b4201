import type { ServiceStore } from "@sandgate/kit/storage/open-store";
import type { PurgeStore } from "@sandgate/kit/workspaces/workspace-purges";
import type { AuditLog } from "./audit.ts";
import type { Chunks } from "./chunks.ts";
import type { Retention } from "./retention.ts";
import type { Sources } from "./sources.ts";

export interface TelemetryStore extends ServiceStore {
  readonly sources: Sources;
  readonly chunks: Chunks;
  readonly retention: Retention;
  readonly purges: PurgeStore;
  readonly audit: AuditLog;
  /** Undefined when the database is a server's. */
  readonly file: DatabaseFile | undefined;
}

/** The file that the database is. */
export interface DatabaseFile {
  /** Bytes of it that new rows can take without more of the disk. */
  reusableBytes(): number;
}
