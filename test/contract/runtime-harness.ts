import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { ImageStore } from "@sandgate/sandbox/runtime-images";
import type { Observation, RuntimeLifecycle, RuntimeSpec } from "@sandgate/sandbox/runtime-lifecycle";
import type { RuntimeOperations } from "@sandgate/sandbox/runtime-operations";
import type { Credential } from "@sandgate/test-support/registry";
import { test as baseTest } from "vitest";

/** What the suites need of an engine besides the ports. Images contain busybox, with all its programs. */
export interface RuntimeHarness {
  runtime: RuntimeLifecycle;
  /** Undefined where sandboxes have no helper. */
  operations: RuntimeOperations | undefined;
  /** Its store of images, where there is one. */
  images: ImageStore | undefined;
  /** A second adapter of the same installation, as another process would have. */
  openSecond(): RuntimeLifecycle;
  /** A reference of an image that exists nowhere. */
  missingImage: string;
  /** Makes an image that `ensure` takes as a reference. `programs`: the only ones it has. */
  makeImage(command: readonly string[], programs?: readonly string[]): Promise<string>;
  /** Runs a program inside a sandbox, with what it printed on both streams. */
  exec(sandboxId: string, command: readonly string[]): Promise<{ exitCode: number; output: string }>;
  /** Both streams of a sandbox so far. */
  readLogs(sandboxId: string): Promise<string>;
  addressOf(sandboxId: string): Promise<string>;
  /** The seconds between SIGTERM and SIGKILL that a stop without any takes all the same. */
  shortestGraceSeconds: number;
  /** The network around sandboxes; undefined where nothing here enforces rules. */
  network: NetworkHarness | undefined;
  /** Whether a sandbox's limit of processes is one of its own, that it can read. */
  limitsProcesses: boolean;
  /** Whether images are pulled from registries on this machine's loopback address, as all of these are. */
  pullsFromLoopback: boolean;
  registry: {
    host: string;
    credential: Credential;
    /** Puts a new image there that the engine does not have; returns its pinned reference. */
    publish(): Promise<string>;
  };
  close(): Promise<void>;
}

export interface NetworkHarness {
  /** Runs a program to its end in a container that nothing isolates, to show that what is forbidden would work. */
  runUnprotected(command: readonly string[]): Promise<{ exitCode: number; output: string }>;
  /** Addresses of the engine's host as containers know them. */
  hostAddresses: readonly string[];
  /** Addresses with `http://<address>:<port>/` answering behind the host: one public, one private, one link-local. */
  peers: { public: string; private: string; linkLocal: string };
}

export type SpecOf = (reference: string, changes?: Partial<RuntimeSpec>) => RuntimeSpec;

export const serve = ["httpd", "-f", "-p", "8000", "-h", "/www"];
export const idle = ["sleep", "3600"];

/** As the service does: asks again while the container is on its way. */
export async function ensureOn(runtime: RuntimeLifecycle, spec: RuntimeSpec): Promise<Observation> {
  for (;;) {
    const seen = await runtime.ensure(spec);
    if (seen.phase !== "created") return seen;
    await delay(50);
  }
}

/** The test's own time limit ends it otherwise. */
export async function until(condition: () => Promise<boolean>): Promise<void> {
  while (!(await condition())) await delay(50);
}

export function fetchCommand(address: string, port: number): string[] {
  return ["timeout", "2", "wget", "-q", "-O", "/dev/null", `http://${address}:${port}/`];
}

export type RuntimeTest = ReturnType<typeof createRuntimeTest>;

/** Tests of a suite. `specOf` and `run` make sandboxes of one test, which are removed after it. */
export function createRuntimeTest(current: () => RuntimeHarness) {
  return (
    baseTest
      // biome-ignore lint/correctness/noEmptyPattern: Vitest reads from the pattern which fixtures this one needs
      .extend("harness", ({}) => current())
      .extend("runtime", ({ harness }) => harness.runtime)
      .extend("specOf", ({ runtime }, { onCleanup }): SpecOf => {
        const made: string[] = [];
        onCleanup(async () => {
          await Promise.all(made.map((sandboxId) => runtime.remove(sandboxId)));
        });
        return (reference, changes = {}) => {
          const sandboxId = randomUUID();
          made.push(sandboxId);
          return { sandboxId, workspaceId: randomUUID(), reference, memoryMb: 64, cpus: 0.5, pids: 64, ...changes };
        };
      })
      .extend(
        "ensure",
        ({ runtime }) =>
          (spec: RuntimeSpec) =>
            ensureOn(runtime, spec),
      )
      .extend("run", ({ harness, specOf, ensure }) => {
        return async (command: readonly string[], changes: Partial<RuntimeSpec> = {}): Promise<RuntimeSpec> => {
          const spec = specOf(await harness.makeImage(command), changes);
          await ensure(spec);
          return spec;
        };
      })
      // Looks until the sandbox is as wanted; the test's own time limit ends it otherwise.
      .extend("see", ({ runtime }) => async (sandboxId: string, phase: Observation["phase"]): Promise<Observation> => {
        for (;;) {
          const seen = await runtime.inspect(sandboxId);
          if (seen?.phase === phase) return seen;
          await delay(50);
        }
      })
      .extend("probe", ({ runtime }) => {
        return (sandboxId: string, port?: number) => runtime.probe(sandboxId, port, new AbortController().signal);
      })
      // True when `GET /` gets an answer from inside the sandbox within two seconds.
      .extend("reaches", ({ harness }) => async (sandboxId: string, address: string, port: number) => {
        const { exitCode } = await harness.exec(sandboxId, fetchCommand(address, port));
        return exitCode === 0;
      })
  );
}
