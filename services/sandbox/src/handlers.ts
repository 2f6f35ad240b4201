import type { Client, HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { DomainError } from "@sandgate/kit/base/domain-error";
import { newId } from "@sandgate/kit/base/ids";
import { readPage } from "@sandgate/kit/base/page";
import { type Call, callOf, onBehalfOf, userOf, waitTimeOf, workspaceOf } from "@sandgate/kit/rpc/context";
import { runIdempotent } from "@sandgate/kit/rpc/idempotency";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import type { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { type ProvisionSandboxResponse, SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import type { Charges } from "./charges.ts";
import { checkName } from "./domain/names.ts";
import type { Quotas } from "./domain/quota.ts";
import { acceptSandbox, beginStop, isLive, type Sandbox, type StopReason } from "./domain/sandbox.ts";
import { stageProvisioned, stageStopRequested } from "./events.ts";
import { toMessage, toRequested, toSnapshot, toStates } from "./messages.ts";
import type { Changes } from "./reconcile/changes.ts";
import { waitUntilSettled } from "./reconcile/waits.ts";
import type { SandboxStore } from "./store/store.ts";

/** What answers the service's calls. */
export function createHandlers(o: {
  store: SandboxStore;
  changes: Changes;
  charges: Charges;
  images: Client<typeof ImageRegistryService>;
  keyring: Keyring;
  quotas: Quotas;
  installationId: string;
  /** What keeps sandboxes from being run, if anything does. */
  runtimeProblem(): DomainError | undefined;
  /** The disk that has less free than the reserve, in one line; undefined: none. */
  diskShortage(): Promise<string | undefined>;
  /** Ends long polls, so that their callers ask another replica. */
  draining: AbortSignal;
}): ServiceImpl<typeof SandboxService> {
  const { store, changes, charges, images, keyring, quotas, installationId } = o;

  async function findSandbox(context: HandlerContext, idOrName: string): Promise<Sandbox> {
    return found(await store.find(workspaceOf(callOf(context)), idOrName));
  }

  async function stop(call: Call, find: () => Promise<Sandbox>, reason: StopReason): Promise<Sandbox> {
    for (;;) {
      const sandbox = await find();
      if (!isLive(sandbox.state)) {
        return sandbox;
      }
      const stopping = beginStop(sandbox, reason, new Date());
      if (await store.update(stopping, [stageStopRequested(stopping, call)])) {
        changes.announce(sandbox.id);
        return stopping;
      }
    }
  }

  return {
    async provisionSandbox(request, context) {
      const call = callOf(context);
      checkName(request.name);
      let sandboxId = "";
      const response = await runIdempotent({
        call,
        method: SandboxService.method.provisionSandbox,
        request,
        keyring,
        store,
        async work(recordFor) {
          const problem = o.runtimeProblem();
          if (problem?.reason === "ISOLATION_UNAVAILABLE") {
            throw new DomainError("PROVISIONING_FAILED", "Sandboxes can't be isolated on this host.", {
              hint: problem.message,
            });
          }
          const shortage = await o.diskShortage();
          if (shortage !== undefined) {
            throw new DomainError("PROVISIONING_FAILED", "The host is short of disk space.", {
              hint: `Try again later, or ask the operator for more: ${shortage}.`,
            });
          }
          const [{ image }, charge] = await Promise.all([
            images.resolveImage({ imageId: request.imageId }, onBehalfOf(call)),
            charges.find(call),
          ]);
          if (!image) {
            throw new DomainError("IMAGE_NOT_FOUND", "There is no such image.");
          }
          const sandbox = acceptSandbox({
            ...toRequested(request),
            id: newId(),
            workspaceId: workspaceOf(call),
            image: toSnapshot(image),
            createdBy: userOf(call).id,
            now: new Date(),
          });
          const answer: ProvisionSandboxResponse = {
            $typeName: "sandgate.sandbox.v1.ProvisionSandboxResponse",
            sandbox: toMessage(sandbox),
          };
          const events = [stageProvisioned(sandbox, call)];
          await store.create(sandbox, charge, quotas, events, await recordFor(answer), context.signal);
          sandboxId = sandbox.id;
          return answer;
        },
      });
      if (sandboxId) {
        // Whichever replica has its shard goes to work.
        changes.announce(sandboxId);
      }
      return response;
    },

    async getSandbox(request, context) {
      return { sandbox: toMessage(await findSandbox(context, request.idOrName)) };
    },

    async listSandboxes(request, context) {
      const { rows, nextCursor } = await readPage(request.page, (limit, after) =>
        store.list(
          workspaceOf(callOf(context)),
          { states: toStates(request.states), labels: request.labels },
          { limit, signal: context.signal, ...(after && { after }) },
        ),
      );
      return { sandboxes: rows.map(toMessage), nextCursor };
    },

    async waitSandboxes(request, context) {
      const found = await Promise.all(request.idsOrNames.map((idOrName) => findSandbox(context, idOrName)));
      const settled = await waitUntilSettled({
        store,
        changes,
        ids: found.map((sandbox) => sandbox.id),
        timeoutMs: waitTimeOf(context, request.timeoutSeconds),
        signal: AbortSignal.any([context.signal, o.draining]),
      });
      return {
        sandboxes: settled.map((sandbox) => {
          if (!sandbox) {
            throw new DomainError("SANDBOX_NOT_FOUND", "The sandbox no longer exists.");
          }
          return toMessage(sandbox);
        }),
      };
    },

    async stopSandbox(request, context) {
      const find = () => findSandbox(context, request.idOrName);
      const stopped = await stop(callOf(context), find, "stopped_by_user");
      return { sandbox: toMessage(stopped) };
    },

    async listAllSandboxes({ page, states, workspaceId, userId }) {
      const filter = {
        states: toStates(states),
        workspaceId: workspaceId || undefined,
        createdBy: userId || undefined,
      };
      const { rows, nextCursor } = await readPage(page, (limit, after) => store.listAll(filter, { limit, after }));
      return { sandboxes: rows.map(toMessage), nextCursor };
    },

    async stopAnySandbox({ sandboxId }, context) {
      const find = async () => found(await store.get(sandboxId));
      const stopped = await stop(callOf(context), find, "stopped_by_operator");
      return { sandbox: toMessage(stopped) };
    },

    async getSandboxWorkspace({ sandboxId }) {
      const sandbox = await store.get(sandboxId);
      if (!sandbox) {
        throw new DomainError("SANDBOX_NOT_FOUND", "There is no such sandbox.");
      }
      return { workspaceId: sandbox.workspaceId };
    },

    async getInstallation() {
      return { installationId };
    },
  };
}

function found(sandbox: Sandbox | undefined): Sandbox {
  if (!sandbox) throw new DomainError("SANDBOX_NOT_FOUND", "There is no such sandbox.");
  return sandbox;
}
