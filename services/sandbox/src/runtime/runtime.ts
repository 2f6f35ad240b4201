import type { RuntimeDisk } from "./disk.ts";
import type { ImageStore } from "./images.ts";
import type { RuntimeLifecycle } from "./lifecycle.ts";
import type { RuntimeOperations } from "./operations.ts";

/** What runs sandboxes: one port for each role, of which only the first is every runtime's. */
export interface Runtime {
  readonly lifecycle: RuntimeLifecycle;
  readonly operations: RuntimeOperations;
  /** The images of an engine that has one store of them. Undefined where the nodes of a cluster pull by themselves. */
  readonly images?: ImageStore;
  /** The disk of an engine. Undefined where the nodes of a cluster limit what a sandbox writes. */
  readonly disk?: RuntimeDisk;
  /** Closes its connections. Nothing may be called after that. */
  close(): Promise<void>;
}
