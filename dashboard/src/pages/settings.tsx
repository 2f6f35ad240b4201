import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useAccount } from "../account.ts";
import { api } from "../api.ts";
import { forgetSession } from "../session.ts";
import { useTitle } from "../title.ts";
import { ActionButton } from "../ui/action.tsx";
import { Button, Loading, PageHeader } from "../ui/basics.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { CheckField, Form, TextField } from "../ui/form.tsx";
import { Table } from "../ui/list.tsx";
import { Pager } from "../ui/pager.tsx";
import { Problem } from "../ui/problem.tsx";
import { Time } from "../ui/time.tsx";
import { SecondFactor } from "./second-factor.tsx";

/** The user's own account. */
export function Settings() {
  useTitle("Settings");
  const account = useAccount();
  return (
    <>
      <PageHeader title="Settings" note={account.username} />
      <div className="settings">
        <Password />
        <SecondFactor />
        <Sessions />
        <Identities />
        <AccountEnd />
      </div>
    </>
  );
}

function Password() {
  const [done, setDone] = useState(false);
  return (
    <section className="card">
      <h2>Password</h2>
      <Form
        key={String(done)}
        send={async (fields) => {
          await api.account.changePassword({
            currentPassword: fields.exact("current_password"),
            password: fields.exact("password"),
            revokeApiTokens: fields.flag("revoke"),
          });
          setDone(true);
        }}
      >
        <div className="row">
          <TextField
            label="Current password"
            name="current_password"
            type="password"
            autoComplete="current-password"
            maxLength={256}
          />
          <TextField
            label="New password"
            name="password"
            type="password"
            autoComplete="new-password"
            minLength={10}
            maxLength={256}
            hint="At least 10 characters."
          />
        </div>
        <CheckField label="Revoke my API tokens too" name="revoke" />
        <p className="hint">Your other sessions end.</p>
      </Form>
      {done && (
        <p role="status" className="notice good">
          The password was changed.
        </p>
      )}
    </section>
  );
}

function Sessions() {
  const queries = useQueryClient();
  const [cursor, setCursor] = useState<string>();
  const sessions = useQuery({
    queryKey: ["sessions", cursor],
    queryFn: ({ signal }) => api.sessions.list({ limit: 20 }).page(cursor, { signal }),
  });
  const read = () => queries.invalidateQueries({ queryKey: ["sessions"] });
  return (
    <section className="card">
      <header>
        <h2>Sessions</h2>
        <Confirm
          trigger={<Button className="small">End all others</Button>}
          title="End all other sessions?"
          action="End them"
          run={async () => {
            await api.sessions.deleteOthers();
            await read();
          }}
        >
          <p>Whoever uses them has to sign in again.</p>
        </Confirm>
      </header>
      {sessions.isPending && <Loading />}
      {sessions.isError && <Problem error={sessions.error} />}
      {sessions.data && (
        <Table caption="Your sessions" columns={["Client", "Address", "Begun", "Last seen", "Actions"]}>
          {sessions.data.items.map(({ id, userAgent, address, createdAt, lastSeenAt, current }) => (
            <tr key={id}>
              <td className="first">{describeClient(userAgent)}</td>
              <td className="mono">{address}</td>
              <td className="time" data-label="Begun">
                <Time at={createdAt} />
              </td>
              <td className="time" data-label="Last seen">
                <Time at={lastSeenAt} />
              </td>
              <td className="actions-cell">
                {current ? (
                  <span className="muted">this one</span>
                ) : (
                  <ActionButton
                    kind="danger"
                    className="small"
                    run={async () => {
                      await api.sessions.delete(id);
                      await read();
                    }}
                  >
                    End
                  </ActionButton>
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
      <Pager cursor={cursor} nextCursor={sessions.data?.nextCursor ?? null} onTurn={setCursor} />
    </section>
  );
}

/** "Chrome on Linux", or the first word of a program's name. */
function describeClient(userAgent: string | null): string {
  if (!userAgent) return "Unknown";
  const browser = ["Edg", "OPR", "Firefox", "Chrome", "Safari"].find((name) => userAgent.includes(`${name}/`));
  const system = ["Windows", "Android", "iPhone", "Mac OS X", "Linux"].find((name) => userAgent.includes(name));
  const names: Record<string, string> = { Edg: "Edge", OPR: "Opera", "Mac OS X": "macOS" };
  if (!browser) return userAgent.split(/[\s/]/)[0] ?? userAgent;
  return `${names[browser] ?? browser}${system ? ` on ${names[system] ?? system}` : ""}`;
}

function Identities() {
  const queries = useQueryClient();
  const identities = useQuery({
    queryKey: ["identities"],
    queryFn: ({ signal }) => api.account.listIdentities({ signal }),
  });
  if (identities.isError) return <Problem error={identities.error} />;
  if (!identities.data || identities.data.length === 0) return null;
  return (
    <section className="card">
      <h2>Single sign-on</h2>
      <Table
        caption="Accounts at providers that sign in to yours"
        columns={["Provider", "Account", "Linked", "Actions"]}
      >
        {identities.data.map(({ id, provider, username, linkedAt }) => (
          <tr key={id}>
            <td className="first">{provider}</td>
            <td>{username}</td>
            <td className="time" data-label="Linked">
              <Time at={linkedAt} />
            </td>
            <td className="actions-cell">
              <Confirm
                trigger={
                  <Button kind="danger" className="small">
                    Remove
                  </Button>
                }
                title={`Remove ${provider}?`}
                action="Remove"
                run={async () => {
                  await api.account.deleteIdentity(id);
                  await queries.invalidateQueries({ queryKey: ["identities"] });
                }}
              >
                <p>{username} can't sign in by it any more. The last way to sign in stays.</p>
              </Confirm>
            </td>
          </tr>
        ))}
      </Table>
    </section>
  );
}

function AccountEnd() {
  return (
    <section className="card">
      <h2>Delete the account</h2>
      <p className="muted">
        Ends your sessions, tokens and memberships, and deletes the workspaces of which you are the only member, with
        their sandboxes. Nothing brings them back.
      </p>
      <Form
        kind="danger"
        action="Delete account"
        send={async (fields) => {
          const password = fields.exact("delete_password");
          await api.account.delete(password ? { password } : {});
          forgetSession();
        }}
      >
        <TextField
          label="Your password"
          name="delete_password"
          field="password"
          type="password"
          autoComplete="current-password"
          optional
          hint="Leave it empty if your account has no password and you signed in within the last five minutes."
        />
        <label className="check">
          <input type="checkbox" required />
          <span>Delete my account for good</span>
        </label>
      </Form>
    </section>
  );
}
