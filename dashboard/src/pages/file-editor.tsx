import type { Sandbox } from "@sandgate/client";
import { useQuery } from "@tanstack/react-query";
import { Link, useBlocker } from "@tanstack/react-router";
import { Download } from "lucide-react";
import { useEffect, useState } from "react";
import { readForEdit } from "../api.ts";
import { keepLineEnds, toLineFeeds } from "../line-ends.ts";
import { ActionButton, useAction } from "../ui/action.tsx";
import { Button, CopyButton, Empty, Loading } from "../ui/basics.tsx";
import { Question } from "../ui/dialog.tsx";
import { Problem } from "../ui/problem.tsx";
import { saveFile } from "../ui/save.ts";
import { bytes, Time } from "../ui/time.tsx";
import { useUnsaved } from "../unsaved.ts";

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

export function NoFiles() {
  return (
    <Empty title="No files">
      <p>A sandbox's files can be read and written while it is ready.</p>
    </Empty>
  );
}

/**
 * A file, as text where it is some. A save is refused when somebody else has changed it since it was read. What isn't
 * saved when the sandbox ends stays, to be copied.
 */
export function FileEditor(o: { sandbox: Sandbox; path: string; folder: string; isReady: boolean }) {
  const { sandbox, path, folder, isReady } = o;
  const file = useQuery({
    queryKey: [sandbox.id, "file", path],
    queryFn: ({ signal }) => openFile(sandbox, path, signal),
    ...readForEdit,
    enabled: isReady,
  });
  const [edited, setEdited] = useState<string>();
  const { busy, error, act } = useAction();
  const [saved, setSaved] = useState(false);
  const text = file.data?.text;
  const shown = toLineFeeds(text ?? "");
  const isChanged = edited !== undefined && edited !== shown;
  useUnsaved(isChanged);
  const leaving = useBlocker({ shouldBlockFn: () => isChanged, enableBeforeUnload: false, withResolver: true });
  // Who leaves while it is saved need not be asked once it is.
  useEffect(() => {
    if (!isChanged) leaving.proceed?.();
  }, [isChanged, leaving]);

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
  if (!isReady && !isChanged) return <NoFiles />;
  if (!file.data) return readProblem || <Loading what="Reading the file" />;
  const { size, modifiedAt, mode, etag } = file.data;

  const toSave = () => keepLineEnds(text ?? "", edited ?? "");
  const save = () =>
    act(async () => {
      await sandbox.files.write(path, toSave(), { ifMatch: etag });
      await readAgain();
      setSaved(true);
    });
  async function download() {
    const content = isReady ? await sandbox.files.read(path, { format: "stream" }) : toSave();
    saveFile(path.slice(path.lastIndexOf("/") + 1), await new Response(content).blob());
  }
  return (
    <section className="card" aria-label={path}>
      <p className="muted num">
        {bytes(size)}, mode <span className="mono">{mode}</span>, modified <Time at={modifiedAt} />
      </p>
      {!isReady && (
        <p role="alert" className="notice">
          This can't be saved, since the sandbox isn't ready any more. Copy or download what you typed.
        </p>
      )}
      {text === undefined ? (
        <p>{size > maxTextBytes ? "It is too long to be edited here." : "It is no text in UTF-8."}</p>
      ) : (
        <textarea
          className="editor mono"
          aria-label="Content"
          value={edited ?? shown}
          // Without having read what was saved, a second save would be refused.
          readOnly={busy || file.isError || !isReady}
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
          <Button kind="primary" busy={busy} disabled={!isChanged || file.isError || !isReady} onClick={save}>
            Save
          </Button>
        )}
        {!isReady && <CopyButton text={toSave()} />}
        <ActionButton icon={<Download aria-hidden />} run={download}>
          Download
        </ActionButton>
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
        open={leaving.status === "blocked" && !busy}
        onOpenChange={() => leaving.reset?.()}
        onConfirm={() => leaving.proceed?.()}
      >
        <p>What you changed in {path} is lost then.</p>
      </Question>
    </section>
  );
}
