import { monotonicMs } from "@sandgate/kit/base/time";
import type { Api } from "@sandgate/kubernetes-api/api";
import type { Pod } from "./pod.ts";
import { createPodNotes } from "./pod-notes.ts";
import type { Pods } from "./pods.ts";

const longestMs = 30_000;

/** What a kubelet reports about a pod in events alone. */
export interface PodEvents {
  /**
   * Reads the messages of a pod's events with these reasons. The API server looks through all events of the namespace
   * for it, so it is asked again only after `againMs` (1 s unless given), then after twice as long, up to 30 s; until
   * then the answer is the last one.
   */
  read(pod: Pod, reasons: readonly string[], againMs?: number): Promise<readonly string[]>;
}

interface Look {
  reasons: string;
  count: number;
  nextAtMs: number;
  messages: Promise<readonly string[]>;
}

export function createPodEvents(o: {
  api: Pick<Api, "call">;
  pods: Pick<Pods, "listen">;
  now?: () => number;
}): PodEvents {
  const { api, pods, now = monotonicMs } = o;
  const looks = createPodNotes<Look>(pods);

  async function ask(pod: Pod, reason: string): Promise<string[]> {
    const query = { fieldSelector: `involvedObject.uid=${pod.uid},reason=${reason}` };
    const path = `/api/v1/namespaces/${pod.namespace}/events`;
    const { items } = (await api.call({ method: "GET", path, query })) as { items: { message?: string }[] };
    return items.map(({ message }) => message ?? "");
  }

  return {
    async read(pod, reasons, againMs = 1_000) {
      const known = looks.get(pod);
      const last = known?.reasons === reasons.join() ? known : undefined;
      if (last && now() < last.nextAtMs) return last.messages;
      const count = (last?.count ?? 0) + 1;
      const pauseMs = Math.min(againMs * 2 ** (count - 1), longestMs);
      const messages = Promise.all(reasons.map((reason) => ask(pod, reason))).then((each) => each.flat());
      const look: Look = { reasons: reasons.join(), count, nextAtMs: now() + pauseMs, messages };
      // Before the answer comes: by then the pod may be gone.
      looks.set(pod, look);
      messages.catch(() => {
        if (looks.get(pod) === look) looks.delete(pod);
      });
      return messages;
    },
  };
}
