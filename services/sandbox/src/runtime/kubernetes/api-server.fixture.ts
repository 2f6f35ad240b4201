import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { protobufType } from "@sandgate/kubernetes-api/protobuf";
import { encodeEvent, encodeObject } from "@sandgate/kubernetes-api/protobuf.fixture";
import type { RawPod } from "@sandgate/kubernetes-api/raw-pod";

export interface SeenRequest {
  method: string;
  /** Without the query. */
  path: string;
  body: unknown;
}

/**
 * The part of an API server that the adapter uses, with objects in memory; test/contract runs the adapter against a
 * real one.
 */
export interface TestApiServer {
  kubeconfig: string;
  /** What changed something, in order. */
  writes: SeenRequest[];
  /** What is there, by its path. */
  objects: Map<string, KubeObject>;
  /** Changes a pod as a kubelet would. */
  update(path: string, change: (pod: RawPod) => void): void;
  /** Does what was asked, and then answers this request with a refusal: as if whoever asked had died. */
  loseAnswer(isMeant: (request: SeenRequest) => boolean): void;
  /** Answers with these instead of doing what was asked. */
  refuse(isMeant: (request: SeenRequest) => boolean, status: number, reason: string, message?: string): void;
  /** How many refusals are still to come. */
  refusalsLeft(): number;
  /** Watches tell nothing any more, as over a connection that is dead on one side. */
  silenceWatches(): void;
  /** How far its clock is ahead of ours. */
  setClockAhead(ms: number): void;
  close(): void;
}

type KubeObject = RawPod & { kind?: string; spec: Record<string, unknown>; message?: string };

class Refusal extends Error {
  readonly status: number;
  readonly reason: string;
  constructor(status: number, reason: string, message = reason) {
    super(message);
    this.status = status;
    this.reason = reason;
  }
}

