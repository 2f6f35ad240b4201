import type { Logger } from "@sandgate/kit/base/logging";
import { beginStop, fail, recordStarted, type Sandbox } from "../domain/sandbox.ts";
import { sandboxStateEntered } from "../events.ts";
import type { Observation } from "../runtime/lifecycle.ts";
import type { SandboxStore } from "../store/store.ts";
import type { Changes } from "../usecases/changes.ts";
import { exitFailure, type Failure, withProgram } from "./failures.ts";

/** Writes the reconciler's changes. False: the record has changed meanwhile and has to be read again. */
export interface Records {
  save(sandbox: Sandbox): Promise<boolean>;
  /**
   * Saves when its container started, unless that is known. Returns the record as it is then; undefined: it has
   * changed.
   */
  saveStart(sandbox: Sandbox, seen: Observation | undefined): Promise<Sandbox | undefined>;
  saveFailure(sandbox: Sandbox, failure: Failure): Promise<boolean>;
  /** Saves what the end of its container means for a provisioning or ready sandbox. */
  saveEnd(sandbox: Sandbox, seen: Observation): Promise<boolean>;
}

/** @param o.onSaved called before a saved record is announced */
export function createRecords(o: {
  store: Pick<SandboxStore, "sandboxes">;
  changes: Changes;
  logger: Logger;
  onSaved?(sandbox: Sandbox): void;
}): Records {
  const { store, changes, logger } = o;

  async function save(sandbox: Sandbox): Promise<boolean> {
    const isSaved = await store.sandboxes.update(sandbox, sandboxStateEntered(sandbox));
    if (isSaved) {
      o.onSaved?.(sandbox);
      changes.announce(sandbox.id);
    }
    return isSaved;
  }

  function saveFailure(sandbox: Sandbox, seen: Failure): Promise<boolean> {
    const failure = withProgram(seen, sandbox.command);
    const { reason, message: cause, detail } = failure;
    logger.info({ sandboxId: sandbox.id, reason, cause, detail }, "a sandbox failed");
    return save(fail(sandbox, failure, new Date()));
  }

  return {
    save,
    saveFailure,
    saveEnd: (sandbox, seen) =>
      seen.isExpired ? save(beginStop(sandbox, "ttl_expired", new Date())) : saveFailure(sandbox, exitFailure(seen)),
    async saveStart(sandbox, seen) {
      if (!seen?.startedAt || sandbox.startedAt) {
        return sandbox;
      }
      const started = recordStarted(sandbox, { createdAt: seen.createdAt, startedAt: seen.startedAt }, new Date());
      return (await save(started)) ? started : undefined;
    },
  };
}
