import { randomInt } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { type Answer, type Client, type RequestOptions, uniqueName } from "../conformance/client.ts";
import type { Operator } from "../platform/operator.ts";
import type { Journal, Kind, Thing } from "./journal.ts";

/** The requests that create, read and remove a kind of thing. */
interface Routes {
  create: string;
  /** The field that holds the name. */
  field: string;
  body?: object;
  read?(id: string): string;
  remove(id: string): string;
}

/** What callers do with things. Every answer that no crash explains becomes a violation in the journal. */
export interface Requests {
  create(kind: Kind, workspace?: Thing): Promise<Thing>;
  remove(thing: Thing): Promise<void>;
  /** What was acknowledged must be there, whatever has crashed since. */
  read(thing: Thing): Promise<void>;
}

/** No answer takes as long, whatever fails. */
const hangMs = 60_000;
/** Sessions last 300 s. */
const sessionMs = 200_000;
const pauseMs = 250;

function routesOf(imageId: string): Record<Kind, Routes> {
  const at = (path: string) => (id: string) => `${path}/${id}`;
  return {
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
      body: { image_id: imageId },
      read: at("/sandboxes"),
      remove: at("/sandboxes"),
    },
  };
}

/** Requests to all facades in turn. A request with an unknown outcome is mostly repeated until it is known. */
export function createRequests(o: {
  facades: readonly Client[];
  operator: Operator;
  imageId: string;
  journal: Journal;
}): Requests {
  const { operator, journal } = o;
  const prefix = uniqueName("fault");
  const routes = routesOf(o.imageId);
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

  /** Runs one attempt, or most times up to forty, until one of them says that it was the last. */
  async function repeat(isLast: () => Promise<boolean>): Promise<void> {
    const tries = randomInt(3) > 0 ? 40 : 1;
    for (let turn = 0; turn < tries; turn++) {
      if (await isLast()) return;
      await delay(pauseMs);
    }
  }

  function recordViolation(what: string, answer: Answer): void {
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

  return {
    async create(kind, workspace) {
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
      await repeat(async () => {
        const answer = await thing.ask();
        if (!answer) return false;
        if (answer.status === 201) {
          thing.id = answer.body.id;
          thing.answer = answer.body;
        } else recordViolation(`creating ${kind} ${name}`, answer);
        return true;
      });
      return thing;
    },

    async remove(thing) {
      const { kind, workspace, id = "" } = thing;
      await repeat(async () => {
        const options = await optionsFor(kind, workspace);
        const answer = options && (await attempt((facade) => facade.delete(routes[kind].remove(id), options)));
        if (answer?.status === 204 || (answer?.status === 404 && thing.gone === "maybe")) thing.gone = "yes";
        else if (answer) recordViolation(`removing ${kind} ${thing.name}`, answer);
        else if (options) thing.gone = "maybe";
        return answer !== undefined;
      });
    },

    async read({ kind, name, workspace, id = "" }) {
      const path = routes[kind].read?.(id);
      const options = await optionsFor(kind, workspace);
      if (path === undefined || !options) return;
      const answer = await attempt((facade) => facade.get(path, options));
      if (answer && (answer.status !== 200 || answer.body.id !== id))
        recordViolation(`reading ${kind} ${name}`, answer);
      if (kind !== "sandbox" || randomInt(2) > 0) return;
      const monitored = await attempt((facade) => facade.get(`/sandbox/monitoring/${id}`, options));
      if (monitored && monitored.status !== 200) recordViolation(`monitoring ${name}`, monitored);
      const waited = await attempt((facade) =>
        facade.post("/sandboxes/wait", { sandbox_id: id, timeout_seconds: 3 }, options),
      );
      if (waited && ![200, 409].includes(waited.status)) recordViolation(`waiting for ${name}`, waited);
    },
  };
}
