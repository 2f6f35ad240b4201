import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { connect } from "node:tls";
import type { ServiceName } from "@sandgate/kit/base/service-names";
import { askSocket } from "@sandgate/kit/process/admin.socket";
import {
  makeAuthority,
  probeOpenssl,
  replaceCertificate,
  type TestAuthority,
  type TestCertificate,
} from "@sandgate/test-support/certificates";
import { requireServer } from "@sandgate/test-support/require";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { until } from "@sandgate/test-support/until";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Client, createClient, expectError, expectStatus } from "../conformance/client.ts";
import { type DistributedPlatform, requireDistributed, startDistributed } from "../platform/distributed/platform.ts";

const isAvailable = (await requireDistributed()) && (await requireServer("openssl", probeOpenssl));

describe.runIf(isAvailable)("secrets of processes that call each other by TLS", { timeout: 300_000 }, () => {
  let platform: DistributedPlatform;
  let facades: [Client, Client];
  let authority: TestAuthority;
  let certificate: TestCertificate;
  let removeFolder: () => Promise<void>;
  let host: string;

  beforeAll(async () => {
    const { path: folder, remove } = await createTempFolder();
    removeFolder = remove;
    authority = await makeAuthority(folder, "ours");
    platform = await startDistributed({
      replicas: { facade: 2, identity: 2, workspace: 1, "image-registry": 1, sandbox: 1, telemetry: 1 },
      async certify(on) {
        host = on;
        certificate = await authority.issue("first", [`IP:${on}`]);
        return { ...certificate, caFile: authority.caFile };
      },
    });
    facades = [createClient(platform.replica("facade", 0).url), createClient(platform.replica("facade", 1).url)];
  });
  afterAll(async () => {
    await platform?.stop();
    await removeFolder?.();
  });

  const signIn = async (facade = facades[0]) =>
    expectStatus(await facade.post("/auth/login", platform.admin), 200).tokens;

  /** The name in the certificate that a replica shows. */
  async function shownBy(service: ServiceName, index: number): Promise<string> {
    const port = Number(new URL(platform.replica(service, index).url).port);
    const options = { host, port, ALPNProtocols: ["h2"], rejectUnauthorized: false };
    const socket = connect(options);
    await once(socket, "secureConnect");
    const { CN } = socket.getPeerCertificate().subject;
    socket.destroy();
    return String(CN);
  }

  test("a renewed certificate is used without a restart, and calls go on", async () => {
    const { access_token: token } = await signIn();
    expectStatus(await facades[0].post("/workspaces", { name: "w" }, { token }), 201);
    for (const [service, index] of [
      ["identity", 0],
      ["identity", 1],
      ["workspace", 0],
    ] as const) {
      expect(await shownBy(service, index)).toBe("first");
    }
    await replaceCertificate(certificate, await authority.issue("second", [`IP:${host}`]));
    await until(async () => {
      for (const [service, index] of [
        ["identity", 0],
        ["identity", 1],
        ["workspace", 0],
      ] as const) {
        expect(await shownBy(service, index)).toBe("second");
      }
    });
    // Its callers reconnect.
    await platform.replica("workspace", 0).terminate();
    await platform.replica("workspace", 0).start();
    await until(async () => expectStatus(await facades[1].get("/workspaces", { token }), 200));
  });

  /** An operator's command to a replica of identity. */
  async function command(index: number, path: string): Promise<unknown> {
    const { adminSocket } = platform.replica("identity", index);
    const { status, body } = await askSocket(adminSocket, "POST", `/commands${path}`);
    expect(status).toBe(200);
    return JSON.parse(body);
  }

  test("in an emergency the keys of tokens are gone from all replicas", async () => {
    const tokens = await Promise.all(facades.map(signIn));
    for (const facade of facades) {
      for (const { access_token: token } of tokens) expectStatus(await facade.get("/workspaces", { token }), 200);
    }
    expect(await command(0, "/rotate-keys")).toMatchObject({ sessions: "go on" });
    for (const { access_token: token } of tokens) expectStatus(await facades[0].get("/workspaces", { token }), 200);
    expect(await command(1, "/rotate-keys?option=emergency")).toMatchObject({ sessions: "ended" });
    for (const { access_token: token, refresh_token } of tokens) {
      for (const facade of facades) {
        await until(async () => expectError(await facade.get("/workspaces", { token }), "invalid_token"));
        expectError(await facade.post("/auth/refresh", { refresh_token }), "invalid_token");
      }
    }
    // Each replica of identity signs with the new key.
    for (const facade of [...facades, ...facades]) {
      const { access_token: token, refresh_token } = await signIn(facade);
      await until(async () => expectStatus(await facade.get("/workspaces", { token }), 200));
      expectStatus(await facade.post("/auth/refresh", { refresh_token }), 200);
    }
  });

  test("sealed values are re-encrypted after the key ring has changed, and the old key can go", async () => {
    const { access_token: token, refresh_token } = await signIn();
    const options = { token, headers: { "idempotency-key": "once" } };
    const create = () => facades[0].post("/workspaces", { name: "sealed" }, options);
    const created = expectStatus(await create(), 201);
    const { password } = platform.admin;
    expectStatus(await facades[0].post("/auth/second-factor", { password }, { token }), 201);
    const file = join(platform.keysFolder, "keyring.json");
    const { current: old, keys } = JSON.parse(readFileSync(file, "utf8"));
    const next = Buffer.alloc(32, 7).toString("base64");
    const sealing = [
      ["identity", 0],
      ["identity", 1],
      ["workspace", 0],
    ] as const;
    const restart = async (ring: object) => {
      writeFileSync(file, JSON.stringify(ring));
      for (const [service, index] of sealing) {
        await platform.replica(service, index).terminate();
        await platform.replica(service, index).start();
      }
    };
    // Nobody else uses the platform now: else every replica would have to have the key before one seals with it.
    await restart({ current: "next", keys: { ...keys, next } });
    await until(async () => {
      // One replica of each service counts them.
      const left: string[] = [];
      for (const [service, index] of sealing) {
        const metrics = await (await fetch(`${platform.replica(service, index).adminUrl}/metrics`)).text();
        const lines = metrics.matchAll(
          new RegExp(`^sandgate_sealed_values.*service="(\\w+)".*key="${old}".* (\\d+)$`, "gm"),
        );
        for (const [, name, values] of lines) left.push(`${name} ${values}`);
      }
      expect(new Set(left)).toEqual(new Set(["identity 0", "workspace 0"]));
    });
    const head = Buffer.concat([Buffer.from([1, 4]), Buffer.from("next")]);
    for (const [service, collection] of [
      ["identity", "keys"],
      ["identity", "second_factors"],
      ["workspace", "kit_answers"],
    ] as const) {
      const stored = await platform.database(service).collection(collection).find().toArray();
      expect(stored.length).toBeGreaterThan(0);
      for (const { sealed } of stored) expect(Buffer.from(sealed.buffer).subarray(0, head.length)).toEqual(head);
    }
    await restart({ current: "next", keys: { next } });
    expectStatus(await facades[1].post("/auth/refresh", { refresh_token }), 200);
    expect(expectStatus(await create(), 201)).toEqual(created);
  });
});
