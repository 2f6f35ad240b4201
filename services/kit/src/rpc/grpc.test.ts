import {
  create,
  createFileRegistry,
  type DescMessage,
  fromBinary,
  type MessageInitShape,
  type MessageShape,
  toBinary,
} from "@bufbuild/protobuf";
import { FileDescriptorProtoSchema, FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { createClient } from "@connectrpc/connect";
import { createGrpcWebTransport } from "@connectrpc/connect-node";
import { Client, credentials, Metadata, type ServiceError, status } from "@grpc/grpc-js";
import {
  Health,
  HealthCheckRequestSchema,
  HealthCheckResponseSchema,
  HealthListRequestSchema,
  HealthListResponseSchema,
  HealthCheckResponse_ServingStatus as ServingStatus,
} from "@sandgate/proto/grpc/health/v1/health";
import {
  ServerReflectionRequestSchema,
  ServerReflectionResponseSchema,
} from "@sandgate/proto/grpc/reflection/v1/reflection";
import {
  GetMembershipRequestSchema,
  GetMembershipResponseSchema,
  WorkspaceService,
} from "@sandgate/proto/workspace/v1/workspace";
import { afterEach, beforeEach, expect, test } from "vitest";
import { createLogger } from "../base/logging.ts";
import { createMetrics } from "../base/metrics.ts";
import { type ServiceHost, startServiceHost } from "../process/host.ts";
import { createInternalKeys, createTokenVerifier, type InternalKeys } from "./internal-auth.ts";

// What others' gRPC implementations see, with grpc-js for one of them.

let keys: InternalKeys;
let host: ServiceHost;
let client: Client;

beforeEach(async () => {
  keys = await createInternalKeys(["facade", "sandbox", "identity"]);
  host = await startServiceHost({
    service: "workspace",
    verifier: createTokenVerifier({ audience: "workspace", jwks: keys.jwks }),
    logger: createLogger({ service: "workspace", level: "silent" }),
    metrics: createMetrics(),
    host: "127.0.0.1",
    port: 0,
    routes: ({ service }) => service(WorkspaceService, { getMembership: () => ({ workspaceExists: true }) }),
    dependencies: async () => ({ database: "ok", runtime: "connect ENOENT /secret/path" }),
  });
  client = new Client(new URL(host.url).host, credentials.createInsecure());
});
afterEach(async () => {
  client.close();
  await host.close();
});

interface Way<I extends DescMessage, O extends DescMessage> {
  path: string;
  input: I;
  output: O;
}

const write = <D extends DescMessage>(desc: D) => {
  return (message: MessageShape<D>) => Buffer.from(toBinary(desc, message));
};
const read = <D extends DescMessage>(desc: D) => {
  return (bytes: Buffer) => fromBinary(desc, bytes);
};

const check = {
  path: "/grpc.health.v1.Health/Check",
  input: HealthCheckRequestSchema,
  output: HealthCheckResponseSchema,
};
const getMembership = {
  path: "/sandgate.workspace.v1.WorkspaceService/GetMembership",
  input: GetMembershipRequestSchema,
  output: GetMembershipResponseSchema,
};

function call<I extends DescMessage, O extends DescMessage>(
  { path, input, output }: Way<I, O>,
  request: MessageInitShape<I>,
  authorization?: string,
): Promise<MessageShape<O>> {
  const metadata = new Metadata();
  if (authorization) metadata.set("authorization", authorization);
  return new Promise((resolve, reject) => {
    const done = (error: ServiceError | null, response?: MessageShape<O>) => {
      if (response) resolve(response);
      else reject(error);
    };
    client.makeUnaryRequest(path, write(input), read(output), create(input, request), metadata, done);
  });
}

type Question = NonNullable<MessageInitShape<typeof ServerReflectionRequestSchema>["messageRequest"]>;

/** The answers of server reflection to these questions. */
async function reflect(...questions: Question[]) {
  const stream = client.makeBidiStreamRequest(
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    write(ServerReflectionRequestSchema),
    read(ServerReflectionResponseSchema),
  );
  for (const messageRequest of questions) stream.write(create(ServerReflectionRequestSchema, { messageRequest }));
  stream.end();
  const answers: MessageShape<typeof ServerReflectionResponseSchema>["messageResponse"][] = [];
  for await (const answer of stream) answers.push(answer.messageResponse);
  return answers;
}

test("health says what is served, to anyone", async () => {
  expect(await call(check, {})).toMatchObject({ status: ServingStatus.SERVING });
  expect(await call(check, { service: WorkspaceService.typeName })).toMatchObject({ status: ServingStatus.SERVING });
  await expect(call(check, { service: "no.such.Service" })).rejects.toMatchObject({ code: status.NOT_FOUND });
});

test("health reports whether each dependency works, not why, and stays healthy itself", async () => {
  const { SERVING, NOT_SERVING } = ServingStatus;
  const list = {
    path: "/grpc.health.v1.Health/List",
    input: HealthListRequestSchema,
    output: HealthListResponseSchema,
  };
  const { statuses } = await call(list, {});
  expect(Object.fromEntries(Object.entries(statuses).map(([name, { status }]) => [name, status]))).toEqual({
    "": SERVING,
    [WorkspaceService.typeName]: SERVING,
    database: SERVING,
    runtime: NOT_SERVING,
  });
  expect(await call(check, { service: "runtime" })).toMatchObject({ status: NOT_SERVING });
});

test("gRPC-Web is answered on the same port", async () => {
  const transport = createGrpcWebTransport({ baseUrl: host.url, httpVersion: "2" });
  expect(await createClient(Health, transport).check({})).toMatchObject({ status: ServingStatus.SERVING });
});

test("a watcher of health is notified when the host goes away", async () => {
  const stream = client.makeServerStreamRequest(
    "/grpc.health.v1.Health/Watch",
    write(HealthCheckRequestSchema),
    read(HealthCheckResponseSchema),
    create(HealthCheckRequestSchema),
  );
  const seen: ServingStatus[] = [];
  let closed: Promise<void> | undefined;
  for await (const message of stream) {
    seen.push(message.status);
    closed ??= host.close();
  }
  await closed;
  expect(seen).toEqual([ServingStatus.SERVING, ServingStatus.NOT_SERVING]);
});

test("reflection tells enough to call a service, with its access rules", async () => {
  const [services, file, byName, unknown] = await reflect(
    { case: "listServices", value: "" },
    { case: "fileContainingSymbol", value: "sandgate.workspace.v1.WorkspaceService.GetMembership" },
    { case: "fileByFilename", value: "sandgate/common/v1/access.proto" },
    { case: "fileContainingSymbol", value: "no.such.Service" },
  );
  expect(services).toMatchObject({
    case: "listServicesResponse",
    value: { service: [{ name: WorkspaceService.typeName }, { name: "grpc.reflection.v1.ServerReflection" }] },
  });
  if (file?.case !== "fileDescriptorResponse") throw new Error(`answered ${file?.case}`);
  const registry = createFileRegistry(
    create(FileDescriptorSetSchema, {
      file: file.value.fileDescriptorProto.map((bytes) => fromBinary(FileDescriptorProtoSchema, bytes)).reverse(),
    }),
  );
  const method = registry.getService(WorkspaceService.typeName)?.method.getMembership;
  expect(method?.input.fields.map(({ name }) => name)).toEqual(["workspace_id", "user_id"]);
  expect(method?.proto.options?.$unknown).not.toHaveLength(0);
  expect(byName?.case).toBe("fileDescriptorResponse");
  expect(unknown).toMatchObject({ case: "errorResponse", value: { errorCode: status.NOT_FOUND } });
});

test("a call needs a token for this service, of a caller that may call it", async () => {
  const request = {
    workspaceId: "0199b0f0-0000-7000-8000-000000000000",
    userId: "0199b0f0-0000-7000-8000-000000000001",
  };
  const mint = (caller: string, audience: string) => keys.signer(caller).mint(audience, { passedOn: false });
  expect(await call(getMembership, request, await mint("facade", "workspace"))).toMatchObject({
    workspaceExists: true,
  });

  const refused = { code: status.PERMISSION_DENIED };
  await expect(call(getMembership, request)).rejects.toMatchObject(refused);
  await expect(call(getMembership, request, "Bearer no token")).rejects.toMatchObject(refused);
  await expect(call(getMembership, request, await mint("facade", "identity"))).rejects.toMatchObject(refused);
  await expect(call(getMembership, request, await mint("sandbox", "workspace"))).rejects.toMatchObject(refused);
});
