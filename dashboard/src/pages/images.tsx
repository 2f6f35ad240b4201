import type { Image } from "@sandgate/client";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { Pencil, Plus, Trash2 } from "lucide-react";
import { useAccount } from "../account.ts";
import { readForEdit } from "../api.ts";
import { curlLine } from "../curl.ts";
import { useTitle } from "../title.ts";
import { ActionButton } from "../ui/action.tsx";
import { Button, Empty, IconButton, PageHeader, Tag } from "../ui/basics.tsx";
import { Confirm, EditDialog } from "../ui/dialog.tsx";
import { CheckField, changedFields, Form, type FormFields, SelectField, TextField } from "../ui/form.tsx";
import { Rows, usePage } from "../ui/list.tsx";
import { spell, Time } from "../ui/time.tsx";
import { isAdmin, useWorkspace } from "../workspace.ts";

/** The images that sandboxes of the workspace are made from. */
export function Images() {
  useTitle("Images");
  const { workspace, sandgate } = useWorkspace();
  const { cursor, edit } = useSearch({ from: "/shell/images" });
  const navigate = useNavigate({ from: "/images" });
  const queries = useQueryClient();
  const key = [workspace.id, "images"];
  const page = usePage({ key, list: () => sandgate.images.list({ limit: 50 }), cursor });
  const read = () => queries.invalidateQueries({ queryKey: key });
  const show = (id: string | undefined) => navigate({ search: (old) => ({ ...old, edit: id }) });
  const mayChange = isAdmin(workspace);
  return (
    <>
      <PageHeader title="Images" note={mayChange ? undefined : "Only admins of the workspace can change images."}>
        <Button kind="primary" icon={<Plus aria-hidden />} disabled={!mayChange} onClick={() => show("new")}>
          New image
        </Button>
      </PageHeader>
      <Rows
        page={page}
        cursor={cursor}
        onTurn={(next) => navigate({ search: (old) => ({ ...old, cursor: next }) })}
        caption={`Images of ${workspace.name}`}
        columns={["Name", "Enabled", "Image", "Memory", "Lives for", "Updated", "Actions"]}
        empty={
          <Empty
            title="No images yet"
            cli="npx sandgate images add python docker.io/library/python:3.13-slim"
            curl={curlLine("POST", "/sandbox-images", { name: "python", image: "docker.io/library/python:3.13-slim" })}
          >
            <p>An image is what a sandbox runs: a reference in a registry, with a limit of memory and time.</p>
          </Empty>
        }
      >
        {(image) => (
          <ImageRow key={image.id} image={image} mayChange={mayChange} onChange={read} onEdit={() => show(image.id)} />
        )}
      </Rows>
      {edit !== undefined && <ImageDialog id={edit} onClose={() => show(undefined)} onSaved={read} />}
    </>
  );
}

function ImageRow(o: { image: Image; mayChange: boolean; onChange(): Promise<unknown>; onEdit(): void }) {
  const { image, onChange } = o;
  const { sandgate } = useWorkspace();
  const account = useAccount();
  const mayChange = image.isDefault ? false : o.mayChange;
  return (
    <tr>
      <td className="first">
        {image.enabled ? (
          <Link to="/sandboxes/new" search={{ image: image.id }} className="primary-link">
            {image.name}
          </Link>
        ) : (
          <strong>{image.name}</strong>
        )}{" "}
        {image.isDefault && <Tag>default</Tag>}
        {image.description && <span className="sub">{image.description}</span>}
      </td>
      <td className="second">{image.enabled ? "enabled" : <span className="muted">disabled</span>}</td>
      <td className="mono image">
        {/[:@][^/]*$/.test(image.image) ? image.image : `${image.image}:${image.tag}`}
        {image.registryName && <span className="sub">by {image.registryName}</span>}
      </td>
      <td className="num" data-label="Memory">
        {image.memoryMb} MiB
      </td>
      <td className="num" data-label="Lives for">
        {image.ttlSeconds === null ? "no limit" : spell(image.ttlSeconds)}
      </td>
      <td className="time" data-label="Updated">
        <Time at={image.updatedAt} />
      </td>
      <td className="actions-cell">
        {mayChange && (
          <>
            <ActionButton
              className="small"
              run={async () => {
                await sandgate.images.update(image.id, { enabled: !image.enabled });
                await onChange();
              }}
            >
              {image.enabled ? "Disable" : "Enable"}
            </ActionButton>{" "}
            <IconButton label={`Edit ${image.name}`} onClick={o.onEdit}>
              <Pencil aria-hidden />
            </IconButton>
            <Confirm
              trigger={
                <button type="button" className="icon-button" aria-label={`Delete ${image.name}`}>
                  <Trash2 aria-hidden />
                </button>
              }
              title={`Delete ${image.name}?`}
              action="Delete"
              run={async () => {
                await sandgate.images.delete(image.id);
                await onChange();
              }}
            >
              <p>Sandboxes that run go on; new ones can't be made from it.</p>
            </Confirm>
          </>
        )}
        {image.isDefault && (
          <span className="muted">{account.isOperator ? "the platform's own" : "of the platform"}</span>
        )}
      </td>
    </tr>
  );
}

