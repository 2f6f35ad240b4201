import { randomInt } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { Answer, Client, RequestOptions } from "../conformance/client.ts";
import { uniqueName } from "../conformance/client.ts";
import type { Operator } from "../platform/operator.ts";

export type Kind = "workspace" | "image" | "token" | "sandbox";

/** Something that the client has asked for, and what it knows about it. */
export interface Thing {
  readonly kind: Kind;
  readonly name: string;
  readonly workspace: Thing | undefined;
  /** Known once its creation was acknowledged; without one it may or may not have been made. */
  id?: string;
  /** Whether it was deleted, or a sandbox stopped. */
  gone: "no" | "maybe" | "yes";
  /** Asks for its creation again with the same Idempotency-Key; undefined when the outcome is unknown. */
  ask(): Promise<Answer | undefined>;
  /** The first answer. */
  answer?: Answer["body"];
}

/** What the clients, which never crash, know. */
export interface Journal {
  readonly things: Thing[];
  /** Answers that no crash explains. */
  readonly violations: string[];
  requests: number;
  /** Requests whose outcome is unknown: an answer of 500 and above, or none. */
  unknown: number;
}

/** The requests that create, read and remove a kind of thing. */
interface Routes {
  create: string;
  /** The field that holds the name. */
  field: string;
  body?: object;
  read?(id: string): string;
  remove(id: string): string;
}

/** No answer takes as long, whatever fails. */
const hangMs = 60_000;

const livePerCaller = { workspace: 3, image: 6, token: 6, sandbox: 3 };
/** Sessions last 300 s. */
const sessionMs = 200_000;

/**
 * Callers that send mixed requests to all facades. Each works on things of its own, one request after the other, so that it
 * knows what must be there. A request with an unknown outcome is mostly repeated until it is known.
 */
