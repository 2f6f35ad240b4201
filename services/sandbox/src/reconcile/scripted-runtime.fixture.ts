import { DomainError } from "@sandgate/kit/base/domain-error";
import type { EventBus } from "@sandgate/kit/events/bus";
import type { RuntimeDisk } from "../runtime/disk.ts";
import type { ImageStore, PullRequest } from "../runtime/images.ts";
import { type Observation, type RuntimeLifecycle, type RuntimeSpec, SandboxRefused } from "../runtime/lifecycle.ts";

/** A runtime that does what a test says; adapters to real engines pass the ports' contract suites. */
export interface ScriptedEngine extends RuntimeLifecycle {
  images: Pick<ImageStore, "find">;
  disk: Pick<RuntimeDisk, "measure">;
  pull(request: PullRequest): Promise<void>;
  objects: Map<string, Observation>;
  specs: RuntimeSpec[];
  stops: [string, number][];
  inspected: string[];
  pulls: string[];
  local: Map<string, string>;
  ready: boolean;
  down: boolean;
  refusal: DomainError | undefined;
  holdPull: Promise<void> | undefined;
  /** Containers have ended by the time that their start is answered. */
  exitsAtOnce: boolean;
  /** The runtime has found containers to be ready by the time that their start is answered. */
  startsReady: boolean;
  /** Containers are on their way for as long as this is set, for this reason if any; or they run, and aren't ready. */
  starting: Partial<Pick<Observation, "problem" | "phase">> | undefined;
  /** Bytes that containers have written. */
  written: Map<string, number>;
  exit(id: string, end: Partial<Observation>): void;
  /** Its events could be read again after a while. */
  reconnect(): void;
}

/** Nothing runs, and all goes well until a test says otherwise. */
export function createScriptedEngine(): ScriptedEngine {
  let changed = (_id: string | undefined) => {};
  /** When each container that is on its way was asked for first. */
  const askedAt = new Map<string, Date>();
  const up = () => {
    if (engine.down) throw new DomainError("RUNTIME_UNAVAILABLE", "The engine is down.");
  };
  const engine: ScriptedEngine = {
    objects: new Map(),
    specs: [],
    stops: [],
    inspected: [],
    pulls: [],
    local: new Map(),
    ready: true,
    down: false,
    refusal: undefined,
    holdPull: undefined,
    exitsAtOnce: false,
    startsReady: false,
    starting: undefined,
    written: new Map(),
    exit(id, end) {
      const object = engine.objects.get(id);
      if (!object) throw new Error("no such object");
      engine.objects.set(id, { ...object, phase: "exited", exitCode: 0, ...end });
      changed(id);
    },
    reconnect: () => changed(undefined),
    async check() {
      up();
    },
    images: {
      async find(reference) {
        up();
        const digest = engine.local.get(reference);
        return digest === undefined ? undefined : { pinnedReference: `local-${digest}`, digest };
      },
    },
    async pull({ pinnedReference, signal }) {
      up();
      engine.pulls.push(pinnedReference);
      await Promise.race([
        engine.holdPull,
        new Promise((_, reject) => {
          signal.addEventListener("abort", () => reject(signal.reason));
        }),
      ]);
    },
    async ensure(spec) {
      up();
      if (engine.refusal) throw engine.refusal;
      engine.specs.push(spec);
      const { sandboxId } = spec;
      if (engine.starting) {
        if (engine.starting.problem?.isFinal) throw new SandboxRefused(engine.starting.problem);
        const createdAt = askedAt.get(sandboxId) ?? new Date();
        askedAt.set(sandboxId, createdAt);
        return { sandboxId, phase: "created", createdAt, ...engine.starting };
      }
      const known = engine.objects.get(sandboxId);
      if (known) return known;
      const made: Observation = {
        sandboxId,
        phase: "running",
        createdAt: new Date(),
        startedAt: new Date(),
        ...(engine.startsReady && { isReady: true }),
        ...(engine.exitsAtOnce && { phase: "exited" as const, exitCode: 0 }),
      };
      engine.objects.set(sandboxId, made);
      return made;
    },
    async inspect(id) {
      up();
      engine.inspected.push(id);
      return engine.objects.get(id);
    },
    async probe() {
      up();
      return engine.ready;
    },
    async stop(id, grace) {
      up();
      engine.stops.push([id, grace]);
      if (engine.objects.get(id)?.phase === "running") engine.exit(id, { exitCode: grace > 0 ? 143 : 137 });
    },
    async remove(id) {
      up();
      engine.objects.delete(id);
    },
    async list() {
      up();
      return [...engine.objects.values()];
    },
    disk: {
      async measure(id) {
        up();
        return engine.objects.get(id)?.phase === "running" ? { bytes: engine.written.get(id) ?? 0 } : undefined;
      },
    },
    async *observe(signal) {
      const queue: (string | undefined)[] = [];
      let wake = () => {};
      changed = (id) => {
        queue.push(id);
        wake();
      };
      signal.addEventListener("abort", () => wake());
      while (!signal.aborted) {
        if (queue.length === 0) await new Promise<void>((resolve) => (wake = resolve));
        else yield { sandboxId: queue.shift() };
      }
    },
  };
  return engine;
}

/** The signals of one process. */
export function createLoopbackBus(): Pick<EventBus, "signal" | "watch"> {
  const listeners = new Set<(body: string) => void>();
  return {
    signal: (_topic, body = "") => {
      for (const listener of listeners) queueMicrotask(() => listener(body));
    },
    watch: (_topic, listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}
