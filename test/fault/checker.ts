import { fromBinary } from "@bufbuild/protobuf";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { type ServiceName, serviceNames } from "@sandgate/kit/base/service-names";
import { deadLetterStream, eventStream } from "@sandgate/kit/events/bus.nats-streams";
import { type Event, EventSchema } from "@sandgate/proto/common/v1/event";
import { expectStatus } from "../conformance/client.ts";
import type { DistributedPlatform } from "../platform/distributed/platform.ts";
import type { Operator } from "../platform/operator.ts";
import type { Journal, Kind, Thing } from "./journal.ts";

interface Found {
  _id: string;
  [field: string]: unknown;
}

const places: Record<Kind, { service: ServiceName; collection: string; field: string }> = {
  workspace: { service: "workspace", collection: "workspaces", field: "name" },
  image: { service: "image-registry", collection: "images", field: "name" },
  token: { service: "identity", collection: "api_tokens", field: "description" },
  sandbox: { service: "sandbox", collection: "sandboxes", field: "name" },
};

/** What services store for a workspace and delete with it. */
const keptForWorkspaces: [service: ServiceName, collection: string][] = [
  ["workspace", "members"],
  ["image-registry", "images"],
  ["image-registry", "registries"],
  ["sandbox", "sandboxes"],
  ["telemetry", "sandboxes"],
];

const purging: ServiceName[] = ["image-registry", "sandbox", "telemetry"];

/**
 * Compares every store, the streams and the engine with the journal of the clients. Returns the differences, in one
 * line each: none once the platform is idle. `loggedLines` are what each sandbox writes when it starts.
 */
export async function findProblems(o: {
  platform: DistributedPlatform;
  journal: Journal;
  operator: Operator;
  loggedLines: readonly string[];
}): Promise<string[]> {
  const { platform, journal } = o;
  const problems: string[] = [];
  const check = (holds: boolean, problem: () => string) => {
    if (!holds) problems.push(problem());
  };
  const all = async (service: ServiceName, collection: string, filter: object = {}) =>
    platform.database(service).collection<Found>(collection).find(filter).toArray();

  // Every acknowledged write once.
  const found = new Map<Thing, Found>();
  for (const kind of ["workspace", "image", "token", "sandbox"] as const) {
    const { service, collection, field } = places[kind];
    const things = journal.things.filter((thing) => thing.kind === kind);
    const documents = await all(service, collection, { [field]: { $in: things.map(({ name }) => name) } });
    for (const thing of things) {
      const mine = documents.filter((document) => document[field] === thing.name);
      if (mine[0]) found.set(thing, mine[0]);
      const [least, most] = expectedCount(thing, found);
      check(
        mine.length >= least && mine.length <= most,
        () => `${kind} ${thing.name} (gone: ${thing.gone}) is there ${mine.length} times, not ${least} to ${most}`,
      );
      check(
        mine.every(({ _id }) => !thing.id || _id === thing.id),
        () => `${kind} ${thing.name} has another id`,
      );
    }
  }

  // Every deletion complete.
  const deletions = await all("workspace", "deletions");
  for (const { _id, completedAt, purges } of deletions) {
    check(completedAt !== undefined, () => `the deletion of ${_id} is not complete: ${JSON.stringify(purges)}`);
    for (const [service, collection] of keptForWorkspaces) {
      const left = await all(service, collection, { workspaceId: _id });
      check(
        left.length === 0,
        () => `${left.length} ${collection} of the deleted workspace ${_id} are left at ${service}`,
      );
    }
  }
  const deleted = new Set(deletions.map(({ _id }) => _id));
  for (const thing of journal.things.filter(({ kind, id }) => kind === "workspace" && id)) {
    check(
      found.has(thing) !== deleted.has(thing.id ?? ""),
      () => `workspace ${thing.name} is there and deleted, or neither`,
    );
  }

  // No sandbox is on its way to a state, and the engine has a container for each that is ready and no other.
  const running = new Set<string>();
  const liveCounts = new Map<string, number>();
  for (const [thing, sandbox] of found) {
    if (thing.kind !== "sandbox") continue;
    const { _id, state, stateReason } = sandbox;
    if (state === "ready") {
      running.add(_id);
      const workspaceId = String(sandbox.workspaceId);
      liveCounts.set(workspaceId, (liveCounts.get(workspaceId) ?? 0) + 1);
      check(thing.gone !== "yes", () => `sandbox ${thing.name} was stopped and runs`);
    } else {
      check(
        state === "stopped" && stateReason === "stopped_by_user" && thing.gone !== "no",
        () => `sandbox ${thing.name} is ${state}: ${stateReason} ${sandbox.message}`,
      );
      check(sandbox.uncleaned === undefined, () => `sandbox ${thing.name} still has a container to remove`);
    }
  }
  for (const guard of await all("sandbox", "guards", { deletedAt: { $exists: false } })) {
    const count = liveCounts.get(guard._id) ?? 0;
    check(
      (guard.liveCount ?? 0) === count,
      () => `workspace ${guard._id} counts ${guard.liveCount} sandboxes, not ${count}`,
    );
  }
  const containers = await platform.containers();
  const contained = containers.map(({ Labels }) => Labels["sandgate.io/sandbox-id"] ?? "");
  for (const id of contained) check(running.has(id), () => `a container of sandbox ${id} was leaked`);
  for (const id of running) {
    const states = containers.filter((_, index) => contained[index] === id).map(({ State }) => State);
    check(states.join() === "running", () => `sandbox ${id} has containers: ${states.join()}`);
  }

  // Each line once, in its order; of a sandbox that was stopped as it started, the first ones.
  for (const [thing, { _id, state }] of found) {
    if (thing.kind !== "sandbox") continue;
    const { token } = o.operator.as;
    const path = `/sandbox/monitoring/${_id}?include=logs`;
    const body = expectStatus(await o.operator.get(path, { token, workspace: thing.workspace?.id }), 200);
    const lines: string[] = body.logs.map((entry: { log: string }) => entry.log);
    const expected = state === "ready" ? o.loggedLines : o.loggedLines.slice(0, lines.length);
    check(lines.join() === expected.join(), () => `sandbox ${thing.name} (${state}) has logged ${lines.join()}`);
  }

  problems.push(...(await findEventProblems(o, found, deletions)));
  return problems;
}

