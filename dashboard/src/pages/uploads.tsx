import { useSyncExternalStore } from "react";
import { Button } from "../ui/basics.tsx";
import { Problem } from "../ui/problem.tsx";
import { bytes } from "../ui/time.tsx";
import { currentUploads, forgetUploads, onUploadsChange } from "../upload.ts";

/** How far a sandbox's uploads are, and which failed. */
export function Uploads({ sandboxId }: { sandboxId: string }) {
  const uploads = useSyncExternalStore(onUploadsChange, currentUploads).filter((each) => each.sandboxId === sandboxId);
  if (uploads.length === 0) return null;
  return (
    <ul className="uploads" aria-label="Uploads">
      {uploads.map(({ id, name, size, sent, error, isDone }) => (
        <li key={id}>
          <span>
            {name} <span className="muted num">{isDone ? "done" : `${bytes(sent)} of ${bytes(size)}`}</span>
          </span>
          {error === undefined ? (
            <progress value={sent} max={Math.max(size, 1)} aria-label={`Upload of ${name}`} />
          ) : (
            <Problem error={error}>
              <p>
                <Button onClick={() => forgetUploads([id])}>Forget {name}</Button>
              </p>
            </Problem>
          )}
        </li>
      ))}
    </ul>
  );
}
