import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import type { ServiceName } from "@sandgate/kit/base/service-names";
import { makeKeys } from "@sandgate/kit/rpc/internal-keys";
import { createTempFolder } from "@sandgate/test-support/temp-folder";
import { createClient, expectStatus } from "../conformance/client.ts";
import { unlimited } from "../platform/limits.ts";
import { withoutSettings } from "../platform/local.ts";
import { compareRounds, type Figure, median } from "./figure.ts";
import { connections, load } from "./load.ts";
import { processorMs } from "./process-figures.ts";

/**
 * How the facade's calls may reach a service: in its own process; over HTTP/2 with Connect's clients for the Connect
 * protocol and for gRPC; with grpc-js behind Connect's interface of a transport.
 */
export type TransportName = "in-process" | "connect" | "grpc" | "grpc-js";
const transportNames: readonly TransportName[] = ["in-process", "connect", "grpc", "grpc-js"];
/** The default between processes, which the others should not undercut. */
const standard: TransportName = "connect";

/** Where the services of the other process are. */
export type Addresses = Partial<Record<ServiceName, string>>;

const rounds = 7;
const perRound = 3_000;
/** Until then V8 still compiles what a call runs through. */
const warmUp = 10_000;

/** Processor time in microseconds. */
interface Cost {
  /** Of the facade, or of the client in its place. */
  caller: number;
  /** Of the service's process; none in one process. */
  service: number;
}

/**
 * GET of a workspace through the real facade, which makes one call for it (what it asks identity and workspace to admit
 * a request is remembered for a second), against the same call by a client alone, over each transport. The service has
 * its SQLite store, the quicker one: a database that takes longer would make the hop dearer and the ratio smaller.
 */
export async function measureTransports(): Promise<Figure[]> {
  await using bench = new AsyncDisposableStack();
  const { path: folder } = bench.use(await createTempFolder());
  await makeKeys(folder);
  const env = {
    ...withoutSettings(process.env),
    SANDGATE_DATA: folder,
    SANDGATE_HOST: "127.0.0.1",
    SANDGATE_PORT: "0",
    ...unlimited,
    SANDGATE_ADMIN_PASSWORD: password,
  };
  const start = async (role: string, transport: string, addresses: Addresses = {}) => {
    const child = bench.adopt(fork(program, [role, transport, folder, JSON.stringify(addresses)], { env }), stop);
    return { child, message: await nextMessage(child) };
  };
  const services = await start("services", "all");

  const lines = [];
  for (const transport of transportNames) {
    const facade = await start("facade", transport, services.message);
    const caller = await start("caller", transport, services.message);
    const service = transport === "in-process" ? undefined : services.child;
    const { url, token } = await openWorkspace(facade.message.url);
    const request = (amount: number) => load(url, { token }, { amount });
    const call = (amount: number) => callMany(caller.child, amount);
    await request(warmUp);
    await call(warmUp);
    lines.push({
      transport,
      measureWhole: () => costOf(request, facade.child, service),
      measureHop: () => costOf(call, caller.child, service),
      whole: [] as Cost[],
      hop: [] as Cost[],
    });
  }
  for (let round = 0; round < rounds; round++) {
    for (const line of lines) {
      line.whole.push(await line.measureWhole());
      line.hop.push(await line.measureHop());
    }
  }

  const usual = lines.find(({ transport }) => transport === standard)?.hop ?? [];
  const aimOf = (transport: TransportName, aim: string) => (transport === "in-process" ? "none, being no hop" : aim);
  return [
    ...lines.map(({ transport, whole, hop }) =>
      compare(`facade and hop (${transport}), of the hop alone`, aimOf(transport, "at most 2.2"), whole, hop),
    ),
    ...lines
      .filter(({ transport }) => transport !== standard)
      .map(({ transport, hop }) =>
        compare(`hop (${transport}), of one over ${standard}`, aimOf(transport, "above 1"), hop, usual),
      ),
  ];
}

/** The ratio of two costs in each round. */
function compare(what: string, aim: string, costs: readonly Cost[], against: readonly Cost[]): Figure {
  const { value, span } = compareRounds(costs.map(total), against.map(total));
  const show = (costs: readonly Cost[]) => {
    const [all, caller, service] = [total, (cost: Cost) => cost.caller, (cost: Cost) => cost.service].map((of) =>
      median(costs.map(of)).toFixed(0),
    );
    return `${all} us (${caller} and the service's ${service})`;
  };
  const detail = `${span}; ${show(costs)} of processor time against ${show(against)}`;
  return { what, value, unit: "", aim, detail };
}

function total({ caller, service }: Cost): number {
  return caller + service;
}

/** The cost of each call of a round to the two processes. */
async function costOf(
  work: (amount: number) => Promise<unknown>,
  caller: ChildProcess,
  service: ChildProcess | undefined,
): Promise<Cost> {
  const read = async () => [await processorMs(caller.pid), service ? await processorMs(service.pid) : 0] as const;
  const before = await read();
  await work(perRound);
  const after = await read();
  const micros = (index: 0 | 1) => ((after[index] - before[index]) * 1000) / perRound;
  return { caller: micros(0), service: micros(1) };
}

async function callMany(caller: ChildProcess, amount: number): Promise<void> {
  caller.send({ amount, atOnce: connections });
  await nextMessage(caller);
}

const program = join(import.meta.dirname, "hop.child.ts");
const password = "the operator of a bench";

async function stop(child: ChildProcess): Promise<void> {
  if (!child.connected) return;
  child.disconnect();
  await once(child, "exit");
}

/** The next message of a child. Throws when it ends instead. */
async function nextMessage(child: ChildProcess) {
  const over = new AbortController();
  const [message] = await Promise.race([
    once(child, "message", { signal: over.signal }),
    once(child, "exit", { signal: over.signal }).then(() => {
      throw new Error("a process of the bench ended");
    }),
  ]).finally(() => over.abort());
  return message;
}

/** A workspace of the operator's, by its address, and an API token, which lasts however long the bench takes. */
async function openWorkspace(facade: string): Promise<{ url: string; token: string }> {
  const client = createClient(facade);
  const { tokens } = expectStatus(await client.post("/auth/login", { username: "admin@localhost", password }), 200);
  const session = { token: tokens.access_token };
  const { token } = expectStatus(await client.post("/api-tokens/", { description: "bench" }, session), 201);
  const { id } = expectStatus(await client.post("/workspaces", { name: "bench" }, session), 201);
  return { url: `${facade}/workspaces/${id}`, token };
}
