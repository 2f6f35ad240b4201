import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { type ServiceName, serviceNames } from "@sandgate/kit/base/service-names";
import { type RunningProcess, startProcess } from "@sandgate/test-support/process";

const startTimeoutMs = 240_000;

/** A program of the distributed form. */
export type Part = "facade" | ServiceName;
export const parts: readonly Part[] = ["facade", ...serviceNames];

/** One process of the distributed form. */
export interface Replica {
  readonly part: Part;
  /** "http://127.1.2.3:20123": the public API of a facade, the RPCs of a service. */
  readonly url: string;
  /** Where operators find metrics and health. */
  readonly adminUrl: string;
  /** Where operators' commands reach it. */
  readonly adminSocket: string;
  /** The process of the last start. */
  readonly process: RunningProcess;
  /** SIGKILL, as a crash would. */
  kill(): Promise<void>;
  /** SIGTERM, and the exit code. */
  terminate(): Promise<number | null>;
  /**
   * Starts it again on the same ports once it has ended, with these settings or other code. Resolves when it is ready.
   */
  start(settings?: Record<string, string>, codeRoot?: string): Promise<void>;
}

/** Starts a process; `ready` resolves once it says that it is. */
export function launchReplica(o: {
  part: Part;
  codeRoot: string;
  url: string;
  adminUrl: string;
  adminSocket: string;
  env: NodeJS.ProcessEnv;
}): Replica & { ready(): Promise<void> } {
  const program = o.part === "facade" ? "facade/src/main.ts" : `services/${o.part}/src/main.ts`;
  const launch = (settings: Record<string, string> = {}, codeRoot = o.codeRoot) =>
    startProcess(process.execPath, [join(codeRoot, program)], { cwd: codeRoot, env: { ...o.env, ...settings } });
  let running = launch();
  const ready = async (): Promise<void> => {
    const deadline = Date.now() + startTimeoutMs;
    while (running.child.exitCode === null && running.child.signalCode === null && Date.now() < deadline) {
      const answer = await fetch(`${o.adminUrl}/readyz`).catch(() => undefined);
      await answer?.body?.cancel();
      if (answer?.ok) return;
      await delay(50);
    }
    await running.kill();
    throw new Error(`${o.part} did not become ready:\n${running.output().slice(-4_000)}`);
  };
  return {
    part: o.part,
    url: o.url,
    adminUrl: o.adminUrl,
    adminSocket: o.adminSocket,
    get process() {
      return running;
    },
    kill: () => running.kill(),
    terminate: () => running.stop(60_000),
    async start(settings, codeRoot) {
      running = launch(settings, codeRoot);
      await ready();
    },
    ready,
  };
}