export async function openTestApiServer(folder: string): Promise<TestApiServer> {
  const objects = new Map<string, KubeObject>();
  const writes: SeenRequest[] = [];
  const watches = new Set<ServerResponse>();
  const history: { version: number; event: Uint8Array }[] = [];
  const traps: { isMeant: (request: SeenRequest) => boolean; refusal: Refusal; isDone: boolean }[] = [];
  let version = 100;
  let aheadMs = 0;
  let isSilent = false;

  function tell(type: string, path: string, object: KubeObject): void {
    if (!path.includes("/pods/") || isSilent) return;
    const event = encodeEvent(type, object);
    history.push({ version, event });
    for (const watch of watches) watch.write(event);
  }

  function store(path: string, object: KubeObject, type: "ADDED" | "MODIFIED"): KubeObject {
    object.metadata.resourceVersion = String(++version);
    const isLetGo = object.metadata.deletionTimestamp !== undefined && !object.metadata.finalizers?.length;
    if (isLetGo) objects.delete(path);
    else objects.set(path, object);
    tell(isLetGo ? "DELETED" : type, path, object);
    return object;
  }

  function find(path: string): KubeObject {
    const known = objects.get(path);
    if (!known) throw new Refusal(404, "NotFound");
    return structuredClone(known);
  }

  function answer({ method, path, body }: SeenRequest): unknown {
    const given = body as Partial<KubeObject> & { preconditions?: { uid?: string }; gracePeriodSeconds?: number };
    if (method === "POST") {
      const name = `${path}/${given.metadata?.name}`;
      if (objects.has(name)) throw new Refusal(409, "AlreadyExists");
      const creationTimestamp = new Date(Date.now() + aheadMs).toISOString();
      const metadata = { ...given.metadata, uid: randomUUID(), creationTimestamp } as RawPod["metadata"];
      return store(name, { ...(structuredClone(given) as KubeObject), metadata }, "ADDED");
    }
    if (method === "GET") {
      if (/\/(pods|events)$/.test(path)) {
        const items = [...objects].filter(([name]) => name.startsWith(`${path}/`)).map(([, object]) => object);
        return { metadata: { resourceVersion: String(version) }, items };
      }
      if (/^\/api\/v1\/namespaces\/[^/]+$/.test(path)) {
        return { metadata: { labels: { "pod-security.kubernetes.io/enforce": "baseline" } } };
      }
      return find(path);
    }
    const object = find(path);
    const meant = method === "DELETE" ? given?.preconditions?.uid : given.metadata?.uid;
    if (meant !== undefined && meant !== object.metadata.uid) {
      if (method === "DELETE") throw new Refusal(409, "Conflict", "Precondition failed: UID in precondition");
      throw new Refusal(422, "Invalid", "metadata.uid: Invalid value: field is immutable");
    }
    if (method === "PUT") return store(path, { ...object, ...given } as KubeObject, "MODIFIED");
    if (method === "DELETE") {
      const seconds = given?.gracePeriodSeconds ?? 0;
      object.metadata.deletionTimestamp = new Date(Date.now() + aheadMs + seconds * 1000).toISOString();
      object.metadata.deletionGracePeriodSeconds = seconds;
      return store(path, object, "MODIFIED");
    }
    const { "$deleteFromPrimitiveList/finalizers": letGo, ...metadata } = (given.metadata ??
      {}) as RawPod["metadata"] & {
      "$deleteFromPrimitiveList/finalizers"?: string[];
    };
    const finalizers = object.metadata.finalizers?.filter((each) => !letGo?.includes(each)) ?? [];
    const { schedulingGates, ...spec } = given.spec ?? {};
    const gates = schedulingGates === undefined ? {} : { schedulingGates: [] };
    const changed = { ...object, metadata: { ...object.metadata, ...metadata, finalizers } };
    return store(path, { ...changed, spec: { ...object.spec, ...spec, ...gates } }, "MODIFIED");
  }

  async function respond(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? "", "http://localhost");
    response.setHeader("date", new Date(Date.now() + aheadMs).toUTCString());
    if (url.searchParams.has("watch")) {
      response.writeHead(200, { "content-type": `${protobufType};stream=watch` }).flushHeaders();
      const from = Number(url.searchParams.get("resourceVersion"));
      for (const past of history) if (past.version > from) response.write(past.event);
      watches.add(response);
      response.on("close", () => watches.delete(response));
      return;
    }
    const body = await text(request);
    const seen = { method: request.method ?? "", path: url.pathname, body: body === "" ? undefined : JSON.parse(body) };
    if (seen.method !== "GET") writes.push(seen);
    try {
      const trap = traps.find(({ isMeant }) => isMeant(seen));
      if (trap) traps.splice(traps.indexOf(trap), 1);
      if (trap && !trap.isDone) throw trap.refusal;
      const answered = answer(seen);
      if (trap) throw trap.refusal;
      send(200, seen.method === "GET" && seen.path.endsWith("/pods") ? "PodList" : "Pod", answered);
    } catch (error) {
      const { status, reason, message } = error instanceof Refusal ? error : new Refusal(500, String(error));
      send(status, "Status", { reason, message });
    }

    /** As is asked for, but that pods alone have another form. */
    function send(code: number, kind: string, object: unknown): void {
      if (!/\/pods\b/.test(url.pathname) || !request.headers.accept?.startsWith(protobufType)) {
        response.writeHead(code).end(JSON.stringify(object));
      } else {
        response.writeHead(code, { "content-type": protobufType }).end(encodeObject(kind, object));
      }
    }
  }

  const server = createServer((request, response) => void respond(request, response)).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const kubeconfig = join(folder, "kubeconfig");
  await writeFile(
    kubeconfig,
    JSON.stringify({
      clusters: [{ name: "c", cluster: { server: `http://127.0.0.1:${port}`, "insecure-skip-tls-verify": true } }],
      users: [{ name: "u", user: { token: "t" } }],
      contexts: [{ name: "c", context: { cluster: "c", user: "u" } }],
      "current-context": "c",
    }),
  );
  return {
    kubeconfig,
    writes,
    objects,
    update(path, change) {
      const object = find(path);
      change(object);
      store(path, object, "MODIFIED");
    },
    loseAnswer: (isMeant) => traps.push({ isMeant, refusal: new Refusal(400, "BadRequest"), isDone: true }),
    refuse: (isMeant, status, reason, message) =>
      traps.push({ isMeant, refusal: new Refusal(status, reason, message), isDone: false }),
    refusalsLeft: () => traps.length,
    silenceWatches() {
      isSilent = true;
    },
    setClockAhead(ms) {
      aheadMs = ms;
    },
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}
