import { monotonicMs } from "@sandgate/kit/base/time";
import { createWakeup, type Wakeup } from "@sandgate/kit/base/wakeup";

/** What follows a pass: another one at once, none until the id is woken, or one after a time. */
export type Next = "again" | "idle" | { retryInMs: number };

/** What a pass over an id may use. */
export interface Pass {
  /** Aborts when the pass is restarted or the queue is stopped. What the pass returns or throws is ignored then. */
  signal: AbortSignal;
  /** Ends after `ms`, or earlier when the id is woken or the signal aborts. */
  sleep(ms: number): Promise<void>;
}

export interface WorkQueue {
  /** Makes sure that a pass over the id begins after this call. Cheap: many calls cause one pass. */
  wake(id: string): void;
  /** Aborts the id's running pass, if there is one, and begins another. */
  restart(id: string): void;
  isRunning(id: string): boolean;
  /** Plans a pass over the id after `ms`, unless one is running, or planned for then or earlier. */
  plan(id: string, ms: number): void;
  /** Aborts all passes and waits for their ends. Nothing begins afterwards. */
  stop(): Promise<void>;
}

interface Run {
  abort: AbortController;
  /** Whether the id was woken since the pass began. */
  again: boolean;
  wakeup: Wakeup;
  ended: Promise<void>;
}

/** Works on ids, each by one pass at a time, and on any number of ids at once. */
export function createWorkQueue(o: {
  /** Called before each pass: an id that belongs to another process gets none. */
  owns(id: string): boolean;
  work(id: string, pass: Pass): Promise<Next>;
  /** Decides what comes after a pass that threw. */
  onFailure(id: string, error: unknown): Next;
  /** Called when an id's passes are over for now. */
  onIdle?(id: string): void;
}): WorkQueue {
  const runs = new Map<string, Run>();
  const timers = new Map<string, { timer: NodeJS.Timeout; atMs: number }>();
  let stopped = false;

  async function work(id: string, { abort: { signal }, wakeup }: Run): Promise<Next> {
    try {
      const next = await o.work(id, { signal, sleep: (ms) => wakeup.wait(ms, signal) });
      return signal.aborted ? "idle" : next;
    } catch (error) {
      return signal.aborted ? "idle" : o.onFailure(id, error);
    }
  }

  async function runPasses(id: string, run: Run): Promise<void> {
    let next: Next = "again";
    while ((next === "again" || run.again) && !stopped && o.owns(id)) {
      run.again = false;
      run.abort = new AbortController();
      next = await work(id, run);
    }
    runs.delete(id);
    o.onIdle?.(id);
    if (typeof next === "object") plan(id, next.retryInMs);
  }

  function plan(id: string, ms: number): void {
    const planned = timers.get(id);
    const atMs = monotonicMs() + ms;
    if (stopped || runs.has(id) || (planned && planned.atMs <= atMs)) return;
    clearTimeout(planned?.timer);
    timers.set(id, { timer: setTimeout(() => wake(id), ms), atMs });
  }

  function wake(id: string): void {
    const running = runs.get(id);
    if (running) {
      running.again = true;
      running.wakeup.wake();
      return;
    }
    clearTimeout(timers.get(id)?.timer);
    timers.delete(id);
    if (stopped || !o.owns(id)) {
      return;
    }
    const run: Run = {
      abort: new AbortController(),
      again: false,
      wakeup: createWakeup(),
      ended: Promise.resolve(),
    };
    runs.set(id, run);
    run.ended = runPasses(id, run);
  }

  return {
    wake,
    restart(id) {
      const run = runs.get(id);
      if (run) {
        run.again = true;
        run.abort.abort();
      }
    },
    isRunning: (id) => runs.has(id),
    plan,
    async stop() {
      stopped = true;
      for (const { timer } of timers.values()) {
        clearTimeout(timer);
      }
      timers.clear();
      const running = [...runs.values()];
      for (const { abort } of running) {
        abort.abort();
      }
      await Promise.all(running.map(({ ended }) => ended));
    },
  };
}
