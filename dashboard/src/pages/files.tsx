import type { Entry, Sandbox } from "@sandgate/client";
import { useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { CornerLeftUp, Download, File, FilePen, Folder, FolderPlus, Link2, Pencil, Trash2, Upload } from "lucide-react";
import { type DragEvent, type ReactNode, useRef, useState } from "react";
import { curlLine, quote } from "../curl.ts";
import { useSandbox } from "../sandbox-queries.ts";
import { Button, Empty, IconButton } from "../ui/basics.tsx";
import { Confirm, FormDialog } from "../ui/dialog.tsx";
import { Form, TextField } from "../ui/form.tsx";
import { Rows, usePage } from "../ui/list.tsx";
import { Problem } from "../ui/problem.tsx";
import { saveFile } from "../ui/save.ts";
import { bytes, Time } from "../ui/time.tsx";
import { uploadFile } from "../upload.ts";
import { useWorkspace } from "../workspace.ts";
import { FileEditor } from "./file-editor.tsx";
import "../styles/files.css";

const pageSize = 200;

/** Joins a folder's path and a name in it. */
const join = (folder: string, name: string) => `${folder === "/" ? "" : folder}/${name}`;
const parentOf = (path: string) => path.slice(0, path.lastIndexOf("/")) || "/";

/** The files of a sandbox: a folder, or one file of it. */
export function Files() {
  const { sandbox, record } = useSandbox();
  const { path = "/", file } = useSearch({ from: "/shell/sandboxes/$sandboxId/files" });
  if (record.state !== "ready") {
    return (
      <Empty title="No files">
        <p>A sandbox's files can be read and written while it is ready.</p>
      </Empty>
    );
  }
  return (
    <>
      <Breadcrumb path={file ?? path} isFile={file !== undefined} />
      {file === undefined ? (
        <FolderView key={path} path={path} />
      ) : (
        <FileEditor key={file} sandbox={sandbox} path={file} folder={parentOf(file)} />
      )}
    </>
  );
}

function Breadcrumb({ path, isFile }: { path: string; isFile: boolean }) {
  const parts = path.split("/").filter(Boolean);
  return (
    <nav aria-label="Path" className="breadcrumb mono">
      <ol>
        <Step path="/" name="/" isLast={parts.length === 0} />
        {parts.map((name, i) => {
          const to = `/${parts.slice(0, i + 1).join("/")}`;
          const isLast = i === parts.length - 1;
          return <Step key={to} path={to} name={name} isLast={isLast} isFile={isLast && isFile} />;
        })}
      </ol>
    </nav>
  );
}

function Step({
  path,
  name,
  isLast,
  isFile = false,
}: {
  path: string;
  name: string;
  isLast: boolean;
  isFile?: boolean;
}) {
  return (
    <li>
      {isLast || isFile ? (
        <span aria-current="page">{name}</span>
      ) : (
        <Link
          from="/sandboxes/$sandboxId/files"
          search={(old) => ({ ...old, path, file: undefined, cursor: undefined })}
        >
          {name}
        </Link>
      )}
    </li>
  );
}

function FolderView({ path }: { path: string }) {
  const { sandbox, record, key } = useSandbox();
  const { cursor } = useSearch({ from: "/shell/sandboxes/$sandboxId/files" });
  const navigate = useNavigate({ from: "/sandboxes/$sandboxId/files" });
  const queries = useQueryClient();
  const folderKey = [...key, "files", path];
  const page = usePage({ key: folderKey, list: () => sandbox.files.list(path, { limit: pageSize }), cursor });
  const read = () => queries.invalidateQueries({ queryKey: folderKey });
  const [making, setMaking] = useState(false);
  const [renaming, setRenaming] = useState<Entry>();
  const upload = useUploads(sandbox, path, read);
  const isTop = path === "/";
  return (
    <DropZone onDrop={upload.start}>
      <div className="files-bar">
        {!isTop && (
          <Link
            from="/sandboxes/$sandboxId/files"
            search={(old) => ({ ...old, path: parentOf(path), cursor: undefined })}
            className="button plain"
          >
            <CornerLeftUp aria-hidden /> Up
          </Link>
        )}
        <UploadButton onFiles={upload.start} />
        <Button icon={<FolderPlus aria-hidden />} onClick={() => setMaking(true)}>
          New folder
        </Button>
        <span className="muted">Or drop files here.</span>
      </div>
      {upload.view}
      <Rows
        page={page}
        cursor={cursor}
        onTurn={(next) => navigate({ search: (old) => ({ ...old, cursor: next }) })}
        caption={`Entries of ${path}`}
        columns={["Name", "Size", "Mode", "Owner", "Modified", "Actions"]}
        empty={
          <Empty
            title="This folder is empty"
            cli={`npx sandgate cp notes.txt ${quote(`${record.name}:${join(path, "notes.txt")}`)}`}
            curl={curlLine("GET", `/sandboxes/${record.name}/files/entries?path=${encodeURIComponent(path)}`)}
          >
            <p>Upload a file, or drop some here.</p>
          </Empty>
        }
      >
        {(entry) => <EntryRow key={entry.path} entry={entry} onChange={read} onRename={() => setRenaming(entry)} />}
      </Rows>
      <FormDialog title="New folder" open={making} onClose={() => setMaking(false)}>
        <Form
          action="Create"
          onCancel={() => setMaking(false)}
          send={async (fields) => {
            await sandbox.files.makeDir(join(path, fields.text("name") ?? ""));
            await read();
            setMaking(false);
          }}
        >
          <TextField label="Name" name="name" field="path" />
        </Form>
      </FormDialog>
      <FormDialog title="Rename or move" open={renaming !== undefined} onClose={() => setRenaming(undefined)}>
        <Form
          onCancel={() => setRenaming(undefined)}
          send={async (fields) => {
            if (renaming) await sandbox.files.rename(renaming.path, fields.exact("to"));
            await read();
            setRenaming(undefined);
          }}
        >
          <TextField label="New path" name="to" defaultValue={renaming?.path} />
        </Form>
      </FormDialog>
    </DropZone>
  );
}

const icons = { directory: Folder, symlink: Link2, file: File, other: File };

function EntryRow({ entry, onChange, onRename }: { entry: Entry; onChange(): void; onRename(): void }) {
  const { sandbox } = useSandbox();
  const { path, name, type, size, mode, user, uid, group, gid, modifiedAt, symlinkTarget } = entry;
  const Icon = icons[type];
  // Its path can't be written in an address.
  const isReachable = entry.pathBase64 === undefined;
  const isFolder = type === "directory" || type === "symlink";
  return (
    <tr>
      <td className="first entry-name">
        <Icon aria-hidden />
        {isReachable && type !== "other" ? (
          <Link
            from="/sandboxes/$sandboxId/files"
            search={(old) => ({
              ...old,
              cursor: undefined,
              path: isFolder ? path : old.path,
              file: isFolder ? undefined : path,
            })}
            className="primary-link"
          >
            {name}
          </Link>
        ) : (
          name
        )}
        {symlinkTarget !== null && <span className="muted"> to {symlinkTarget}</span>}
        <span className="visually-hidden"> ({type})</span>
      </td>
      <td className="num second">{type === "file" ? bytes(size) : ""}</td>
      <td className="mono num" data-label="Mode">
        {mode}
      </td>
      <td className="num" data-label="Owner">
        {user ?? uid}:{group ?? gid}
      </td>
      <td className="time" data-label="Modified">
        <Time at={modifiedAt} />
      </td>
      <td className="actions-cell">
        {isReachable && (
          <>
            {type === "file" && (
              <>
                <IconLink path={path} label={`Edit ${name}`} />
                <DownloadButton name={name} read={() => sandbox.files.read(path, { format: "stream" })} />
              </>
            )}
            {type === "directory" && (
              <DownloadButton name={`${name}.tar`} read={() => sandbox.files.readArchive(path)} />
            )}
            <IconButton label={`Rename ${name}`} onClick={onRename}>
              <Pencil aria-hidden />
            </IconButton>
            <Confirm
              trigger={
                <button type="button" className="icon-button" aria-label={`Delete ${name}`}>
                  <Trash2 aria-hidden />
                </button>
              }
              title={`Delete ${name}?`}
              action="Delete"
              run={async () => {
                await sandbox.files.remove(path, { recursive: type === "directory" });
                onChange();
              }}
            >
              <p>{type === "directory" ? "With all that is in it." : "It can't be brought back."}</p>
            </Confirm>
          </>
        )}
      </td>
    </tr>
  );
}

function IconLink({ path, label }: { path: string; label: string }) {
  return (
    <Link
      from="/sandboxes/$sandboxId/files"
      search={(old) => ({ ...old, file: path })}
      className="icon-button"
      aria-label={label}
    >
      <FilePen aria-hidden />
    </Link>
  );
}

/** Gives the user what is read, by this name: a file, or a folder as a tar archive. */
function DownloadButton({ name, read }: { name: string; read(): Promise<ReadableStream<Uint8Array>> }) {
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  async function download() {
    setBusy(true);
    setError(undefined);
    try {
      // The browser keeps a large one on disk.
      saveFile(name, await new Response(await read()).blob());
    } catch (thrown) {
      setError(thrown);
    } finally {
      setBusy(false);
    }
  }
  return (
    <>
      <IconButton label={`Download ${name}`} disabled={busy} onClick={download}>
        <Download aria-hidden />
      </IconButton>
      {error !== undefined && <Problem error={error} />}
    </>
  );
}

function UploadButton({ onFiles }: { onFiles(files: File[]): void }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <Button icon={<Upload aria-hidden />} onClick={() => input.current?.click()}>
        Upload
      </Button>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label="Files to upload"
        onChange={(event) => {
          onFiles([...(event.target.files ?? [])]);
          event.target.value = "";
        }}
      />
    </>
  );
}

