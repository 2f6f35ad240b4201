import type { Member, Role } from "@sandgate/client";
import { useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { Plus, UserPlus } from "lucide-react";
import { useState } from "react";
import { useAccount } from "../account.ts";
import { api } from "../api.ts";
import { curlLine } from "../curl.ts";
import { useTitle } from "../title.ts";
import { Button, Empty, PageHeader } from "../ui/basics.tsx";
import { Confirm, FormDialog } from "../ui/dialog.tsx";
import { Form, SelectField, TextField } from "../ui/form.tsx";
import { Rows, usePage } from "../ui/list.tsx";
import { Problem } from "../ui/problem.tsx";
import { Time } from "../ui/time.tsx";
import { isAdmin, rememberWorkspace, useWorkspace, workspacesQuery } from "../workspace.ts";

const roles = [
  ["member", "Member: makes and uses sandboxes"],
  ["admin", "Admin: also images, registries, members"],
  ["owner", "Owner: also deletes the workspace"],
] as const;

const roleNote = {
  member: "; admins add and remove members",
  admin: "; only owners make and remove owners",
  owner: "",
};

/** The roles that somebody with a role may give. */
const givenBy = (role: Role) => roles.filter(([value]) => role === "owner" || value !== "owner");

/** Who is in the workspace, and the workspace itself. */
export function Members() {
  useTitle("Members");
  const { workspace, sandgate } = useWorkspace();
  const { cursor } = useSearch({ from: "/shell/members" });
  const navigate = useNavigate({ from: "/members" });
  const queries = useQueryClient();
  const [adding, setAdding] = useState(false);
  const key = [workspace.id, "members"];
  const page = usePage({ key, list: () => sandgate.members.list({ limit: 50 }), cursor });
  const read = () => queries.invalidateQueries({ queryKey: key });
  const mayChange = isAdmin(workspace);
  return (
    <>
      <PageHeader
        title="Members"
        note={`${workspace.name}, where you are ${workspace.role}${roleNote[workspace.role]}`}
      >
        <Button kind="primary" icon={<UserPlus aria-hidden />} disabled={!mayChange} onClick={() => setAdding(true)}>
          Add member
        </Button>
      </PageHeader>
      <Rows
        page={page}
        cursor={cursor}
        onTurn={(next) => navigate({ search: (old) => ({ ...old, cursor: next }) })}
        caption={`Members of ${workspace.name}`}
        columns={["User", "Role", "Joined", "Actions"]}
        empty={
          <Empty
            title="No members on this page"
            curl={curlLine("POST", `/workspaces/${workspace.id}/members`, {
              username: "ada@example.com",
              role: "member",
            })}
          />
        }
      >
        {(member) => <Row key={member.userId} member={member} onChange={read} />}
      </Rows>
      <WorkspaceCard />
      <FormDialog title="Add member" open={adding} onClose={() => setAdding(false)}>
        <Form
          action="Add"
          onCancel={() => setAdding(false)}
          send={async (fields) => {
            await sandgate.members.create({
              username: fields.text("username") ?? "",
              role: fields.exact("role") as Role,
            });
            await read();
            setAdding(false);
          }}
        >
          <TextField label="Email" name="username" inputMode="email" hint="Of somebody who has an account." />
          <SelectField label="Role" name="role" options={givenBy(workspace.role)} />
        </Form>
      </FormDialog>
    </>
  );
}

/** What follows a change of the user's workspaces, or of the user's role in one: they are read again, or one is shown. */
function useWorkspaceChange() {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const read = () => queries.invalidateQueries({ queryKey: workspacesQuery.queryKey });
  async function show(id: string | undefined) {
    if (id) rememberWorkspace(id);
    await navigate({ to: "/members", search: { workspace: id } });
  }
  return { read, show };
}

function Row({ member, onChange }: { member: Member; onChange(): Promise<unknown> }) {
  const { workspace, sandgate } = useWorkspace();
  const workspaces = useWorkspaceChange();
  const account = useAccount();
  const [error, setError] = useState<unknown>();
  const { userId, username, role, joinedAt } = member;
  const isSelf = userId === account.id;
  const mayChange = isAdmin(workspace) && (role !== "owner" || workspace.role === "owner");
  async function change(to: string) {
    setError(undefined);
    await sandgate.members.update(userId, { role: to as Role }).catch(setError);
    await Promise.all([onChange(), isSelf && workspaces.read()]);
  }
  return (
    <tr>
      <td className="first">
        <strong>{username}</strong> {isSelf && <span className="muted">(you)</span>}
        {error !== undefined && <Problem error={error} />}
      </td>
      <td>
        {mayChange ? (
          <select aria-label={`Role of ${username}`} value={role} onChange={(event) => change(event.target.value)}>
            {givenBy(workspace.role).map(([value]) => (
              <option key={value} value={value}>
                {value}
              </option>
            ))}
          </select>
        ) : (
          role
        )}
      </td>
      <td className="time" data-label="Joined">
        <Time at={joinedAt} />
      </td>
      <td className="actions-cell">
        {(mayChange || isSelf) && (
          <Confirm
            trigger={
              <Button kind="danger" className="small">
                {isSelf ? "Leave" : "Remove"}
              </Button>
            }
            title={isSelf ? "Leave the workspace?" : `Remove ${username}?`}
            action={isSelf ? "Leave workspace" : "Remove member"}
            run={async () => {
              await sandgate.members.delete(userId);
              if (!isSelf) return onChange();
              await workspaces.read();
              await workspaces.show(undefined);
            }}
          >
            <p>Access ends within a second, and so does what is open.</p>
          </Confirm>
        )}
      </td>
    </tr>
  );
}

function WorkspaceCard() {
  const { workspace, sandgate } = useWorkspace();
  const { read, show } = useWorkspaceChange();
  const [making, setMaking] = useState(false);
  return (
    <section className="card narrow">
      <header>
        <h2>Workspace</h2>
        <Button className="small" icon={<Plus aria-hidden />} onClick={() => setMaking(true)}>
          New workspace
        </Button>
      </header>
      {isAdmin(workspace) ? (
        <Form
          key={workspace.id}
          send={async (fields) => {
            await sandgate.workspaces.update(workspace.id, { name: fields.text("name") ?? "" });
            await read();
          }}
        >
          <TextField label="Name" name="name" defaultValue={workspace.name} maxLength={100} />
        </Form>
      ) : (
        <p className="muted">Admins change its name.</p>
      )}
      {workspace.role === "owner" && (
        <div className="form-end">
          <Confirm
            trigger={<Button kind="danger">Delete</Button>}
            title={`Delete ${workspace.name}?`}
            action="Delete workspace"
            run={async () => {
              await sandgate.workspaces.delete(workspace.id);
              await read();
              await show(undefined);
            }}
          >
            <p>
              Its sandboxes are stopped, and its images, registries, logs and members are gone. Nothing brings them
              back.
            </p>
          </Confirm>
        </div>
      )}
      <FormDialog title="New workspace" open={making} onClose={() => setMaking(false)}>
        <Form
          action="Create"
          onCancel={() => setMaking(false)}
          send={async (fields) => {
            const made = await api.workspaces.create({ name: fields.text("name") ?? "" });
            await read();
            setMaking(false);
            await show(made.id);
          }}
        >
          <TextField label="Name" name="name" maxLength={100} />
        </Form>
      </FormDialog>
    </section>
  );
}
