import { DomainError, invalid } from "@sandgate/kit/base/domain-error";
import { ImageRegistryService } from "@sandgate/proto/imageregistry/v1/image_registry";
import { type Sandbox, SandboxService, SandboxState } from "@sandgate/proto/sandbox/v1/sandbox";
import { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import type { FastifyRequest } from "fastify";
import type { Static } from "typebox";
import type { App } from "../pipeline/base/app.ts";
import { callFor } from "../pipeline/base/request-context.ts";
import { collectPage } from "../pipeline/messages/pages.ts";
import { parseMoment, toTimestamp } from "../pipeline/messages/times.ts";
import { type Control, controlRules, requireRunning, requireUse } from "./control.ts";
import { fromMetadataFilter, hasExpired, msOf, startOf, toListedSandbox, toMetrics } from "./control-mapping.ts";
import { AliasParams, ListQuery, MetricsQuery, SandboxParams } from "./control-schemas.ts";
import { noPause, refuseMissing } from "./missing.ts";

const { method: rpc } = SandboxService;
const defaultListed = 100;
const maxMetrics = 10_000;
const microsecondsOfSecond = 1_000_000n;

/** What programs read of sandboxes and images. */
export function addReadRoutes(app: App, control: Control): void {
  const { names, findLimits, idOf } = control;
  const { sandbox, imageRegistry, telemetry } = control.clients;

  /** All that run now and that the filter wants. A workspace has no more of them than its quota. */
  async function listRunning(request: FastifyRequest, query: Static<typeof ListQuery>): Promise<Sandbox[]> {
    const { metadata, state, template, startedAfter, order } = query;
    if (state !== undefined && !state.some((each) => each.includes("running"))) return [];
    const filter = { states: [SandboxState.READY], labels: fromMetadataFilter(metadata), namePrefix: "" };
    const { rows } = await collectPage({ limit: Number.POSITIVE_INFINITY, cursor: "" }, async (page) => {
      const chunk = await sandbox.listSandboxes({ page, ...filter }, callFor(request));
      return { rows: chunk.sandboxes, nextCursor: chunk.nextCursor };
    });
    const sinceMs = startedAfter === undefined ? undefined : Number(parseMoment(startedAfter) ?? 0n) / 1000;
    const wanted = rows.filter(
      (each) =>
        !hasExpired(each, Date.now()) &&
        (template === undefined || each.imageId === template || each.imageName === template) &&
        (sinceMs === undefined || msOf(startOf(each)) >= sinceMs),
    );
    return order === "asc" ? wanted.toReversed() : wanted;
  }

  for (const url of ["/sandboxes", "/v2/sandboxes"]) {
    app.get(
      url,
      {
        config: controlRules({ rpc: rpc.listSandboxes, audit: "sandbox.list" }),
        schema: { hide: true, querystring: ListQuery },
      },
      async (request, reply) => {
        // The names of sandboxes are all that is needed to reach their ports.
        if (control.isPublic) requireUse(request);
        const { limit = defaultListed, nextToken } = request.query;
        const all = await listRunning(request, request.query);
        const begin = nextToken === undefined ? 0 : await indexAfter(all, nextToken, request.query.order);
        const page = all.slice(begin, begin + limit);
        const last = page.at(-1);
        if (last && begin + limit < all.length) reply.header("x-next-token", await names.toSandboxName(last.id));
        const limits = await findLimits();
        return Promise.all(page.map(async (each) => toListedSandbox(each, await names.toSandboxName(each.id), limits)));
      },
    );
  }

  /** Where the page begins after the one that ended with the sandbox of this name, which may have ended since. */
  async function indexAfter(
    all: readonly Sandbox[],
    token: string,
    order: "asc" | "desc" | undefined,
  ): Promise<number> {
    const last = await names.fromSandboxName(token);
    if (last === undefined) throw invalid("query.nextToken", "is none of a list before");
    // Ids grow with time.
    const index = all.findIndex(({ id }) => (order === "asc" ? id > last : id < last));
    return index < 0 ? all.length : index;
  }

  app.get(
    "/sandboxes/:sandbox_name",
    {
      config: controlRules({ rpc: rpc.getSandbox, audit: "sandbox.read" }),
      schema: { hide: true, params: SandboxParams },
    },
    async (request) => {
      const found = await find(request);
      const access = await control.accessTo(request, found);
      return { ...toListedSandbox(found, request.params.sandbox_name, await findLimits()), ...access };
    },
  );

  app.post(
    "/sandboxes/:sandbox_name/resume",
    {
      config: controlRules({ rpc: rpc.getSandbox, audit: "sandbox.read" }),
      schema: { hide: true, params: SandboxParams },
    },
    async (request, reply) => {
      // SDKs up to 2.5 try it with what they can't connect to, and look for the 404.
      await find(request);
      return refuseMissing(reply, noPause);
    },
  );

  app.get(
    "/sandboxes/:sandbox_name/metrics",
    {
      config: controlRules({ rpc: TelemetryService.method.queryTelemetry, audit: "sandbox.read_logs" }),
      schema: { hide: true, params: SandboxParams, querystring: MetricsQuery },
    },
    async (request) => {
      const found = await find(request);
      const { start, end = Math.ceil(Date.now() / 1000) } = request.query;
      const since = start === undefined ? startOf(found) : toTimestamp(BigInt(start) * microsecondsOfSecond);
      const until = toTimestamp(BigInt(end) * microsecondsOfSecond);
      if (msOf(since) >= msOf(until)) return [];
      const { metrics } = await telemetry.queryTelemetry(
        {
          sandboxId: found.id,
          since,
          until,
          limit: maxMetrics,
          includeMetrics: true,
        },
        callFor(request),
      );
      return toMetrics(metrics, found.memoryMb, await findLimits());
    },
  );

  app.get(
    "/templates/aliases/:alias",
    {
      config: controlRules({ rpc: ImageRegistryService.method.listImages, audit: "image.list" }),
      schema: { hide: true, params: AliasParams },
    },
    async (request) => {
      const { alias } = request.params;
      const { rows } = await collectPage({ limit: Number.POSITIVE_INFINITY, cursor: "" }, async (page) => {
        const chunk = await imageRegistry.listImages({ page, enabledOnly: true }, callFor(request));
        return { rows: chunk.images, nextCursor: chunk.nextCursor };
      });
      const named = rows.filter(({ name, tag }) => name === alias || `${name}:${tag}` === alias);
      const image = named.find(({ isDefault }) => !isDefault) ?? named[0];
      if (!image) throw new DomainError("IMAGE_NOT_FOUND", "No image has that name.");
      return { templateID: image.id, public: image.isDefault };
    },
  );

  async function find(request: FastifyRequest<{ Params: Static<typeof SandboxParams> }>): Promise<Sandbox> {
    const idOrName = await idOf(request);
    const { sandbox: found } = await sandbox.getSandbox({ idOrName }, callFor(request));
    return requireRunning(found);
  }
}
