import type { ApiToken, CreatedApiToken, Permission, Role } from "@sandgate/client";
import { useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { Plus } from "lucide-react";
import { useState } from "react";
import { api, apiUrl } from "../api.ts";
import { curlLine } from "../curl.ts";
import { useTitle } from "../title.ts";
import { Button, CodeLine, Empty, PageHeader, Tag } from "../ui/basics.tsx";
import { Confirm, FormDialog } from "../ui/dialog.tsx";
import { CheckField, Form, type FormFields, SelectField, TextField } from "../ui/form.tsx";
import { Rows, usePage } from "../ui/list.tsx";
import { Time } from "../ui/time.tsx";
import { useMaybeWorkspace } from "../workspace.ts";

const key = ["api-tokens"];
const dayMs = 24 * 3600 * 1000;
const permissions: readonly (readonly [Permission, string])[] = [
  ["read", "read: records, logs, the audit log"],
  ["provision", "provision: make, extend and stop sandboxes"],
  ["use", "use: commands, files and ports in them"],
  ["manage", "manage: everything else"],
];
const lifetimes = [
  ["30", "30 days"],
  ["7", "7 days"],
  ["90", "90 days"],
  ["365", "A year"],
  ["", "Never"],
] as const;

/** The user's tokens for programs. */
export function ApiTokens() {
  useTitle("API tokens");
  const { cursor } = useSearch({ from: "/shell/api-tokens" });
  const navigate = useNavigate({ from: "/api-tokens" });
  const queries = useQueryClient();
  const [making, setMaking] = useState(false);
  const [made, setMade] = useState<CreatedApiToken>();
  const page = usePage({ key, list: () => api.apiTokens.list({ limit: 50 }), cursor });
  const read = () => queries.invalidateQueries({ queryKey: key });
  return (
    <>
      <PageHeader title="API tokens" note="Yours, for programs and the command line. A mail tells you of each new one.">
        <Button kind="primary" icon={<Plus aria-hidden />} onClick={() => setMaking(true)}>
          New token
        </Button>
      </PageHeader>
      {made && <NewToken token={made} onClose={() => setMade(undefined)} />}
      <Rows
        page={page}
        cursor={cursor}
        onTurn={(next) => navigate({ search: (old) => ({ ...old, cursor: next }) })}
        caption="Your API tokens"
        columns={["Description", "Token", "May", "Workspace", "Expires", "Last used", "Actions"]}
        empty={
          <Empty
            title="No tokens yet"
            curl={curlLine("GET", "/sandboxes")}
            cli='npx sandgate tokens new "CI of the shop" --days 30'
          >
            <p>With a token, programs do what you may do here, or less. Make one, and set it as SANDGATE_TOKEN.</p>
          </Empty>
        }
      >
        {(token) => <Row key={token.id} token={token} onChange={read} />}
      </Rows>
      <FormDialog title="New token" open={making} onClose={() => setMaking(false)}>
        <TokenForm
          onCancel={() => setMaking(false)}
          onMade={async (token) => {
            setMade(token);
            setMaking(false);
            await read();
          }}
        />
      </FormDialog>
    </>
  );
}

function TokenForm({ onCancel, onMade }: { onCancel(): void; onMade(token: CreatedApiToken): Promise<void> }) {
  const { workspaces } = useMaybeWorkspace();
  const [limited, setLimited] = useState(false);
  async function send(fields: FormFields) {
    const days = fields.number("days");
    const role = fields.text("role");
    const workspaceId = fields.text("workspace_id");
    const token = await api.apiTokens.create({
      description: fields.text("description") ?? "",
      ...(days !== undefined && { expiresAt: new Date(Date.now() + days * dayMs).toISOString() }),
      ...(role && { role: role as Role }),
      ...(workspaceId && { workspaceId }),
      ...(limited && { permissions: fields.all("permissions") as Permission[] }),
    });
    await onMade(token);
  }
  return (
    <Form send={send} action="Create" onCancel={onCancel}>
      <TextField label="Description" name="description" placeholder="CI of the shop" />
      <fieldset>
        <legend className="legend">Permissions</legend>
        <div className="checks">
          <label className="check">
            <input type="radio" name="limited" checked={!limited} onChange={() => setLimited(false)} />
            <span>All that its role allows</span>
          </label>
          <label className="check">
            <input type="radio" name="limited" checked={limited} onChange={() => setLimited(true)} />
            <span>Only these</span>
          </label>
        </div>
        {limited && (
          <div className="stack checks">
            {permissions.map(([value, text]) => (
              <CheckField key={value} name="permissions" value={value} label={text} />
            ))}
          </div>
        )}
      </fieldset>
      <div className="row">
        <SelectField label="Expires" name="days" field="expires_at" options={lifetimes} />
        <SelectField
          label="Highest role"
          name="role"
          options={[
            ["", "Mine"],
            ["member", "Member"],
            ["admin", "Admin"],
            ["owner", "Owner"],
          ]}
        />
      </div>
      <SelectField
        label="Workspace"
        name="workspace_id"
        options={[["", "All of mine"], ...workspaces.map(({ id, name }) => [id, name] as const)]}
      />
    </Form>
  );
}

/** The token, this once. */
function NewToken({ token, onClose }: { token: CreatedApiToken; onClose(): void }) {
  return (
    <section className="notice good secret" aria-label="New token">
      <h2>{token.description}</h2>
      <p>Copy the token now: it is not shown again.</p>
      <CodeLine code={token.token} />
      <p className="muted">In a shell:</p>
      <CodeLine code={`export SANDGATE_URL=${apiUrl} SANDGATE_TOKEN=${token.token}`} />
      <p>
        <Button onClick={onClose}>I have it</Button>
      </p>
    </section>
  );
}

function Row({ token, onChange }: { token: ApiToken; onChange(): Promise<unknown> }) {
  const { workspaces } = useMaybeWorkspace();
  const { id, description, tokenHint, permissions: may, role, workspaceId, expiresAt, lastUsedAt } = token;
  const isOver = expiresAt !== null && Date.parse(expiresAt) < Date.now();
  return (
    <tr>
      <td className="first">
        <strong>{description}</strong>
      </td>
      <td className="mono">{tokenHint}</td>
      <td>
        <span className="tags">
          {may?.map((each) => <Tag key={each}>{each}</Tag>) ?? <span>everything</span>}
          {role && <Tag>as {role}</Tag>}
        </span>
      </td>
      <td data-label="Workspace">
        {workspaceId === null ? "all" : (workspaces.find((each) => each.id === workspaceId)?.name ?? workspaceId)}
      </td>
      <td className="time" data-label="Expires">
        {isOver ? "expired " : ""}
        <Time at={expiresAt} />
      </td>
      <td className="time" data-label="Last used">
        <Time at={lastUsedAt} />
      </td>
      <td className="actions-cell">
        <Confirm
          trigger={
            <Button kind="danger" className="small">
              Revoke
            </Button>
          }
          title={`Revoke ${description}?`}
          action="Revoke token"
          run={async () => {
            await api.apiTokens.delete(id);
            await onChange();
          }}
        >
          <p>Programs that use it are refused within a second.</p>
        </Confirm>
      </td>
    </tr>
  );
}
