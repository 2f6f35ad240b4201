import { Code, ConnectError, createClient, createRouterTransport, type Transport } from "@connectrpc/connect";
import { ErrorInfoSchema } from "@sandgate/proto/google/rpc/error_details";
import { TelemetryService } from "@sandgate/proto/telemetry/v1/telemetry";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { expect, test } from "vitest";
import { createCallingTransport } from "./clients.ts";
import { asFacade, asService } from "./context.ts";
import { createInternalKeys } from "./internal-auth.ts";

/** A client whose first calls end as given, before they reach a handler. */
async function createFailingClient(...failures: ConnectError[]) {
  const { signer } = await createInternalKeys(["facade"]);
  const calls: string[] = [];
  const keys: (string | null)[] = [];
  const router = createRouterTransport(({ service }) => {
    service(WorkspaceService, {
      createWorkspace(_request, { requestHeader }) {
        keys.push(requestHeader.get("idempotency-key"));
        return {};
      },
      getMembership(_request, { requestHeader }) {
        calls.push(requestHeader.get("x-request-id") ?? "");
        return { workspaceExists: true };
      },
      removeMember(_request, { requestHeader }) {
        keys.push(requestHeader.get("idempotency-key"));
        calls.push(requestHeader.get("x-request-id") ?? "");
        return {};
      },
    });
  });
  const inner: Transport = {
    stream: router.stream,
    unary: async (...call) => {
      const failure = failures.shift();
      if (failure) throw failure;
      return router.unary(...call);
    },
  };
  const transport = createCallingTransport({ inner, signer: signer("facade"), audience: "workspace" });
  return { client: createClient(WorkspaceService, transport), calls, keys };
}

const refused = () => new ConnectError("Stream closed with error code NGHTTP2_REFUSED_STREAM", Code.Internal);

const cutOff = () => new ConnectError("connection lost", Code.Aborted);

test("a call that no handler began is made again, whatever it does", async () => {
  const { client, calls } = await createFailingClient(refused(), refused());
  await client.removeMember({}, asFacade({ requestId: "r" }));
  expect(calls).toEqual(["r"]);
});

test("a call that was cut off is made again if its contract says that it does no harm", async () => {
  const harmless = await createFailingClient(cutOff());
  await harmless.client.getMembership({}, asFacade({ requestId: "r" }));
  expect(harmless.calls).toEqual(["r"]);
  const harmful = await createFailingClient(cutOff());
  await expect(harmful.client.removeMember({}, asService())).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  expect(harmful.calls).toEqual([]);
});

test("a call that was cut off is made again if it carries a key that its method honours", async () => {
  const keyed = asFacade({ requestId: "r", idempotencyKey: "k" });
  const { client, keys } = await createFailingClient(cutOff(), cutOff());
  await client.createWorkspace({ name: "n" }, keyed);
  expect(keys).toEqual(["k"]);
  const keyless = await createFailingClient(cutOff());
  const unanswered = { reason: "UPSTREAM_ERROR" };
  await expect(keyless.client.createWorkspace({ name: "n" }, asService())).rejects.toMatchObject(unanswered);
  const heedless = await createFailingClient(cutOff());
  await expect(heedless.client.removeMember({}, keyed)).rejects.toMatchObject(unanswered);
  await heedless.client.removeMember({}, keyed);
  expect([...keyless.keys, ...heedless.keys]).toEqual([null]);
});

/** A client of streams of two rows that fail as given: before the first, or after it. */
async function createFailingTail(...failures: { after: number; error: ConnectError }[]) {
  const { signer } = await createInternalKeys(["facade"]);
  let opened = 0;
  const router = createRouterTransport(({ service }) => {
    service(TelemetryService, {
      async *tailTelemetry() {
        opened++;
        yield { position: "1" };
        yield { position: "2" };
      },
    });
  });
  const inner: Transport = {
    unary: router.unary,
    async stream(...call) {
      const failure = failures.shift();
      const response = await router.stream(...call);
      if (!failure) return response;
      const { message } = response;
      return {
        ...response,
        message: (async function* () {
          let left = failure.after;
          for await (const each of message) {
            if (left-- === 0) throw failure.error;
            yield each;
          }
        })(),
      };
    },
  };
  const transport = createCallingTransport({ inner, signer: signer("facade"), audience: "telemetry" });
  const client = createClient(TelemetryService, transport);
  return {
    async read() {
      const positions: string[] = [];
      for await (const { position } of client.tailTelemetry({}, asService())) positions.push(position);
      return positions;
    },
    opened: () => opened,
  };
}

test("a stream that ends before its first message is opened again, and no other", async () => {
  const draining = { desc: ErrorInfoSchema, value: { domain: "sandgate", reason: "DRAINING" } };
  const ended = new ConnectError("shutting down", Code.Unavailable, undefined, [draining]);
  const early = await createFailingTail({ after: 0, error: ended }, { after: 0, error: cutOff() });
  expect(await early.read()).toEqual(["1", "2"]);
  expect(early.opened()).toBe(3);
  const late = await createFailingTail({ after: 1, error: ended });
  await expect(late.read()).rejects.toMatchObject({ reason: "DRAINING" });
  expect(late.opened()).toBe(1);
  const again = await createFailingTail(...Array.from({ length: 10 }, () => ({ after: 0, error: ended })));
  await expect(again.read()).rejects.toMatchObject({ reason: "DRAINING" });
  expect(again.opened()).toBe(4);
});

test("a call is made again only a few times", async () => {
  const { client, calls } = await createFailingClient(...Array.from({ length: 10 }, refused));
  await expect(client.getMembership({}, asService())).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  expect(calls).toEqual([]);
});

test("an answer, a deadline and the caller's own leaving are final", async () => {
  const answer = { desc: ErrorInfoSchema, value: { domain: "sandgate", reason: "UPSTREAM_ERROR" } };
  // Within one process an answer has its cause, here a connection of the handler's own.
  const cause = Object.assign(new Error("connect ECONNREFUSED"), { syscall: "connect" });
  const answered = new ConnectError("no", Code.Unavailable, undefined, [answer], cause);
  const late = new ConnectError("late", Code.DeadlineExceeded);
  for (const failure of [answered, late]) {
    const { client, calls } = await createFailingClient(failure);
    await expect(client.getMembership({}, asService())).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
    expect(calls).toEqual([]);
  }
  const { client, calls } = await createFailingClient(cutOff());
  const signal = AbortSignal.abort();
  await expect(client.getMembership({}, asService({ signal }))).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  expect(calls).toEqual([]);
});

test("a call without options is nobody's and has a request id", async () => {
  const { client, calls } = await createFailingClient();
  await client.getMembership({});
  expect(calls[0]).toMatch(/^[0-9a-f-]{36}$/);
});
