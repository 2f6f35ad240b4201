import { randomInt } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { Client } from "../conformance/client.ts";
import type { Operator } from "../platform/operator.ts";
import type { Journal, Kind, Thing } from "./journal.ts";
import { createRequests, type Requests } from "./requests.ts";

const livePerCaller = { workspace: 3, image: 6, token: 6, sandbox: 3 };

/** Callers that send mixed requests to a platform, and what they know of it. */
export interface Callers {
  readonly journal: Journal;
  /** Sends at least that many more requests, and goes on until `busy` settles. */
  send(requests: number, busy?: Promise<unknown>): Promise<void>;
}

/** Each caller works on things of its own, one request after the other, so that it knows what must be there. */
export function createCallers(o: {
  facades: readonly Client[];
  operator: Operator;
  imageId: string;
  callers: number;
}): Callers {
  const journal: Journal = { things: [], violations: [], requests: 0, unknown: 0 };
  const requests = createRequests({ ...o, journal });
  const callers = Array.from({ length: o.callers }, () => createCaller(requests));
  return {
    journal,
    async send(count, busy = Promise.resolve()) {
      const enough = journal.requests + count;
      let isBusy = true;
      const settled = busy.finally(() => {
        isBusy = false;
      });
      await Promise.all([
        settled,
        ...callers.map(async (step) => {
          while (journal.requests < enough || isBusy) {
            await step();
            // Leaves the platform time to recover.
            if (journal.requests >= enough) await delay(500);
          }
        }),
      ]);
    },
  };
}

/** A caller's next step, which is chosen at random. */
function createCaller(requests: Requests): () => Promise<void> {
  const mine: Thing[] = [];
  const live = (kind: Kind) =>
    mine.filter((thing) => {
      return thing.kind === kind && thing.id && thing.gone === "no" && (thing.workspace?.gone ?? "no") === "no";
    });
  const any = (things: readonly Thing[]) => things[randomInt(Math.max(1, things.length))];
  const createOne = async (kind: Kind) => {
    if (live(kind).length >= livePerCaller[kind]) return;
    const workspace = kind === "image" || kind === "sandbox" ? any(live("workspace")) : undefined;
    if (workspace || kind === "workspace" || kind === "token") mine.push(await requests.create(kind, workspace));
  };
  const removeOne = async (kind: Kind) => {
    const thing = any(live(kind));
    if (thing) await requests.remove(thing);
  };
  const readOne = async () => {
    const thing = any(mine.flatMap(({ kind }) => live(kind)));
    if (thing) await requests.read(thing);
  };
  const steps: [weight: number, run: () => Promise<void>][] = [
    [12, () => createOne("workspace")],
    [18, () => createOne("image")],
    [10, () => createOne("token")],
    [16, () => createOne("sandbox")],
    [4, () => removeOne("workspace")],
    [8, () => removeOne("image")],
    [6, () => removeOne("token")],
    [8, () => removeOne("sandbox")],
    [18, readOne],
  ];
  const total = steps.reduce((sum, [weight]) => sum + weight, 0);
  return async () => {
    let left = randomInt(total);
    for (const [weight, run] of steps) {
      left -= weight;
      if (left < 0) return run();
    }
  };
}
