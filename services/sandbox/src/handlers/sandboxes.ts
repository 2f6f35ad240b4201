import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { readPage } from "@sandgate/kit/base/page";
import { callOf, waitTimeOf, workspaceOf } from "@sandgate/kit/rpc/context";
import { createRunIdempotent } from "@sandgate/kit/rpc/idempotency";
import type { Keyring } from "@sandgate/kit/storage/sealing";
import { type ProvisionSandboxResponse, SandboxService } from "@sandgate/proto/sandbox/v1/sandbox";
import type { Sandbox } from "../domain/sandbox.ts";
import { toMessage, toRequested, toStates } from "../messages.ts";
import type { SandboxStore } from "../store/store.ts";
import { extendSandbox } from "../usecases/extend-sandbox.ts";
import { type ProvisionContext, provisionSandbox } from "../usecases/provision-sandbox.ts";
import { requireSandbox, stopSandbox } from "../usecases/stop-sandbox.ts";
import { waitUntilSettled } from "../usecases/wait-until-settled.ts";

export interface SandboxHandlersContext extends ProvisionContext {
  store: SandboxStore;
  keyring: Keyring;
  installationId: string;
  /** What each sandbox may use. */
  limits: { cpus: number; diskMb: number };
  /** Ends long polls, so that their callers ask another replica. */
  draining: AbortSignal;
}

/** What answers the service's calls. */
export function createSandboxHandlers(o: SandboxHandlersContext): ServiceImpl<typeof SandboxService> {
  const { store, installationId } = o;
  const runIdempotent = createRunIdempotent(o);
  const { sandboxes } = store;

  const find = (context: HandlerContext, idOrName: string): Promise<Sandbox | undefined> =>
    sandboxes.find(workspaceOf(callOf(context)), idOrName);

  return {
    provisionSandbox(request, context) {
      const call = callOf(context);
      const { signal } = context;
      const requested = toRequested(request);
      const answer = (sandbox: Sandbox): ProvisionSandboxResponse => ({
        $typeName: "sandgate.sandbox.v1.ProvisionSandboxResponse",
        sandbox: toMessage(sandbox),
      });
      return runIdempotent(call, SandboxService.method.provisionSandbox, request, async (recordFor) =>
        answer(
          await provisionSandbox(o, {
            call,
            image: { imageId: request.imageId, image: request.image, orDefault: request.orDefault },
            requested,
            env: request.env,
            recordFor: (accepted) => recordFor(answer(accepted)),
            signal,
          }),
        ),
      );
    },

    async getSandbox({ idOrName }, context) {
      return { sandbox: toMessage(requireSandbox(await find(context, idOrName))) };
    },

    async listSandboxes({ page, states, labels, namePrefix }, context) {
      const workspaceId = workspaceOf(callOf(context));
      const filter = { states: toStates(states), labels, namePrefix: namePrefix || undefined };
      const { signal } = context;
      const { rows, nextCursor } = await readPage(page, (limit, after) =>
        sandboxes.list(workspaceId, filter, { limit, signal, ...(after && { after }) }),
      );
      return { sandboxes: rows.map(toMessage), nextCursor };
    },

    async waitSandboxes({ idsOrNames, timeoutSeconds }, context) {
      const found = await Promise.all(idsOrNames.map((idOrName) => find(context, idOrName)));
      const settled = await waitUntilSettled({
        sandboxes,
        changes: o.changes,
        ids: found.map((sandbox) => requireSandbox(sandbox).id),
        timeoutMs: waitTimeOf(context, timeoutSeconds),
        signal: AbortSignal.any([context.signal, o.draining]),
      });
      return { sandboxes: settled.map((sandbox) => toMessage(requireSandbox(sandbox))) };
    },

    async extendSandbox({ idOrName, ttlSeconds, shorten }, context) {
      const extended = await extendSandbox(o, {
        call: callOf(context),
        find: () => find(context, idOrName),
        ttlSeconds,
        shorten,
      });
      return { sandbox: toMessage(extended) };
    },

    async stopSandbox({ idOrName }, context) {
      const stopped = await stopSandbox(o, {
        call: callOf(context),
        find: () => find(context, idOrName),
        reason: "stopped_by_user",
      });
      return { sandbox: toMessage(stopped) };
    },

    async listAllSandboxes({ page, states, workspaceId, userId }) {
      const filter = {
        states: toStates(states),
        workspaceId: workspaceId || undefined,
        createdBy: userId || undefined,
      };
      const { rows, nextCursor } = await readPage(page, (limit, after) => sandboxes.listAll(filter, { limit, after }));
      return { sandboxes: rows.map(toMessage), nextCursor };
    },

    async stopAnySandbox({ sandboxId }, context) {
      const stopped = await stopSandbox(o, {
        call: callOf(context),
        find: () => sandboxes.get(sandboxId),
        reason: "stopped_by_operator",
      });
      return { sandbox: toMessage(stopped) };
    },

    async getSandboxWorkspace({ sandboxId }) {
      const { workspaceId, createdBy } = requireSandbox(await sandboxes.get(sandboxId));
      return { workspaceId, createdBy };
    },

    async deriveKeys({ purpose }) {
      return { keys: o.keyring.derive(`${SandboxService.typeName} ${purpose}`) };
    },

    async getInstallation() {
      return { installationId, ...o.limits };
    },
  };
}
