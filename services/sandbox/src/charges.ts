import { anyUnpack } from "@bufbuild/protobuf/wkt";
import type { Client } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import type { Logger } from "@sandgate/kit/base/logging";
import { startPeriodicTask } from "@sandgate/kit/base/periodic-task";
import { minuteMs } from "@sandgate/kit/base/time";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { BackgroundTask } from "@sandgate/kit/process/service";
import { asService, type Call, onBehalfOf, userOf, workspaceOf } from "@sandgate/kit/rpc/context";
import type { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { WorkspaceTakenOverSchema } from "@sandgate/proto/workspace/v1/workspace_events";
import type { Charge } from "./domain/quota.ts";
import type { SandboxStore } from "./store/store.ts";

/** Workspaces that are asked for at once. */
const pageSize = 500;

/** Whose limits the sandboxes of a workspace count towards. The workspace service decides that; the store's guards remember it. */
export interface Charges {
  /**
   * The charge of the call's workspace. One that its account has left is taken over by the owner who calls.
   * Throws PROVISIONING_FAILED when that can't be. Undefined from a workspace service that is still of an earlier version.
   */
  find(call: Call): Promise<Charge | undefined>;
  /** Follows workspaces that are taken over, and finds the charges of those that hold sandboxes since an earlier version. */
  start(): Promise<BackgroundTask>;
}

export function createCharges(o: {
  workspaces: Client<typeof WorkspaceService>;
  store: Pick<SandboxStore, "chargeWorkspace" | "listUncharged">;
  bus: Pick<EventBus, "consume">;
  logger: Logger;
}): Charges {
  const { workspaces, store, bus, logger } = o;

  async function read(call: Call): Promise<(Charge & { abandoned: boolean }) | undefined> {
    const { charges } = await workspaces.batchGetWorkspaces({ workspaceIds: [workspaceOf(call)] }, onBehalfOf(call));
    const [charge] = charges;
    return charge && { userId: charge.userId, since: Number(charge.since), abandoned: charge.abandoned };
  }

  async function takeOver(call: Call): Promise<void> {
    if (userOf(call).role !== "owner") {
      throw ownerHasLeft({
        hint: "An owner of the workspace takes it over by provisioning a sandbox, or with PUT /workspaces/{workspace_id}/members/{user_id} and the role that they have.",
      });
    }
    try {
      await workspaces.takeOverWorkspace({}, onBehalfOf(call));
    } catch (error) {
      if (!(error instanceof DomainError && error.reason === "CONFLICT")) throw error;
      throw ownerHasLeft({ hint: error.hint, cause: error });
    }
  }

  async function chargeUncharged(signal: AbortSignal): Promise<void> {
    for (let afterId = ""; !signal.aborted; ) {
      const workspaceIds = await store.listUncharged({ limit: pageSize, afterId });
      const last = workspaceIds.at(-1);
      if (last === undefined) return;
      afterId = last;
      const { charges } = await workspaces.batchGetWorkspaces({ workspaceIds }, asService({ signal }));
      for (const { workspaceId, userId, since } of charges) {
        await store.chargeWorkspace(workspaceId, { userId, since: Number(since) });
      }
    }
  }

  return {
    async find(call) {
      const charge = await read(call);
      if (!charge?.abandoned) return charge;
      await takeOver(call);
      return read(call);
    },

    async start() {
      const consumption = await bus.consume({
        consumer: "sandbox-charges",
        subjects: ["sandgate.workspace.workspace.taken_over.v1"],
        async handle(event) {
          const takenOver = event.payload && anyUnpack(event.payload, WorkspaceTakenOverSchema);
          if (!takenOver) throw new Error(`event ${event.eventId} isn't a WorkspaceTakenOver`);
          const { workspaceId, userId } = takenOver;
          await store.chargeWorkspace(workspaceId, { userId, since: Number(event.entityVersion) });
        },
      });
      const task = startPeriodicTask({
        what: "charge workspaces that hold sandboxes since an earlier version",
        everyMs: minuteMs,
        logger,
        work: chargeUncharged,
      });
      return {
        async stop() {
          await Promise.all([consumption.stop(), task.stop()]);
        },
      };
    },
  };
}

function ownerHasLeft(o: { hint: string | undefined; cause?: unknown }): DomainError {
  return new DomainError("PROVISIONING_FAILED", "The owner whom this workspace counted for has left it.", o);
}
