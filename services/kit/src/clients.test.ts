import { Code, ConnectError, createClient, createRouterTransport, type Transport } from "@connectrpc/connect";
import { WorkspaceService } from "@sandgate/proto/workspace/v1/workspace";
import { expect, test } from "vitest";
import { createCallingTransport } from "./clients.ts";
import { asService } from "./context.ts";
import { createInternalKeys } from "./internal-auth.ts";

/** A client whose first calls end as given, before they reach a handler. */
async function createFailingClient(...failures: ConnectError[]) {
  const { signer } = await createInternalKeys(["facade"]);
  const calls: string[] = [];
  const router = createRouterTransport(({ service }) => {
    service(WorkspaceService, {
      getMembership(_request, { requestHeader }) {
        calls.push(requestHeader.get("x-request-id") ?? "");
        return { workspaceExists: true };
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
  return { client: createClient(WorkspaceService, transport), calls };
}

const refused = () => new ConnectError("Stream closed with error code NGHTTP2_REFUSED_STREAM", Code.Internal);

test("a call refused by a server that says goodbye is made again, once", async () => {
  const once = await createFailingClient(refused());
  expect(await once.client.getMembership({}, asService({ requestId: "r" }))).toMatchObject({ workspaceExists: true });
  expect(once.calls).toEqual(["r"]);
  const twice = await createFailingClient(refused(), refused());
  await expect(twice.client.getMembership({}, asService())).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  expect(twice.calls).toEqual([]);
});

test("a call that may have been processed is not made again", async () => {
  const { client, calls } = await createFailingClient(new ConnectError("connection lost", Code.Unavailable));
  await expect(client.getMembership({}, asService())).rejects.toMatchObject({ reason: "UPSTREAM_ERROR" });
  expect(calls).toEqual([]);
});

test("a call without options is nobody's and has a request id", async () => {
  const { client, calls } = await createFailingClient();
  await client.getMembership({});
  expect(calls[0]).toMatch(/^[0-9a-f-]{36}$/);
});
