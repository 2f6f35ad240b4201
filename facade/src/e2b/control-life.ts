import { hash } from "node:crypto";
import { DomainError, hasReason, type Violation } from "@sandgate/kit/base/domain-error";
import { type Sandbox, SandboxService, SandboxState } from "@sandgate/proto/sandbox/v1/sandbox";
import type { FastifyRequest } from "fastify";
import type { App } from "../pipeline/base/app.ts";
import { callFor } from "../pipeline/base/request-context.ts";
import type { LiveRequest } from "../pipeline/live/live-requests.ts";
import { present } from "../pipeline/messages/contract.ts";
import { requireReady } from "../resources/sandboxes/require-ready.ts";
import { type Control, controlRules, requireRunning, requireUse } from "./control.ts";
import { privateLabel } from "./control-mapping.ts";
import { ConnectBody, CreateBody, SandboxParams, TimeoutBody } from "./control-schemas.ts";
import { isGone } from "./errors.ts";
import { noSuchSandbox } from "./places.ts";

const { method: rpc } = SandboxService;
/** The image of programs that name none. */
const base = "base";
/** Of a sandbox that is created or connected to. */
const defaultTimeoutSeconds = 300;
const waitSeconds = 60;
/** How much longer than the wait itself the call may take. */
const waitGraceMs = 5_000;

/** What is provisioned, apart from how long it lives. */
interface Order {
  image: string;
  orDefault: boolean;
  labels: Record<string, string>;
  env: Record<string, string>;
}

/** What programs call the fields of an order. */
const fieldsOfOrder: Readonly<Record<string, string>> = {
  env: "envVars",
  image: "templateID",
  labels: "metadata",
  ttl_seconds: "timeout",
};

/** Creation and life of sandboxes. */
export function addLifeRoutes(app: App, control: Control): void {
  const { live, logger, idOf, open } = control;
  const { sandbox } = control.clients;

  /** Accepts a sandbox with the usual time-out if none is given, or the image's where that is shorter. */
  async function provision(request: FastifyRequest, order: Order, timeout: number | undefined): Promise<Sandbox> {
    const send = async (ttl: { ttlSeconds?: number }, o: { idempotencyKey?: string } = {}) => {
      const { sandbox: accepted } = await sandbox.provisionSandbox({ ...order, ...ttl }, callFor(request, o));
      return present(accepted);
    };
    try {
      return await send({ ttlSeconds: timeout ?? defaultTimeoutSeconds });
    } catch (error) {
      if (timeout !== undefined || !isBeyondImage(error)) throw error;
      const { "idempotency-key": key } = request.headers;
      // Under the same key the first order would be refused as another one when both are sent again.
      return send({}, typeof key === "string" ? { idempotencyKey: hash("sha256", key) } : {});
    }
  }

  /** Waits until a sandbox is ready that was provisioned just now. */
  async function awaitReady(request: FastifyRequest, { id }: Sandbox, { signal }: LiveRequest): Promise<Sandbox> {
    for (;;) {
      const { sandboxes } = await sandbox.waitSandboxes(
        { idsOrNames: [id], timeoutSeconds: waitSeconds },
        callFor(request, { signal, timeoutMs: waitSeconds * 1000 + waitGraceMs }),
      );
      const found = present(sandboxes[0]);
      if (found.state !== SandboxState.PROVISIONING) return requireReady(found);
    }
  }

  /** The record, for a token that may provision and needn't be allowed to read. */
  async function read(request: FastifyRequest, id: string): Promise<Sandbox | undefined> {
    const { sandboxes } = await sandbox.waitSandboxes({ idsOrNames: [id], timeoutSeconds: 1 }, callFor(request));
    return sandboxes[0];
  }

  /** Ends a sandbox that its creator was not told of. */
  async function abandon(request: FastifyRequest, { id }: Sandbox): Promise<void> {
    await sandbox.stopSandbox({ idOrName: id }, callFor(request)).catch((err: unknown) => {
      logger.warn({ request_id: request.id, sandbox_id: id, err }, "a sandbox that nobody knows of could not be ended");
    });
  }

  for (const url of ["/sandboxes", "/v2/sandboxes"]) {
    app.post(
      url,
      {
        config: controlRules({ rpc: rpc.provisionSandbox, audit: "sandbox.provision", check: checkCreate }),
        schema: { hide: true, body: CreateBody },
      },
      async (request, reply) => {
        requireUse(request);
        const { templateID: image, timeout, envVars, network } = request.body;
        const isPrivate = network?.allowPublicTraffic === false;
        const metadata = { ...request.body.metadata, ...(isPrivate && { [privateLabel]: "true" }) };
        const create = async (opened: LiveRequest) => {
          const order = { image, orDefault: image === base, labels: metadata, env: envVars ?? {} };
          const accepted = await provision(request, order, timeout).catch((error: unknown) => {
            throw inFieldsOfBody(error);
          });
          try {
            return await awaitReady(request, accepted, opened);
          } catch (error) {
            // Whoever sent a key may ask for the same sandbox again.
            if (request.headers["idempotency-key"] === undefined) await abandon(request, accepted);
            throw hasReason(error, "CONFLICT") ? endedEarly(error) : error;
          }
        };
        const ready = await live.run(request, reply, create);
        return reply.code(201).send(await open(request, ready));
      },
    );
  }

  for (const url of ["/sandboxes/:sandbox_name/connect", "/v2/sandboxes/:sandbox_name/connect"]) {
    app.post(
      url,
      {
        config: controlRules({ rpc: rpc.extendSandbox, audit: "sandbox.extend", optionalBody: true }),
        schema: { hide: true, params: SandboxParams, body: ConnectBody },
      },
      async (request, reply) => {
        requireUse(request);
        const { timeout } = request.body;
        const idOrName = await idOf(request);
        const extend = async () => {
          const order = { idOrName, ttlSeconds: timeout ?? defaultTimeoutSeconds, shorten: false };
          return (await sandbox.extendSandbox(order, callFor(request))).sandbox;
        };
        const found = await extend().catch((error: unknown) => {
          // The program asked for no end, and the image's limit allows none that is so much later.
          if (timeout === undefined && isBeyondImage(error)) return read(request, idOrName);
          throw orGone(error);
        });
        return reply.code(200).send(await open(request, requireRunning(found)));
      },
    );
  }

  app.post(
    "/sandboxes/:sandbox_name/timeout",
    {
      config: controlRules({ rpc: rpc.extendSandbox, audit: "sandbox.extend" }),
      schema: { hide: true, params: SandboxParams, body: TimeoutBody },
    },
    async (request, reply) => {
      const { timeout: ttlSeconds } = request.body;
      const idOrName = await idOf(request);
      await sandbox.extendSandbox({ idOrName, ttlSeconds, shorten: true }, callFor(request)).catch((error: unknown) => {
        throw orGone(error);
      });
      return reply.code(204).send();
    },
  );

  app.delete(
    "/sandboxes/:sandbox_name",
    {
      config: controlRules({ rpc: rpc.stopSandbox, audit: "sandbox.stop" }),
      schema: { hide: true, params: SandboxParams },
    },
    async (request, reply) => {
      const idOrName = await idOf(request);
      // Stopping what has ended is no error of ours, but programs are told whether there was something to kill.
      requireRunning(await read(request, idOrName));
      await sandbox.stopSandbox({ idOrName }, callFor(request));
      return reply.code(204).send();
    },
  );
}

