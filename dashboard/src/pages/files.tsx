import type { Entry } from "@sandgate/client";
import { useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { CornerLeftUp, Download, File, FilePen, Folder, FolderPlus, Link2, Pencil, Trash2, Upload } from "lucide-react";
import { type DragEvent, type ReactNode, useRef, useState } from "react";
import { curlLine, quote } from "../curl.ts";
import { useSandbox } from "../sandbox-queries.ts";
import { useAction } from "../ui/action.tsx";
import { Button, Empty, IconButton } from "../ui/basics.tsx";
import { Confirm, FormDialog } from "../ui/dialog.tsx";
import { Form, TextField } from "../ui/form.tsx";
import { Rows, usePage } from "../ui/list.tsx";
import { Problem } from "../ui/problem.tsx";
import { saveFile } from "../ui/save.ts";
import { bytes, Time } from "../ui/time.tsx";
import { type Content, uploadFiles } from "../upload.ts";
import { useWorkspace } from "../workspace.ts";
import { FileEditor, NoFiles } from "./file-editor.tsx";
import "../styles/files.css";

const pageSize = 200;

/** Joins a folder's path and a name in it. */
const join = (folder: string, name: string) => `${folder === "/" ? "" : folder}/${name}`;
const parentOf = (path: string) => path.slice(0, path.lastIndexOf("/")) || "/";

/** The files of a sandbox: a folder, or one file of it. */
export function Files() {
  const { sandbox, record } = useSandbox();
  const { path = "/", file } = useSearch({ from: "/shell/sandboxes/$sandboxId/files" });
  const isReady = record.state === "ready";
  if (file === undefined && !isReady) return <NoFiles />;
  return (
    <>
      <Breadcrumb path={file ?? path} isFile={file !== undefined} />
      {file === undefined ? (
        <FolderView key={path} path={path} />
      ) : (
        <FileEditor key={file} sandbox={sandbox} path={file} folder={parentOf(file)} isReady={isReady} />
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
  const { workspace } = useWorkspace();
  const { cursor } = useSearch({ from: "/shell/sandboxes/$sandboxId/files" });
  const navigate = useNavigate({ from: "/sandboxes/$sandboxId/files" });
  const queries = useQueryClient();
  const queryKey = [...key, "files", path];
  const page = usePage({ key: queryKey, list: () => sandbox.files.list(path, { limit: pageSize }), cursor });
  const read = () => queries.invalidateQueries({ queryKey });
  const upload = (contents: Content[]) =>
    uploadFiles(contents, {
      sandbox: record,
      workspaceId: workspace.id,
      toPath: (name) => join(path, name),
      afterwards: read,
    });
  const [making, setMaking] = useState(false);
  const [renaming, setRenaming] = useState<Entry>();
  const isTop = path === "/";
  return (
    <DropZone onDrop={upload}>
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
        <UploadButton onFiles={upload} />
        <Button icon={<FolderPlus aria-hidden />} onClick={() => setMaking(true)}>
          New folder
        </Button>
        <span className="muted">Or drop files here.</span>
      </div>
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
  const isReachable = entry.pathBase64 === undefined;
  return (
    <tr>
      <td className="first entry-name">
        <Icon aria-hidden />
        <EntryName entry={entry} />
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

function EntryName({ entry: { path, pathBase64, name, type } }: { entry: Entry }) {
  // Such a path can't be written in an address.
  if (pathBase64 !== undefined || type === "other") return name;
  if (type === "symlink") return <SymlinkButton path={path} name={name} />;
  return (
    <Link from="/sandboxes/$sandboxId/files" search={showEntry(path, type)} className="primary-link">
      {name}
    </Link>
  );
}

/** The address of an entry: of a folder, or else of a file in the folder that is shown. */
const showEntry =
  (path: string, type: Entry["type"]) =>
  <Old extends { path?: string | undefined }>(old: Old) =>
    type === "directory"
      ? { ...old, cursor: undefined, path, file: undefined }
      : { ...old, cursor: undefined, file: path };

/** Leads to what a link is for. Whether that is a folder or a file is asked when somebody wants to go there. */
function SymlinkButton({ path, name }: { path: string; name: string }) {
  const { sandbox } = useSandbox();
  const navigate = useNavigate({ from: "/sandboxes/$sandboxId/files" });
  const { busy, error, act } = useAction();
  const open = () =>
    act(async () => {
      const { type } = await sandbox.files.stat(path, { follow: true });
      await navigate({ search: showEntry(path, type) });
    });
  return (
    <>
      <button type="button" className="primary-link" disabled={busy} onClick={open}>
        {name}
      </button>
      {error !== undefined && <Problem error={error} />}
    </>
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
  const { busy, error, act } = useAction();
  // The browser keeps a large one on disk.
  const download = () => act(async () => saveFile(name, await new Response(await read()).blob()));
  return (
    <>
      <IconButton label={`Download ${name}`} disabled={busy} onClick={download}>
        <Download aria-hidden />
      </IconButton>
      {error !== undefined && <Problem error={error} />}
    </>
  );
}

function UploadButton({ onFiles }: { onFiles(contents: Content[]): void }) {
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
          onFiles([...(event.target.files ?? [])].map((file) => ({ name: file.name, file })));
          event.target.value = "";
        }}
      />
    </>
  );
}

/** The files and folders that were dropped. */
function readDrop({ items }: DataTransfer): Content[] {
  return [...items].flatMap((item) => {
    const file = item.getAsFile();
    if (!file) return [];
    return [{ name: file.name, file: item.webkitGetAsEntry()?.isDirectory ? undefined : file }];
  });
}

function DropZone({ onDrop, children }: { onDrop(contents: Content[]): void; children: ReactNode }) {
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
        onDrop(readDrop(event.dataTransfer));
      }}
    >
      {children}
    </section>
  );
}
