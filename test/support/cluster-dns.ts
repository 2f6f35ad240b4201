// The names of a test cluster's Services, as a cluster's DNS answers them (github.com/kubernetes/dns, "Kubernetes
// DNS-Based Service Discovery", 1.1): a program that runs in a pod, by itself. It knows addresses of version 4, and no
// names but the cluster's.

import { createSocket } from "node:dgram";
import { readFileSync } from "node:fs";
import { get } from "node:https";

const account = "/var/run/secrets/kubernetes.io/serviceaccount";
const suffix = ".svc.cluster.local";
/** Answers are at most this old, in seconds. */
const lifetimeSeconds = 1;

const codes = { ok: 0, failed: 2, unknownName: 3 };
const types = { A: 1, any: 255 };

interface Service {
  metadata: { name: string; namespace: string };
  spec: { clusterIP?: string };
}
interface Slice {
  metadata: { namespace: string; labels: Record<string, string> };
  addressType: string;
  endpoints: { addresses: string[]; hostname?: string; conditions: { ready?: boolean } }[] | null;
}

async function list<T>(path: string): Promise<T[]> {
  const text = await new Promise<string>((resolve, reject) => {
    const { KUBERNETES_SERVICE_HOST: host, KUBERNETES_SERVICE_PORT: port } = process.env;
    const options = {
      ca: readFileSync(`${account}/ca.crt`),
      headers: { authorization: `Bearer ${readFileSync(`${account}/token`, "utf8")}` },
      timeout: 5_000,
    };
    const call = get(`https://${host}:${port}${path}`, options, (response) => {
      let body = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        body += chunk;
      });
      response.on("error", reject);
      response.on("end", () => (response.statusCode === 200 ? resolve(body) : reject(new Error(`${path}: ${body}`))));
    });
    call.on("timeout", () => call.destroy(new Error(`${path} took more than 5 s`)));
    call.on("error", reject);
  });
  return JSON.parse(text).items;
}

type Names = ReadonlyMap<string, readonly string[]>;
let known: { names: Promise<Names>; until: number } | undefined;
let last: Names | undefined;

/** The addresses of each name. One that is known and has no address now has none here. */
function readNames(): Promise<Names> {
  if (!known || known.until < Date.now()) {
    known = { names: listNames().catch(answerLast), until: Date.now() + lifetimeSeconds * 1_000 };
    known.names.then(
      (names) => {
        last = names;
      },
      () => {
        known = undefined;
      },
    );
  }
  return known.names;
}

/** While the API server is away names stay as they were, as those of a DNS that watches it do. */
function answerLast(error: unknown): Names {
  if (!last) throw error;
  process.stderr.write(`${error}\n`);
  return last;
}

async function listNames(): Promise<Names> {
  const [services, slices] = await Promise.all([
    list<Service>("/api/v1/services"),
    list<Slice>("/apis/discovery.k8s.io/v1/endpointslices"),
  ]);
  const names = new Map<string, string[]>();
  const add = (name: string, addresses: string[]) => names.set(name, [...(names.get(name) ?? []), ...addresses]);
  const headless = new Set<string>();
  for (const { metadata, spec } of services) {
    const name = `${metadata.name}.${metadata.namespace}${suffix}`;
    if (spec.clusterIP === "None") headless.add(name);
    add(name, spec.clusterIP && spec.clusterIP !== "None" ? [spec.clusterIP] : []);
  }
  for (const { metadata, addressType, endpoints } of slices) {
    const name = `${metadata.labels["kubernetes.io/service-name"]}.${metadata.namespace}${suffix}`;
    if (addressType !== "IPv4" || !headless.has(name)) continue;
    for (const { addresses, hostname, conditions } of endpoints ?? []) {
      if (conditions.ready === false) continue;
      add(name, addresses);
      if (hostname) add(`${hostname}.${name}`, addresses);
    }
  }
  return names;
}

/** The answer to a query (RFC 1035, section 4), which holds the query's own first question. */
async function answer(query: Buffer): Promise<Buffer> {
  const labels: string[] = [];
  let at = 12;
  for (let length = query.readUInt8(at); length > 0; length = query.readUInt8(at)) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  const type = query.readUInt16BE(at + 1);
  const question = query.subarray(12, at + 5);
  const found = await readNames().then(
    (names) => names.get(labels.join(".").toLowerCase()),
    (error: unknown) => {
      process.stderr.write(`${error}\n`);
      return error instanceof Error ? error : new Error(String(error));
    },
  );
  const addresses = Array.isArray(found) && (type === types.A || type === types.any) ? found : [];
  const code = found instanceof Error ? codes.failed : found ? codes.ok : codes.unknownName;
  const header = Buffer.alloc(12);
  query.copy(header, 0, 0, 2);
  // An authoritative answer, with recursion desired as it was asked, and available.
  header.writeUInt16BE(0x8480 | (query.readUInt16BE(2) & 0x0100) | code, 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(addresses.length, 6);
  const records = addresses.map((address) => {
    const record = Buffer.alloc(16);
    // Its name is that of the question.
    record.writeUInt16BE(0xc00c, 0);
    record.writeUInt16BE(types.A, 2);
    record.writeUInt16BE(1, 4);
    record.writeUInt32BE(lifetimeSeconds, 6);
    record.writeUInt16BE(4, 10);
    for (const [index, part] of address.split(".").entries()) record.writeUInt8(Number(part), 12 + index);
    return record;
  });
  return Buffer.concat([header, question, ...records]);
}

const socket = createSocket("udp4");
socket.on("message", (query, from) => {
  answer(query).then(
    (message) => socket.send(message, from.port, from.address),
    (error: unknown) => process.stderr.write(`a query that can't be read: ${error}\n`),
  );
});
socket.bind(Number(process.env.PORT ?? 53));
process.once("SIGTERM", () => process.exit());
