import { setTimeout as delay } from "node:timers/promises";

/** What a test can crash and start again: a process of ours, a server, a program of a cluster. */
export interface Crashable {
  /** SIGKILL, as a crash would. */
  kill(): Promise<unknown>;
  start(): Promise<unknown>;
}

/** A crash, and a start after this time. */
export async function crash(program: Crashable, awayMs = 0): Promise<void> {
  await program.kill();
  await delay(awayMs);
  await program.start();
}