/** How often the things of the journal may be in their store. */
function expectedCount(thing: Thing, found: ReadonlyMap<Thing, Found>): [least: number, most: number] {
  if (thing.workspace && !found.has(thing.workspace)) return [0, 0];
  const gone = thing.kind === "sandbox" ? "no" : thing.gone;
  if (gone === "yes") return [0, 0];
  return [thing.id && gone === "no" ? 1 : 0, 1];
}

/** Every change has its events once, in the outbox and in the stream, and each was handled. */
async function findEventProblems(
  { platform, journal }: { platform: DistributedPlatform; journal: Journal },
  found: ReadonlyMap<Thing, Found>,
  deletions: readonly Found[],
): Promise<string[]> {
  const problems: string[] = [];
  const events: Event[] = [];
  const buses = new Set<string>();
  for (const service of serviceNames) {
    const outbox = platform.database(service).collection("kit_outbox");
    for await (const row of outbox.find({}, { promoteBuffers: true })) {
      events.push(fromBinary(EventSchema, row.bytes));
      buses.add(String(row.sentTo));
      if (row.unsent) problems.push(`${service} has not sent event ${row._id}`);
    }
  }
  if (buses.size > 1) problems.push(`events were sent to ${[...buses].join(" and ")}`);
  const count = (subject: string, entityId = "") =>
    events.filter((event) => event.subject === `sandgate.${subject}.v1` && event.entityId === entityId).length;
  const expectOnce = (subject: string, { kind, name, id }: Thing, times = 1) => {
    const seen = count(subject, id);
    if (seen !== times) problems.push(`${kind} ${name} has ${seen} events ${subject}, not ${times}`);
  };
  for (const thing of journal.things.filter(({ id }) => id)) {
    if (thing.kind === "workspace") expectOnce("workspace.workspace.created", thing);
    if (thing.kind === "image") {
      expectOnce("image-registry.image.created", thing);
      if (thing.gone === "yes") expectOnce("image-registry.image.deleted", thing);
    }
    if (thing.kind === "token" && thing.gone === "yes") expectOnce("identity.api_token.revoked", thing);
    if (thing.kind === "sandbox") {
      expectOnce("sandbox.sandbox.provisioned", thing);
      expectOnce("sandbox.sandbox.failed", thing, 0);
      const sandbox = found.get(thing);
      if (sandbox?.state === "ready") expectOnce("sandbox.sandbox.ready", thing);
      if (sandbox) expectOnce("sandbox.sandbox.stopped", thing, sandbox.state === "stopped" ? 1 : 0);
    }
  }
  for (const { _id, announcements } of deletions) {
    const announced = count("workspace.workspace.deleted", _id);
    if (announced !== announcements)
      problems.push(`the deletion of ${_id} has ${announced} events, not ${announcements}`);
    for (const service of purging) {
      if (count(`${service}.workspace.workspace_purged`, _id) === 0)
        problems.push(`${service} has no event of purging ${_id}`);
    }
  }

  const { servers, user, pass } = operatorOf(platform);
  const connection = await connect({ servers, user, pass });
  try {
    const jsm = await jetstreamManager(connection, { checkAPI: false });
    const { state } = await jsm.streams.info(eventStream);
    const kept = new Set<string>();
    for (let seq = state.first_seq; seq <= state.last_seq; seq++) {
      const message = await jsm.streams.getMessage(eventStream, { seq });
      if (message) kept.add(message.header.get("Nats-Msg-Id"));
    }
    const staged = new Set(events.map(({ eventId }) => eventId));
    for (const id of staged) if (!kept.has(id)) problems.push(`event ${id} is not in the stream`);
    for (const id of kept) if (!staged.has(id)) problems.push(`event ${id} of the stream was never committed`);
    for await (const { name, num_pending, num_ack_pending } of jsm.consumers.list(eventStream)) {
      if (num_pending + num_ack_pending > 0) problems.push(`${name} has events to handle`);
    }
    const deadLetters = await jsm.streams.info(deadLetterStream);
    if (deadLetters.state.messages > 0) problems.push(`${deadLetters.state.messages} dead letters`);
  } finally {
    await connection.close();
  }
  return problems;
}

function operatorOf(platform: DistributedPlatform): { servers: string; user: string; pass: string } {
  const { host, username, password } = new URL(platform.natsUrl("operator"));
  return { servers: host, user: username, pass: password };
}

/** Repeats every acknowledged creation with its idempotency key. Answers those whose answer differs from the first. */
export async function findForgottenAnswers(journal: Journal): Promise<string[]> {
  const forgotten: string[] = [];
  for (const thing of journal.things) {
    if (!thing.answer || (thing.workspace?.gone ?? thing.gone) !== "no") continue;
    const again = await thing.ask();
    if (JSON.stringify(again?.body) !== JSON.stringify(thing.answer))
      forgotten.push(`${thing.kind} ${thing.name}: ${again?.text}`);
  }
  return forgotten;
}