function ImageDialog({ id, onClose, onSaved }: { id: string; onClose(): void; onSaved(): Promise<unknown> }) {
  const { workspace, sandgate } = useWorkspace();
  const account = useAccount();
  const isNew = id === "new";
  const image = useQuery({
    queryKey: [workspace.id, "image", id],
    queryFn: ({ signal }) => sandgate.images.get(id, { signal }),
    enabled: !isNew,
    ...readForEdit,
  });
  const registries = useQuery({
    queryKey: [workspace.id, "registries", "all"],
    queryFn: async ({ signal }) => sandgate.registries.list({ limit: 500, signal }),
  });
  const old = image.data;
  async function send(fields: FormFields) {
    const given = {
      name: fields.text("name") ?? "",
      image: fields.text("image") ?? "",
      description: fields.text("description") ?? null,
      ttlSeconds: fields.number("ttl_seconds") ?? null,
      readinessPort: fields.number("readiness_port") ?? null,
      registryId: fields.text("registry_id") ?? null,
      enabled: fields.flag("enabled"),
      ...(fields.number("memory_mb") !== undefined && { memoryMb: fields.number("memory_mb") as number }),
    };
    if (old) await sandgate.images.update(id, changedFields(given, old));
    else await sandgate.images.create({ ...given, ...(fields.flag("is_default") && { isDefault: true }) });
    await onSaved();
    onClose();
  }
  const isReady = (isNew || old !== undefined) && registries.data !== undefined;
  return (
    <EditDialog
      title={isNew ? "New image" : `Edit ${old?.name ?? "image"}`}
      isReady={isReady}
      error={image.error ?? registries.error}
      onClose={onClose}
      wide
    >
      <Form send={send} onCancel={onClose}>
        <div className="row">
          <TextField label="Name" name="name" defaultValue={old?.name} maxLength={100} />
          <TextField
            label="Image"
            name="image"
            defaultValue={old?.image}
            placeholder="docker.io/library/python:3.13-slim"
            hint="A reference in a registry, by tag or digest."
          />
        </div>
        <TextField
          label="Description"
          name="description"
          optional
          defaultValue={old?.description ?? ""}
          maxLength={2000}
        />
        <div className="row">
          <TextField
            label="Memory"
            name="memory_mb"
            type="number"
            unit="MiB"
            optional
            min={256}
            defaultValue={old?.memoryMb ?? 1024}
          />
          <TextField
            label="Time to live"
            name="ttl_seconds"
            type="number"
            unit="seconds"
            optional
            min={60}
            defaultValue={old?.ttlSeconds ?? ""}
          />
          <TextField
            label="Readiness port"
            name="readiness_port"
            type="number"
            optional
            min={1}
            max={65_535}
            defaultValue={old?.readinessPort ?? ""}
            hint="A sandbox is ready when GET / answers there."
          />
        </div>
        <SelectField
          label="Registry"
          name="registry_id"
          optional
          hint="Whose credential to pull with."
          defaultValue={old?.registryId ?? ""}
          options={[
            ["", "None"],
            ...(registries.data ?? []).map((each) => [each.id, `${each.name} (${each.url})`] as const),
          ]}
        />
        <CheckField
          label="Enabled: sandboxes can be made from it"
          name="enabled"
          defaultChecked={old?.enabled ?? true}
        />
        {isNew && account.isOperator && (
          <CheckField label="A default image of all workspaces, which can't be changed" name="is_default" />
        )}
      </Form>
    </EditDialog>
  );
}
