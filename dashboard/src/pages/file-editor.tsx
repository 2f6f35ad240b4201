import type { Sandbox } from "@sandgate/client";
import { useQuery } from "@tanstack/react-query";
import { Link, useBlocker } from "@tanstack/react-router";
import { Download } from "lucide-react";
import { useState } from "react";
import { readForEdit } from "../api.ts";
import { keepLineEnds, toLineFeeds } from "../line-ends.ts";
import { useAction } from "../ui/action.tsx";
import { Button, Loading } from "../ui/basics.tsx";
import { Question } from "../ui/dialog.tsx";
import { Problem } from "../ui/problem.tsx";
import { saveFile } from "../ui/save.ts";
import { bytes, Time } from "../ui/time.tsx";

const maxTextBytes = 1024 * 1024;

interface OpenFile {
  size: number;
  modifiedAt: string;
  mode: string;
  etag: string | undefined;
  /** Undefined for one that is no text, or too long. */
  text: string | undefined;
}

async function openFile(sandbox: Sandbox, path: string, signal: AbortSignal): Promise<OpenFile> {
  const { size, modifiedAt, mode, etag } = await sandbox.files.stat(path, { follow: true, signal });
  const facts = { size, modifiedAt, mode, etag };
  if (size > maxTextBytes) return { ...facts, text: undefined };
  const content = await sandbox.files.read(path, { format: "bytes", signal });
  return { ...facts, text: decode(content) };
}

function decode(content: Uint8Array): string | undefined {
  if (content.includes(0)) return undefined;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(content);
  } catch {
    return undefined;
  }
}

/** A file, as text where it is some. A save is refused when somebody else has changed it since it was read. */
export function FileEditor({ sandbox, path, folder }: { sandbox: Sandbox; path: string; folder: string }) {
  const file = useQuery({
    queryKey: [sandbox.id, "file", path],
    queryFn: ({ signal }) => openFile(sandbox, path, signal),
    ...readForEdit,
  });
  const [edited, setEdited] = useState<string>();
  const { busy, error, act } = useAction();
  const [saved, setSaved] = useState(false);
  const text = file.data?.text;
  const shown = toLineFeeds(text ?? "");
  const isChanged = edited !== undefined && edited !== shown;
  const leaving = useBlocker({ shouldBlockFn: () => isChanged, enableBeforeUnload: isChanged, withResolver: true });

  async function readAgain() {
    if ((await file.refetch()).isSuccess) setEdited(undefined);
  }
  const readProblem = file.isError && (
    <Problem error={file.error}>
      <p>
        <Button onClick={readAgain}>Read it again</Button>
      </p>
    </Problem>
  );
  if (!file.data) return readProblem || <Loading what="Reading the file" />;
  const { size, modifiedAt, mode, etag } = file.data;

  const save = () =>
    act(async () => {
      await sandbox.files.write(path, keepLineEnds(text ?? "", edited ?? ""), { ifMatch: etag });
      await readAgain();
      setSaved(true);
    });
  const download = () =>
    act(async () => {
      const stream = await sandbox.files.read(path, { format: "stream" });
      saveFile(path.slice(path.lastIndexOf("/") + 1), await new Response(stream).blob());
    });
  return (
    <section className="card" aria-label={path}>
      <p className="muted num">
        {bytes(size)}, mode <span className="mono">{mode}</span>, modified <Time at={modifiedAt} />
      </p>
      {text === undefined ? (
        <p>{size > maxTextBytes ? "It is too long to be edited here." : "It is no text in UTF-8."}</p>
      ) : (
        <textarea
          className="editor mono"
          aria-label="Content"
          value={edited ?? shown}
          // Without having read what was saved, a second save would be refused.
          readOnly={busy || file.isError}
          spellCheck={false}
          autoCapitalize="none"
          onChange={(event) => {
            setEdited(event.target.value);
            setSaved(false);
          }}
        />
      )}
      {error !== undefined && <Problem error={error} />}
      {readProblem}
      <div className="form-end">
        {text !== undefined && (
          <Button kind="primary" busy={busy} disabled={!isChanged || file.isError} onClick={save}>
            Save
          </Button>
        )}
        <Button icon={<Download aria-hidden />} busy={busy} onClick={download}>
          Download
        </Button>
        <Link
          from="/sandboxes/$sandboxId/files"
          search={(old) => ({ ...old, path: folder, file: undefined })}
          className="button quiet"
        >
          Back to the folder
        </Link>
        <span role="status" className="muted">
          {saved ? "Saved." : ""}
        </span>
      </div>
      <Question
        title="Leave without saving?"
        action="Discard"
        open={leaving.status === "blocked"}
        onOpenChange={() => leaving.reset?.()}
        onConfirm={() => leaving.proceed?.()}
      >
        <p>What you changed in {path} is lost then.</p>
      </Question>
    </section>
  );
}