export function createCallers(o: { facades: readonly Client[]; operator: Operator; imageId: string; callers: number }) {
  const { operator } = o;
  const prefix = uniqueName("fault");
  const journal: Journal = { things: [], violations: [], requests: 0, unknown: 0 };
  const routes: Record<Kind, Routes> = {
    workspace: { create: "/workspaces", field: "name", read: at("/workspaces"), remove: at("/workspaces") },
    image: {
      create: "/sandbox-images",
      field: "name",
      body: { image: "busybox" },
      read: at("/sandbox-images"),
      remove: at("/sandbox-images"),
    },
    token: { create: "/api-tokens/", field: "description", remove: at("/api-tokens") },
    sandbox: {
      create: "/sandboxes/provision",
      field: "name",
      body: { image_id: o.imageId },
      read: at("/sandboxes"),
      remove: at("/sandboxes"),
    },
  };
  let session: { token: string; until: number } | undefined;

  async function attempt(send: (facade: Client) => Promise<Answer>): Promise<Answer | undefined> {
    const facade = o.facades[journal.requests++ % o.facades.length] ?? operator;
    const answered = new AbortController();
    const hangs = delay(hangMs, undefined, { signal: answered.signal }).then(
      () => journal.violations.push(`a request was not answered within ${hangMs / 1000} s`),
      () => {},
    );
    try {
      const answer = await Promise.race([send(facade), hangs.then(() => undefined)]);
      if (answer && answer.status < 500) return answer;
    } catch (error) {
      // What fetch throws when there is no answer, or only a part of one.
      if (!(error instanceof TypeError)) throw error;
    } finally {
      answered.abort();
    }
    journal.unknown++;
    return undefined;
  }

  function note(what: string, answer: Answer): void {
    journal.violations.push(`${what}: ${answer.status} ${answer.text}`);
  }

  /** The options of requests about a thing; undefined when signing in fails now. */
  async function optionsFor(kind: Kind, workspace: Thing | undefined): Promise<RequestOptions | undefined> {
    if (kind !== "token") return { token: operator.as.token, workspace: workspace?.id };
    if (!session || session.until < Date.now()) {
      const token = await operator.openSession().catch(() => undefined);
      session = token === undefined ? undefined : { token, until: Date.now() + sessionMs };
    }
    return session && { token: session.token };
  }

  async function make(kind: Kind, workspace?: Thing): Promise<Thing> {
    const { create, field, body } = routes[kind];
    const name = `${prefix}-${journal.things.length}`;
    const thing: Thing = {
      kind,
      name,
      workspace,
      gone: "no",
      async ask() {
        const options = await optionsFor(kind, workspace);
        if (!options) return undefined;
        return attempt((facade) =>
          facade.post(create, { ...body, [field]: name }, { ...options, headers: { "idempotency-key": name } }),
        );
      },
    };
    journal.things.push(thing);
    const tries = randomInt(3) > 0 ? 40 : 1;
    for (let turn = 0; turn < tries; turn++) {
      const answer = await thing.ask();
      if (answer?.status === 201) {
        thing.id = answer.body.id;
        thing.answer = answer.body;
        break;
      }
      if (answer) {
        note(`making ${kind} ${name}`, answer);
        break;
      }
      await delay(250);
    }
    return thing;
  }

  async function remove(thing: Thing): Promise<void> {
    const { kind, workspace, id = "" } = thing;
    const tries = randomInt(3) > 0 ? 40 : 1;
    for (let turn = 0; turn < tries; turn++) {
      const options = await optionsFor(kind, workspace);
      const answer = options && (await attempt((facade) => facade.delete(routes[kind].remove(id), options)));
      if (answer?.status === 204 || (answer?.status === 404 && thing.gone === "maybe")) {
        thing.gone = "yes";
        return;
      }
      if (answer) return note(`removing ${kind} ${thing.name}`, answer);
      if (options) thing.gone = "maybe";
      await delay(250);
    }
  }

  /** What was acknowledged must be there, whatever has crashed since. */
  async function read(thing: Thing): Promise<void> {
    const { kind, workspace, id = "" } = thing;
    const path = routes[kind].read?.(id);
    const options = await optionsFor(kind, workspace);
    if (path === undefined || !options) return;
    const answer = await attempt((facade) => facade.get(path, options));
    if (answer && (answer.status !== 200 || answer.body.id !== id)) note(`reading ${kind} ${thing.name}`, answer);
    if (kind !== "sandbox" || randomInt(2) > 0) return;
    const monitored = await attempt((facade) => facade.get(`/sandbox/monitoring/${id}`, options));
    if (monitored && monitored.status !== 200) note(`monitoring ${thing.name}`, monitored);
    const waited = await attempt((facade) =>
      facade.post("/sandboxes/wait", { sandbox_id: id, timeout_seconds: 3 }, options),
    );
    if (waited && ![200, 409].includes(waited.status)) note(`waiting for ${thing.name}`, waited);
  }

  function createCaller(): () => Promise<void> {
    const mine: Thing[] = [];
    const live = (kind: Kind) =>
      mine.filter((thing) => {
        return thing.kind === kind && thing.id && thing.gone === "no" && (thing.workspace?.gone ?? "no") === "no";
      });
    const any = (things: readonly Thing[]) => things[randomInt(Math.max(1, things.length))];
    const makeOne = async (kind: Kind) => {
      if (live(kind).length >= livePerCaller[kind]) return;
      const workspace = kind === "image" || kind === "sandbox" ? any(live("workspace")) : undefined;
      if (workspace || kind === "workspace" || kind === "token") mine.push(await make(kind, workspace));
    };
    const removeOne = async (kind: Kind) => {
      const thing = any(live(kind));
      if (thing) await remove(thing);
    };
    const acts: [weight: number, act: () => Promise<void>][] = [
      [12, () => makeOne("workspace")],
      [18, () => makeOne("image")],
      [10, () => makeOne("token")],
      [16, () => makeOne("sandbox")],
      [4, () => removeOne("workspace")],
      [8, () => removeOne("image")],
      [6, () => removeOne("token")],
      [8, () => removeOne("sandbox")],
      [
        18,
        async () => {
          const thing = any(mine.filter(({ kind }) => live(kind).length > 0).flatMap(({ kind }) => live(kind)));
          if (thing) await read(thing);
        },
      ],
    ];
    const total = acts.reduce((sum, [weight]) => sum + weight, 0);
    return async () => {
      let left = randomInt(total);
      for (const [weight, act] of acts) {
        left -= weight;
        if (left < 0) return act();
      }
    };
  }

  const callers = Array.from({ length: o.callers }, createCaller);
  return {
    journal,
    /** Sends at least that many more requests, and goes on until `busy` settles. */
    async send(requests: number, busy: Promise<unknown>): Promise<void> {
      const enough = journal.requests + requests;
      let isBusy = true;
      const settled = busy.finally(() => {
        isBusy = false;
      });
      await Promise.all([
        settled,
        ...callers.map(async (act) => {
          while (journal.requests < enough || isBusy) {
            await act();
            // Leaves the platform time to recover.
            if (journal.requests >= enough) await delay(500);
          }
        }),
      ]);
    },
  };
}

function at(path: string): (id: string) => string {
  return (id) => `${path}/${id}`;
}
