import type { Registry } from "@sandgate/client";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { Pencil, Plus, Trash2 } from "lucide-react";
import { readForEdit } from "../api.ts";
import { curlLine } from "../curl.ts";
import { useTitle } from "../title.ts";
import { Button, Empty, IconButton, PageHeader } from "../ui/basics.tsx";
import { Confirm, EditDialog } from "../ui/dialog.tsx";
import { changedFields, Form, type FormFields, TextField } from "../ui/form.tsx";
import { Rows, usePage } from "../ui/list.tsx";
import { Time } from "../ui/time.tsx";
import { isAdmin, useWorkspace } from "../workspace.ts";

/** The credentials with which images of private registries are pulled. */
export function Registries() {
  useTitle("Registries");
  const { workspace, sandgate } = useWorkspace();
  const { cursor, edit } = useSearch({ from: "/shell/registries" });
  const navigate = useNavigate({ from: "/registries" });
  const queries = useQueryClient();
  const key = [workspace.id, "registries"];
  const page = usePage({ key, list: () => sandgate.registries.list({ limit: 50 }), cursor });
  const read = () => queries.invalidateQueries({ queryKey: key });
  const show = (id: string | undefined) => navigate({ search: (old) => ({ ...old, edit: id }) });
  const mayChange = isAdmin(workspace);
  return (
    <>
      <PageHeader
        title="Registries"
        note={mayChange ? undefined : "Only admins of the workspace can change registries."}
      >
        <Button kind="primary" icon={<Plus aria-hidden />} disabled={!mayChange} onClick={() => show("new")}>
          New registry
        </Button>
      </PageHeader>
      <Rows
        page={page}
        cursor={cursor}
        onTurn={(next) => navigate({ search: (old) => ({ ...old, cursor: next }) })}
        caption={`Registries of ${workspace.name}`}
        columns={["Name", "Address", "Username", "Updated", "Actions"]}
        empty={
          <Empty
            title="No registries yet"
            cli="npx sandgate registries add ghcr ghcr.io --username ada"
            curl={curlLine("POST", "/registries", {
              name: "ghcr",
              url: "ghcr.io",
              username: "ada",
              password: "a token of the registry",
            })}
          >
            <p>
              Private images need the credential of their registry. It is tried once, stored encrypted, and never shown.
            </p>
          </Empty>
        }
      >
        {(registry) => (
          <Row
            key={registry.id}
            registry={registry}
            mayChange={mayChange}
            onChange={read}
            onEdit={() => show(registry.id)}
          />
        )}
      </Rows>
      {edit !== undefined && <RegistryDialog id={edit} onClose={() => show(undefined)} onSaved={read} />}
    </>
  );
}

function Row(o: { registry: Registry; mayChange: boolean; onChange(): Promise<unknown>; onEdit(): void }) {
  const { id, name, url, username, updatedAt } = o.registry;
  const { sandgate } = useWorkspace();
  return (
    <tr>
      <td className="first">
        <strong>{name}</strong>
      </td>
      <td className="mono">{url}</td>
      <td data-label="Username">{username}</td>
      <td className="time" data-label="Updated">
        <Time at={updatedAt} />
      </td>
      <td className="actions-cell">
        {o.mayChange && (
          <>
            <IconButton label={`Edit ${name}`} onClick={o.onEdit}>
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
                await sandgate.registries.delete(id);
                await o.onChange();
              }}
            >
              <p>Refused while an image uses it.</p>
            </Confirm>
          </>
        )}
      </td>
    </tr>
  );
}

function RegistryDialog({ id, onClose, onSaved }: { id: string; onClose(): void; onSaved(): Promise<unknown> }) {
  const { workspace, sandgate } = useWorkspace();
  const isNew = id === "new";
  const { data: old, error } = useQuery({
    queryKey: [workspace.id, "registry", id],
    queryFn: ({ signal }) => sandgate.registries.get(id, { signal }),
    enabled: !isNew,
    ...readForEdit,
  });
  async function send(fields: FormFields) {
    const given = {
      name: fields.text("name") ?? "",
      url: fields.text("url") ?? "",
      username: fields.text("username") ?? "",
    };
    const password = fields.exact("password");
    if (old) await sandgate.registries.update(id, { ...changedFields(given, old), ...(password && { password }) });
    else await sandgate.registries.create({ ...given, password });
    await onSaved();
    onClose();
  }
  return (
    <EditDialog
      title={isNew ? "New registry" : `Edit ${old?.name ?? "registry"}`}
      isReady={isNew || old !== undefined}
      error={error}
      onClose={onClose}
    >
      <Form send={send} onCancel={onClose}>
        <TextField label="Name" name="name" defaultValue={old?.name} />
        <TextField label="Address" name="url" defaultValue={old?.url} placeholder="ghcr.io" hint="host or host:port" />
        <TextField label="Username" name="username" defaultValue={old?.username} autoComplete="off" />
        <TextField
          label="Password"
          name="password"
          type="password"
          autoComplete="new-password"
          optional={!isNew}
          hint={isNew ? "Or a token. It is tried at the registry." : "Needed again when address or username change."}
        />
      </Form>
    </EditDialog>
  );
}
