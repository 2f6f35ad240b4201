import { join } from "node:path";
import { DatabaseSync, type SQLOutputValue } from "node:sqlite";
import type { ContainerInfo } from "dockerode";
import { type Answer, type Client, createClient, expectStatus, type RequestOptions } from "../conformance/client.ts";
import { listInstallation, type TestPlatform } from "./local.ts";

/** The operator of a platform in its personal workspace, by an API token, which outlives restarts. */
export interface Operator extends Client {
  /** What its requests carry. */
  as: { token: string; workspace: string };
  /** The global default image that the platform has from its first start. */
  defaultImageId: string;
  /** Registers a global default image over a reference that the engine has; returns its id. */
  registerImage(reference: string, changes?: object): Promise<string>;
  /** Answers the id of a sandbox that was accepted. */
  provision(imageId: string, changes?: object): Promise<string>;
  /** POST /sandboxes/wait. */
  wait(sandboxId: string, options?: RequestOptions): Promise<Answer>;
  /** Provisions, and returns the id once it is ready. */
  provisionReady(imageId: string, changes?: object): Promise<string>;
  read(sandboxId: string): Promise<Answer["body"]>;
  /** The newest 10,000 log lines and samples since the sandbox was made. */
  monitor(sandboxId: string, query?: string): Promise<Answer["body"]>;
  /** Signs in, for the few requests that take no API token. */
  openSession(): Promise<string>;
}

export async function openOperator(platform: Pick<TestPlatform, "url" | "admin">): Promise<Operator> {
  const client = createClient(platform.url);
  const openSession = async (): Promise<string> =>
    expectStatus(await client.post("/auth/login", platform.admin), 200).tokens.access_token;

  const session = { token: await openSession() };
  const { token } = expectStatus(await client.post("/api-tokens/", { description: "tests" }, session), 201);
  const { workspaces } = expectStatus(await client.get("/workspaces", session), 200);
  const as = { token, workspace: workspaces[0].id };
  const { images } = expectStatus(await client.get("/sandbox-images", as), 200);

  const operator: Operator = {
    ...client,
    as,
    defaultImageId: images[0].id,
    openSession,
    async registerImage(reference, changes) {
      const body = { name: reference, image: reference, is_default: true, memory_mb: 256, ...changes };
      return expectStatus(await client.post("/sandbox-images", body, as), 201).id;
    },
    async provision(imageId, changes) {
      const body = { image_id: imageId, ...changes };
      return expectStatus(await client.post("/sandboxes/provision", body, as), 201).id;
    },
    wait: (sandboxId, options = as) =>
      client.post("/sandboxes/wait", { sandbox_id: sandboxId, timeout_seconds: 240 }, options),
    async provisionReady(imageId, changes) {
      const sandboxId = await operator.provision(imageId, changes);
      expectStatus(await operator.wait(sandboxId), 200);
      return sandboxId;
    },
    async read(sandboxId) {
      return expectStatus(await client.get(`/sandboxes/${sandboxId}`, as), 200);
    },
    async monitor(sandboxId, query = "") {
      return expectStatus(await client.get(`/sandbox/monitoring/${sandboxId}?limit=10000${query}`, as), 200);
    },
  };
  return operator;
}

/** Rows of a service's SQLite file, read beside the platform that may have it open. */
export function readRows(
  platform: TestPlatform,
  service: string,
  sql: string,
  ...parameters: string[]
): Record<string, SQLOutputValue>[] {
  const database = new DatabaseSync(join(platform.dataFolder, `${service}.sqlite`), { readOnly: true });
  try {
    return database.prepare(sql).all(...parameters);
  } finally {
    database.close();
  }
}

/** The containers of this platform's sandboxes, in whatever state; of one sandbox when it is named. */
export async function listContainers(platform: TestPlatform, sandboxId?: string): Promise<ContainerInfo[]> {
  const [installation] = readRows(platform, "sandbox", "SELECT id FROM installation");
  return listInstallation(String(installation?.id), sandboxId);
}
