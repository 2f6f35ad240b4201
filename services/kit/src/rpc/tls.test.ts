import { readFile, writeFile } from "node:fs/promises";
import { connect } from "node:tls";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { createClient } from "@connectrpc/connect";
import { Client, credentials, Metadata } from "@grpc/grpc-js";
import {
  GetMembershipRequestSchema,
  GetMembershipResponseSchema,
  WorkspaceService,
} from "@sandgate/proto/workspace/v1/workspace";
import {
  makeAuthority,
  probeOpenssl,
  replaceCertificate,
  type TestAuthority,
} from "@sandgate/test-support/certificates";
import { requireServer } from "@sandgate/test-support/require";
import { test } from "@sandgate/test-support/test";
import { until } from "@sandgate/test-support/until";
import { afterEach, describe, expect } from "vitest";
import { createLogger } from "../base/logging.ts";
import { createMetrics } from "../base/metrics.ts";
import { startServiceHost } from "../process/host.ts";
import { createRemoteTransport } from "./clients.ts";
import { asService } from "./context.ts";
import { createInternalKeys, createTokenVerifier } from "./internal-auth.ts";
import { openTls, type TlsFiles } from "./tls.ts";

const logger = createLogger({ service: "test", level: "silent" });
const rereadEveryMs = 20;

