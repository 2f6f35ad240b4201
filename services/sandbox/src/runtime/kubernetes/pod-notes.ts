import type { Pod } from "./pod.ts";
import type { Pods } from "./pods.ts";

/** Notes about pods, each kept until its pod is gone, whoever removes it. */
export interface PodNotes<T> {
  /** Undefined: there is no note about this pod, though there may be one about an earlier pod of the same sandbox. */
  get(pod: Pod): T | undefined;
  /** The pod must be there. */
  set(pod: Pod, note: T): void;
  delete(pod: Pod): void;
  size(): number;
}

export function createPodNotes<T>(pods: Pick<Pods, "listen">): PodNotes<T> {
  const notes = new Map<string, { uid: string; note: T }>();
  pods.listen((sandboxId, pod) => {
    if (notes.get(sandboxId)?.uid !== pod?.uid) notes.delete(sandboxId);
  });
  return {
    get({ sandboxId, uid }) {
      const known = notes.get(sandboxId);
      return known?.uid === uid ? known.note : undefined;
    },
    set: ({ sandboxId, uid }, note) => notes.set(sandboxId, { uid, note }),
    delete: ({ sandboxId }) => notes.delete(sandboxId),
    size: () => notes.size,
  };
}
