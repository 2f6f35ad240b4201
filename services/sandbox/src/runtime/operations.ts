import type { Socket } from "node:net";
import type { Duplex } from "node:stream";

// The port to what runs inside sandboxes. As of the other ports, errors are DomainErrors; any method may throw
// RUNTIME_UNAVAILABLE.

/** Where the helper lies in a sandbox. */
export const helperFolder = "/.sandgate";
export const helperCommand = [`${helperFolder}/helper`, "dial"] as const;
/** Starts its daemon, and prints the daemon's uid. */
export const helperStartCommand = [`${helperFolder}/helper`, "start"] as const;

/** Access to a sandbox's inside. */
export interface RuntimeOperations {
  /**
   * Opens a byte stream to the sandbox's helper, which runs with the rights, folder and environment of the sandbox's
   * image, and starts it when none runs. The engine's own exec carries it, or starts what it is a socket to: no port is
   * open in the sandbox. What comes by it is the tenant's word. A buffer that was written to it may be used again once
   * its write has called back. The stream is destroyed with the error when the helper can't be started, with CONFLICT
   * where the sandbox was made without one. Throws the signal's reason when it aborts before the stream is open.
   */
  connectHelper(sandboxId: string, signal: AbortSignal): Promise<Duplex>;
  /**
   * Opens a socket to the daemon of a helper that is connected, past the engine. Undefined where only the engine reaches
   * it. Throws the signal's reason.
   */
  connectDaemon?(sandboxId: string, signal: AbortSignal): Promise<Socket | undefined>;
}
