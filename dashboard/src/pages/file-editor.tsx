import type { Sandbox } from "@sandgate/client";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { Download } from "lucide-react";
import { useState } from "react";
import { keepLineEnds, toLineFeeds } from "../line-ends.ts";
import { Button, Loading } from "../ui/basics.tsx";
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

/** A file, as text where it is some. A save is refused when somebody else has changed it since. */
export function FileEditor({ sandbox, path, folder }: { sandbox: Sandbox; path: string; folder: string }) {
  const queries = useQueryClient();
  const key = [sandbox.id, "file", path];
  const file = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => openFile(sandbox, path, signal),
    refetchOnWindowFocus: false,
    staleTime: 0,
    gcTime: 0,
  });
  const [edited, setEdited] = useState<string>();
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  const [saved, setSaved] = useState(false);
  if (file.isError) return <Problem error={file.error} />;
  if (!file.data) return <Loading what="Reading the file" />;
  const { text, size, modifiedAt, mode, etag } = file.data;
  const shown = toLineFeeds(text ?? "");

  async function save() {
    setBusy(true);
    setError(undefined);
    try {
      await sandbox.files.write(path, keepLineEnds(text ?? "", edited ?? ""), { ifMatch: etag });
      await queries.invalidateQueries({ queryKey: key });
      setEdited(undefined);
      setSaved(true);
    } catch (thrown) {
      setError(thrown);
    } finally {
      setBusy(false);
    }
  }
  async function download() {
    setError(undefined);
    try {
      const stream = await sandbox.files.read(path, { format: "stream" });
      saveFile(path.slice(path.lastIndexOf("/") + 1), await new Response(stream).blob());
    } catch (thrown) {
      setError(thrown);
    }
  }
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
          readOnly={busy}
          spellCheck={false}
          autoCapitalize="none"
          onChange={(event) => {
            setEdited(event.target.value);
            setSaved(false);
          }}
        />
      )}
      {error !== undefined && <Problem error={error} />}
      <div className="form-end">
        {text !== undefined && (
          <Button kind="primary" busy={busy} disabled={edited === undefined || edited === shown} onClick={save}>
            Save
          </Button>
        )}
        <Button icon={<Download aria-hidden />} onClick={download}>
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
    </section>
  );
}