function DropZone({ onDrop, children }: { onDrop(files: File[]): void; children: ReactNode }) {
  const [over, setOver] = useState(false);
  const hasFiles = (event: DragEvent) => event.dataTransfer.types.includes("Files");
  return (
    <section
      className={`drop-zone ${over ? "over" : ""}`}
      aria-label="Folder"
      onDragOver={(event) => {
        if (!hasFiles(event)) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        if (!hasFiles(event)) return;
        event.preventDefault();
        setOver(false);
        onDrop([...event.dataTransfer.files]);
      }}
    >
      {children}
    </section>
  );
}

interface UploadState {
  name: string;
  size: number;
  sent: number;
  error?: unknown;
  isDone?: boolean;
}

/** Uploads files one after another, and shows how far they are. */
function useUploads(sandbox: Sandbox, folder: string, onDone: () => void) {
  const { workspace } = useWorkspace();
  const [uploads, setUploads] = useState<UploadState[]>([]);
  const update = (name: string, change: Partial<UploadState>) =>
    setUploads((old) => old.map((each) => (each.name === name ? { ...each, ...change } : each)));
  async function start(files: File[]) {
    setUploads(files.map(({ name, size }) => ({ name, size, sent: 0 })));
    for (const file of files) {
      const o = { workspaceId: workspace.id, onProgress: (sent: number) => update(file.name, { sent }) };
      try {
        await uploadFile(sandbox.id, join(folder, file.name), file, o);
        update(file.name, { isDone: true, sent: file.size });
      } catch (error) {
        update(file.name, { error });
      }
    }
    onDone();
    setUploads((old) => old.filter(({ error }) => error !== undefined));
  }
  const view = uploads.length > 0 && (
    <ul className="uploads">
      {uploads.map(({ name, size, sent, error, isDone }) => (
        <li key={name}>
          <span>
            {name} <span className="muted num">{isDone ? "done" : `${bytes(sent)} of ${bytes(size)}`}</span>
          </span>
          {error === undefined ? (
            <progress value={sent} max={Math.max(size, 1)} aria-label={`Upload of ${name}`} />
          ) : (
            <Problem error={error} />
          )}
        </li>
      ))}
    </ul>
  );
  return { start, view };
}
