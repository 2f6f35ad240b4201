import { create } from "@bufbuild/protobuf";
import { timestampFromDate } from "@bufbuild/protobuf/wkt";
import type { HandlerContext, ServiceImpl } from "@connectrpc/connect";
import { callOf, userOf, workspaceOf } from "@sandgate/kit/rpc/context";
import { createRunIdempotent } from "@sandgate/kit/rpc/idempotency";
import {
  CreatePreviewResponseSchema,
  HostHeader,
  PreviewAccess,
  PreviewService,
} from "@sandgate/proto/sandbox/v1/previews";
import { previewEndOf } from "../domain/previews.ts";
import type { Sandbox } from "../domain/sandbox.ts";
import { toPreviewMessage } from "../messages.ts";
import type { SandboxStore } from "../store/store.ts";
import {
  createPreview,
  createPreviewLink,
  findOpenPreviews,
  findPreview,
  listPreviews,
  openLink,
  opens,
  type PreviewContext,
  resolveLabel,
  revokePreview,
} from "../usecases/previews.ts";
import { requireReady } from "../usecases/require-ready.ts";
import type { SandboxUse } from "../usecases/sandbox-use.ts";

/** What answers for previews of ports. */
export function createPreviewHandlers(
  o: PreviewContext & { store: SandboxStore; use: Pick<SandboxUse, "touch"> },
): ServiceImpl<typeof PreviewService> {
  const runIdempotent = createRunIdempotent(o);

  /** The ready sandbox that a call names. */
  async function enter(context: HandlerContext, idOrName: string): Promise<Sandbox> {
    return requireReady(await o.store.sandboxes.find(workspaceOf(callOf(context)), idOrName));
  }

  /** The same for a call that uses it. */
  async function use(context: HandlerContext, idOrName: string): Promise<Sandbox> {
    const sandbox = await enter(context, idOrName);
    o.use.touch(sandbox.id);
    return sandbox;
  }

  return {
    async createPreview(request, context) {
      const call = callOf(context);
      const sandbox = await use(context, request.sandbox);
      const { port, public: isPublic, ttlSeconds } = request;
      const hostHeader = request.hostHeader === HostHeader.LOCALHOST ? "localhost" : "preview";
      const asked = { port, public: isPublic, hostHeader, ttlSeconds, createdBy: userOf(call).id } as const;
      // The same by the sandbox's name and by its id.
      const normal = { ...request, sandbox: sandbox.id };
      const answer = ({ preview, token }: { preview: Parameters<typeof toPreviewMessage>[0]; token: string }) =>
        create(CreatePreviewResponseSchema, { preview: toPreviewMessage(preview, sandbox), token });
      return runIdempotent(call, PreviewService.method.createPreview, normal, async (recordFor) =>
        answer(await createPreview(o, { call, sandbox, asked, recordFor: (made) => recordFor(answer(made)) })),
      );
    },

    async getPreview({ sandbox: idOrName, previewId }, context) {
      const sandbox = await enter(context, idOrName);
      return { preview: toPreviewMessage(await findPreview(o, sandbox, previewId), sandbox) };
    },

    async listPreviews({ sandbox: idOrName }, context) {
      const sandbox = await enter(context, idOrName);
      return { previews: (await listPreviews(o, sandbox)).map((preview) => toPreviewMessage(preview, sandbox)) };
    },

    async deletePreview({ sandbox: idOrName, previewId }, context) {
      const sandbox = await enter(context, idOrName);
      await revokePreview(o, { call: callOf(context), sandbox, id: previewId });
      return {};
    },

    async createPreviewLink({ sandbox: idOrName, previewId, ttlSeconds }, context) {
      const sandbox = await use(context, idOrName);
      const made = await createPreviewLink(o, { call: callOf(context), sandbox, id: previewId, ttlSeconds });
      return {
        preview: toPreviewMessage(made.preview, sandbox),
        link: made.secret,
        expiresAt: timestampFromDate(made.link.expiresAt),
      };
    },

    async resolvePreview({ label, token, cookie }) {
      const { preview, sandbox } = await resolveLabel(o, label);
      const isOpened = opens(o, preview, { token, cookie });
      const { GRANTED, MISSING, INVALID } = PreviewAccess;
      const access = isOpened === undefined ? MISSING : isOpened ? GRANTED : INVALID;
      return { preview: toPreviewMessage(preview, sandbox), access };
    },

    async openPreviewLink({ label, link }) {
      const { cookie, expiresAt } = await openLink(o, label, link);
      return { cookie, expiresAt: timestampFromDate(expiresAt) };
    },

    async checkPreviews({ previewIds }) {
      const open = await findOpenPreviews(o, previewIds);
      return {
        previews: open.map(({ preview, sandbox }) => ({
          previewId: preview.id,
          expiresAt: timestampFromDate(previewEndOf(preview, sandbox)),
        })),
      };
    },
  };
}