describe.runIf(await requireServer("openssl", probeOpenssl))("calls between processes by TLS", () => {
  let authority: TestAuthority;
  const ended: (() => unknown)[] = [];
  test.beforeEach(async ({ folder }) => {
    authority = await makeAuthority(folder, "ours");
  });
  afterEach(async () => {
    for (const end of ended.splice(0).reverse()) await end();
  });

  async function open(files: TlsFiles) {
    const tls = await openTls({ ...files, logger, rereadEveryMs });
    ended.push(tls.close);
    return tls;
  }

  async function serve(files: TlsFiles, requireClientCertificates = false) {
    const keys = await createInternalKeys(["facade"]);
    const host = await startServiceHost({
      service: "workspace",
      verifier: createTokenVerifier({ audience: "workspace", jwks: keys.jwks }),
      logger,
      metrics: createMetrics(),
      host: "127.0.0.1",
      port: 0,
      tls: await open(files),
      requireClientCertificates,
      routes: ({ service }) => service(WorkspaceService, { getMembership: () => ({ workspaceExists: true }) }),
    });
    ended.push(() => host.close());
    return { url: host.url, signer: keys.signer("facade") };
  }

  /** Calls over a connection of its own. `named` is the host that the address claims to have. */
  async function call(
    server: Awaited<ReturnType<typeof serve>>,
    files: TlsFiles,
    { protocol = "connect", named = "localhost" }: { protocol?: "connect" | "grpc"; named?: string } = {},
  ) {
    const url = new URL(server.url);
    url.hostname = named;
    const transport = createRemoteTransport({
      url: url.origin,
      signer: server.signer,
      audience: "workspace",
      protocol,
      tls: await open(files),
      resolve: async () => ["127.0.0.1"],
    });
    const { workspaceExists } = await createClient(WorkspaceService, transport).getMembership(
      {},
      asService({ timeoutMs: 20_000 }),
    );
    return workspaceExists;
  }

  const refused = { reason: "UPSTREAM_ERROR" };

  test("are answered to each protocol, by name and by address", async () => {
    const certificate = await authority.issue("workspace", ["DNS:localhost", "IP:127.0.0.1"]);
    const server = await serve(certificate);
    expect(server.url).toMatch(/^https:/);
    const { caFile } = authority;
    for (const protocol of ["connect", "grpc"] as const) {
      for (const named of ["localhost", "127.0.0.1"]) {
        expect(await call(server, { caFile }, { protocol, named })).toBe(true);
      }
    }
    const client = new Client(`localhost:${new URL(server.url).port}`, credentials.createSsl(await readFile(caFile)));
    ended.push(() => client.close());
    const metadata = new Metadata();
    metadata.set("authorization", await server.signer.mint("workspace", { passedOn: false }));
    const answer = await new Promise((resolve, reject) => {
      client.makeUnaryRequest(
        "/sandgate.workspace.v1.WorkspaceService/GetMembership",
        (message) => Buffer.from(toBinary(GetMembershipRequestSchema, message)),
        (bytes) => fromBinary(GetMembershipResponseSchema, bytes),
        create(GetMembershipRequestSchema),
        metadata,
        (error, response) => (error ? reject(error) : resolve(response)),
      );
    });
    expect(answer).toMatchObject({ workspaceExists: true });
  });

  test("reach no one whose certificate names another host or is signed by another", async ({ folder }) => {
    const { caFile } = authority;
    const server = await serve(await authority.issue("workspace", ["DNS:localhost"]));
    expect(await call(server, { caFile })).toBe(true);
    for (const protocol of ["connect", "grpc"] as const) {
      await expect(call(server, { caFile }, { protocol, named: "workspace" })).rejects.toMatchObject(refused);
      await expect(call(server, { caFile }, { protocol, named: "127.0.0.1" })).rejects.toMatchObject(refused);
      const { caFile: other } = await makeAuthority(folder, "theirs");
      await expect(call(server, { caFile: other }, { protocol })).rejects.toMatchObject(refused);
      // The system's.
      await expect(call(server, {}, { protocol })).rejects.toMatchObject(refused);
    }
  });

  test("go neither without TLS to a server with it, nor with TLS to one without", async () => {
    const secure = await serve(await authority.issue("workspace", ["DNS:localhost"]));
    const plain = { ...secure, url: secure.url.replace("https:", "http:") };
    await expect(call(plain, {})).rejects.toMatchObject(refused);
    const unsecured = await serve({});
    expect(unsecured.url).toMatch(/^http:/);
    expect(await call(unsecured, {})).toBe(true);
    const asSecure = { ...unsecured, url: unsecured.url.replace("http:", "https:") };
    await expect(call(asSecure, { caFile: authority.caFile })).rejects.toMatchObject(refused);
  });

  test("are only answered to callers with a certificate of ours where that is demanded", async ({ folder }) => {
    const { caFile } = authority;
    const certificate = await authority.issue("workspace", ["DNS:localhost"]);
    const server = await serve({ ...certificate, caFile }, true);
    const own = await authority.issue("sandbox", ["DNS:sandbox"]);
    const theirs = await (await makeAuthority(folder, "theirs")).issue("stranger", ["DNS:sandbox"]);
    for (const protocol of ["connect", "grpc"] as const) {
      expect(await call(server, { caFile, ...own }, { protocol })).toBe(true);
      await expect(call(server, { caFile }, { protocol })).rejects.toMatchObject(refused);
      await expect(call(server, { caFile, ...theirs }, { protocol })).rejects.toMatchObject(refused);
    }
  });

  test("use new certificates for new connections once their files change, and the last good ones till then", async ({
    folder,
  }) => {
    const { caFile } = authority;
    const certificate = await authority.issue("workspace", ["DNS:localhost"]);
    const server = await serve(certificate);
    const url = new URL(server.url);
    const shown = () =>
      new Promise<string>((resolve, reject) => {
        const options = { host: "127.0.0.1", port: Number(url.port), ALPNProtocols: ["h2"], rejectUnauthorized: false };
        const socket = connect(options, () => {
          resolve(String(socket.getPeerCertificate().subject.CN));
          socket.destroy();
        });
        socket.on("error", reject);
      });
    expect(await shown()).toBe("workspace");

    // Half of a renewal: the key is of another certificate.
    const next = await makeAuthority(folder, "next");
    const renewed = await next.issue("renewed", ["DNS:localhost"]);
    const key = await readFile(certificate.keyFile);
    await writeFile(certificate.keyFile, await readFile(renewed.keyFile));
    await new Promise((resolve) => setTimeout(resolve, 5 * rereadEveryMs));
    expect(await shown()).toBe("workspace");
    await writeFile(certificate.keyFile, key);

    await replaceCertificate(certificate, renewed);
    await until(async () => expect(await shown()).toBe("renewed"));
    await expect(call(server, { caFile })).rejects.toMatchObject(refused);
    // A caller that goes on trusts the new authority once its file has it.
    const followed = `${caFile}.followed`;
    await writeFile(followed, await readFile(caFile));
    const tls = await openTls({ caFile: followed, logger, rereadEveryMs });
    ended.push(tls.close);
    const transport = createRemoteTransport({
      url: `https://localhost:${url.port}`,
      signer: server.signer,
      audience: "workspace",
      tls,
      resolve: async () => ["127.0.0.1"],
    });
    const client = createClient(WorkspaceService, transport);
    await expect(client.getMembership({}, asService({ timeoutMs: 20_000 }))).rejects.toMatchObject(refused);
    await writeFile(followed, await readFile(next.caFile));
    await until(async () => {
      const answer = client.getMembership({}, asService({ timeoutMs: 20_000 }));
      expect(await answer).toMatchObject({ workspaceExists: true });
    });
  });

  test("fail at the start with files that can't be used", async () => {
    const { certFile } = await authority.issue("a", ["DNS:a"]);
    const { keyFile } = await authority.issue("b", ["DNS:b"]);
    await expect(open({ certFile, keyFile })).rejects.toThrow(`The certificates ${certFile}, ${keyFile} can't be used`);
    await expect(open({ caFile: `${certFile}.none` })).rejects.toThrow("can't be used: ENOENT");
  });
});
