import { Tabs } from "@base-ui/react/tabs";
import type { SandboxRecord, User } from "@sandgate/client";
import { useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import type { ReactElement } from "react";
import { useAccount } from "../account.ts";
import { api } from "../api.ts";
import { liveMs } from "../sandbox-queries.ts";
import { useTitle } from "../title.ts";
import { AuditFilters, AuditRow, auditColumns, toAuditQuery } from "../ui/audit.tsx";
import { Button, Empty, Field, PageHeader, State, Tag } from "../ui/basics.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Rows, usePage } from "../ui/list.tsx";
import { Distance, Time } from "../ui/time.tsx";

const views = [
  ["users", "Users"],
  ["sandboxes", "Sandboxes"],
  ["audit", "Audit log"],
] as const;

/** What operators of the installation may do. */
export function Operators() {
  useTitle("Operators");
  const { view = "users" } = useSearch({ from: "/shell/operators" });
  return (
    <>
      <PageHeader title="Operators" note="All users, workspaces and sandboxes of this installation" />
      <Tabs.Root value={view}>
        <Tabs.List className="tabs" aria-label="Installation">
          {views.map(([value, text]) => (
            <Tabs.Tab
              key={value}
              value={value}
              nativeButton={false}
              render={<Link to="/operators" search={{ view: value }} />}
            >
              {text}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value={view} className="tab-panel">
          {view === "users" && <Users />}
          {view === "sandboxes" && <AllSandboxes />}
          {view === "audit" && <WholeAuditLog />}
        </Tabs.Panel>
      </Tabs.Root>
    </>
  );
}

function useView() {
  const search = useSearch({ from: "/shell/operators" });
  const navigate = useNavigate({ from: "/operators" });
  const turn = (cursor: string | undefined) => navigate({ search: (old) => ({ ...old, cursor }) });
  return { search, navigate, turn };
}

function Users() {
  const { search, navigate, turn } = useView();
  const queries = useQueryClient();
  const key = ["admin", "users", search.username];
  const page = usePage<User>({
    key,
    list: () => api.admin.listUsers({ limit: 50, ...(search.username && { username: search.username }) }),
    cursor: search.cursor,
  });
  return (
    <>
      <search className="filters">
        <Field label="Email">
          {(control) => (
            <input
              {...control}
              type="search"
              defaultValue={search.username ?? ""}
              placeholder="The whole address"
              onChange={(event) =>
                navigate({
                  search: (old) => ({ ...old, username: event.target.value.trim() || undefined, cursor: undefined }),
                  replace: true,
                })
              }
            />
          )}
        </Field>
      </search>
      <Rows
        page={page}
        cursor={search.cursor}
        onTurn={turn}
        caption="Users"
        columns={["User", "State", "Created", "Actions"]}
        empty={<Empty title="No such user" />}
      >
        {(user) => <UserRow key={user.id} user={user} onChange={() => queries.invalidateQueries({ queryKey: key })} />}
      </Rows>
    </>
  );
}

function UserRow({ user, onChange }: { user: User; onChange(): Promise<unknown> }) {
  const account = useAccount();
  const { id, username, enabled, verified, operator, createdAt } = user;
  const confirm = (text: string, title: string, run: () => Promise<unknown>, what: string): ReactElement => (
    <Confirm
      trigger={
        <Button className="small" kind={text === "Delete" || text === "Disable" ? "danger" : "plain"}>
          {text}
        </Button>
      }
      title={title}
      action={text}
      run={async () => {
        await run();
        await onChange();
      }}
    >
      <p>{what}</p>
    </Confirm>
  );
  return (
    <tr>
      <td className="first">
        <strong>{username}</strong> {operator && <Tag>operator</Tag>}
        <span className="sub mono">{id}</span>
      </td>
      <td className="second">{!enabled ? "disabled" : verified ? "active" : "not verified"}</td>
      <td className="time" data-label="Created">
        <Time at={createdAt} />
      </td>
      <td className="actions-cell wrap">
        {confirm(
          "End sessions",
          `End all sessions of ${username}?`,
          () => api.admin.endUserSessions(id),
          "They have to sign in again.",
        )}{" "}
        {confirm(
          "Revoke tokens",
          `Revoke all API tokens of ${username}?`,
          () => api.admin.revokeUserApiTokens(id),
          "Programs that use them are refused within a second.",
        )}{" "}
        {confirm(
          "Remove second factor",
          `Remove the second factor of ${username}?`,
          () => api.admin.deleteUserSecondFactor(id),
          "The password alone is enough then.",
        )}{" "}
        {id !== account.id && (
          <>
            {enabled
              ? confirm(
                  "Disable",
                  `Disable ${username}?`,
                  () => api.admin.updateUser(id, { enabled: false }),
                  "They can't sign in, and their tokens are refused.",
                )
              : confirm(
                  "Enable",
                  `Enable ${username}?`,
                  () => api.admin.updateUser(id, { enabled: true }),
                  "They can sign in again.",
                )}{" "}
            {confirm(
              "Delete",
              `Delete ${username}?`,
              () => api.admin.deleteUser(id),
              "With the workspaces of which they are the only member. Nothing brings them back.",
            )}
          </>
        )}
      </td>
    </tr>
  );
}

function AllSandboxes() {
  const { search, turn } = useView();
  const queries = useQueryClient();
  const key = ["admin", "sandboxes"];
  const page = usePage<SandboxRecord>({
    key,
    list: () => api.admin.listSandboxes({ limit: 50 }),
    cursor: search.cursor,
    refetchInterval: liveMs,
  });
  return (
    <Rows
      page={page}
      cursor={search.cursor}
      onTurn={turn}
      caption="Sandboxes of all workspaces"
      columns={["Name", "State", "Workspace", "Made by", "Image", "Created", "Expires", "Actions"]}
      empty={<Empty title="No sandboxes yet" />}
    >
      {(sandbox) => (
        <tr key={sandbox.id}>
          <td className="first">
            <strong>{sandbox.name}</strong>
          </td>
          <td className="second">
            <State state={sandbox.state} />
          </td>
          <td className="mono request" data-label="Workspace">
            {sandbox.workspaceId}
          </td>
          <td className="mono request" data-label="Made by">
            {sandbox.createdBy}
          </td>
          <td className="mono image">{sandbox.image}</td>
          <td className="time" data-label="Created">
            <Time at={sandbox.createdAt} />
          </td>
          <td className="time" data-label={sandbox.stoppedAt ? "Ended" : "Expires"}>
            <Distance at={sandbox.stoppedAt ?? sandbox.expiresAt} />
          </td>
          <td className="actions-cell">
            {(sandbox.state === "ready" || sandbox.state === "provisioning") && (
              <Confirm
                trigger={
                  <Button kind="danger" className="small">
                    Stop
                  </Button>
                }
                title={`Stop ${sandbox.name}?`}
                action="Stop sandbox"
                run={async () => {
                  await api.admin.stopSandbox(sandbox.id);
                  await queries.invalidateQueries({ queryKey: key });
                }}
              >
                <p>It belongs to somebody else's workspace. The audit log shows that an operator stopped it.</p>
              </Confirm>
            )}
          </td>
        </tr>
      )}
    </Rows>
  );
}

function WholeAuditLog() {
  const { search, navigate, turn } = useView();
  const query = toAuditQuery(search);
  const page = usePage({
    key: ["admin", "audit-log", query],
    list: () => api.admin.listAuditLog({ ...query, limit: 50 }),
    cursor: search.cursor,
  });
  return (
    <>
      <AuditFilters
        search={search}
        actors={[]}
        onChange={(change) => navigate({ search: (old) => ({ ...old, ...change, cursor: undefined }), replace: true })}
      />
      <Rows
        page={page}
        cursor={search.cursor}
        onTurn={turn}
        caption="Audit log of the installation"
        columns={auditColumns}
        empty={<Empty title="No entry fits" />}
      >
        {(entry) => <AuditRow key={entry.id} entry={entry} nameOf={() => undefined} />}
      </Rows>
    </>
  );
}
