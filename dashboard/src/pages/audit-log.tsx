import type { AuditEntry } from "@sandgate/client";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useTitle } from "../title.ts";
import { AuditFilters, AuditRow, auditColumns, toAuditQuery } from "../ui/audit.tsx";
import { Empty, PageHeader } from "../ui/basics.tsx";
import { Rows, usePage } from "../ui/list.tsx";
import { isAdmin, useWorkspace } from "../workspace.ts";

/** Who did what in the workspace. */
export function AuditLog() {
  useTitle("Audit log");
  const { workspace, sandgate } = useWorkspace();
  const search = useSearch({ from: "/shell/audit-log" });
  const navigate = useNavigate({ from: "/audit-log" });
  const query = toAuditQuery(search);
  const mayRead = isAdmin(workspace);
  const page = usePage<AuditEntry>({
    key: [workspace.id, "audit-log", query],
    list: () => sandgate.auditLog.list({ ...query, limit: 50 }),
    cursor: search.cursor,
  });
  const members = useQuery({
    queryKey: [workspace.id, "members", "all"],
    queryFn: async ({ signal }) => sandgate.members.list({ limit: 500, signal }),
  });
  if (!mayRead) {
    return (
      <>
        <PageHeader title="Audit log" />
        <Empty title="Admins read the audit log">
          <p>
            Your role in {workspace.name} is {workspace.role}.
          </p>
        </Empty>
      </>
    );
  }
  const nameOf = (id: string) => members.data?.find(({ userId }) => userId === id)?.username;
  return (
    <>
      <PageHeader title="Audit log" note={`Of ${workspace.name}, newest first`} />
      <AuditFilters
        search={search}
        actors={members.data?.map(({ userId, username }) => [userId, username] as const) ?? []}
        onChange={(change) => navigate({ search: (old) => ({ ...old, ...change, cursor: undefined }), replace: true })}
      />
      <Rows
        page={page}
        cursor={search.cursor}
        onTurn={(next) => navigate({ search: (old) => ({ ...old, cursor: next }) })}
        caption={`Audit log of ${workspace.name}`}
        columns={auditColumns}
        empty={<Empty title="No entry fits" />}
      >
        {(entry) => <AuditRow key={entry.id} entry={entry} nameOf={nameOf} />}
      </Rows>
    </>
  );
}