/** A sandbox that has ended, or is about to, is one that isn't there. */
function orGone(error: unknown): unknown {
  return error instanceof DomainError && isGone(error) ? noSuchSandbox() : error;
}

/** Whether the image allows no end that is so late. */
function isBeyondImage(error: unknown): boolean {
  if (hasReason(error, "CONFLICT")) return error.errno === "ERANGE";
  return (
    hasReason(error, "VALIDATION_ERROR") && error.violations?.some(({ field }) => field === "ttl_seconds") === true
  );
}

/** An error of an order, about the fields that the program has sent. */
function inFieldsOfBody(error: unknown): unknown {
  if (!hasReason(error, "VALIDATION_ERROR") || !error.violations) return error;
  const violations = error.violations.map(({ field, issue }) => ({ field: fieldsOfOrder[field] ?? field, issue }));
  return new DomainError(error.reason, error.message, { violations, hint: error.hint, cause: error });
}

/** Of a sandbox that was stopped, or whose time was over, before it was ready. */
function endedEarly(cause: DomainError): DomainError {
  return new DomainError("PROVISIONING_FAILED", cause.message, { hint: cause.hint, cause, callersFault: true });
}

/** What E2B's sandboxes have, and these don't: nobody gets less than was asked for without being told. */
function checkCreate({ body }: FastifyRequest): Violation[] {
  const asked: Readonly<Record<string, unknown>> = { ...Object(body) };
  const { autoResume, network } = asked;
  const refused = (field: string, issue: string) => [{ field: `body.${field}`, issue }];
  return [
    ...(asked.autoPause === true ? refused("autoPause", "must not be true: sandboxes can't be paused") : []),
    ...(Object(autoResume).enabled === true
      ? refused("autoResume", "can't be enabled: sandboxes can't be paused")
      : []),
    ...(asked.allow_internet_access === false
      ? refused("allow_internet_access", "must not be false: what sandboxes reach is the operator's to decide")
      : []),
    ...Object.keys(Object(network))
      .filter((name) => name !== "allowPublicTraffic" && Object(network)[name] !== undefined)
      .map((name) => ({
        field: `body.network.${name}`,
        issue: "is not supported: what sandboxes reach is the operator's to decide",
      })),
    ...["mcp", "iam", "volumeMounts"].flatMap((name) =>
      isAsked(asked[name]) ? refused(name, "is not supported") : [],
    ),
  ];
}

/** Something that isn't empty. */
function isAsked(value: unknown): boolean {
  if (value === undefined || value === null || value === false) return false;
  return typeof value !== "object" || Object.keys(value).length > 0;
}
