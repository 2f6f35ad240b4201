import type { AuditEntry, AuditLogOptions } from "@sandgate/client";
import { Field } from "./basics.tsx";
import { Time } from "./time.tsx";

/** What an address says of the entries to show. */
export interface AuditSearch {
  action?: string | undefined;
  actor?: string | undefined;
  since?: string | undefined;
  until?: string | undefined;
}

export const auditColumns = ["At", "Action", "By", "Target", "Outcome", "Address", "Request"] as const;

const actions = [
  "api_token.create",
  "api_token.list",
  "api_token.revoke",
  "audit_log.read",
  "file.archive",
  "file.delete",
  "file.move",
  "file.write",
  "image.create",
  "image.delete",
  "image.update",
  "member.add",
  "member.remove",
  "member.update",
  "preview.create",
  "preview.revoke",
  "process.end",
  "process.signal",
  "process.start",
  "registry.create",
  "registry.delete",
  "registry.update",
  "sandbox.exec",
  "sandbox.extend",
  "sandbox.provision",
  "sandbox.stop",
  "session.end",
  "user.change_password",
  "user.sign_in",
  "workspace.create",
  "workspace.delete",
  "workspace.update",
];

/** Local times of the form become moments. */
export function toAuditQuery({ action, actor, since, until }: AuditSearch): AuditLogOptions {
  const moment = (local: string | undefined) => {
    const date = local === undefined ? undefined : new Date(local);
    return date === undefined || Number.isNaN(date.getTime()) ? undefined : date.toISOString();
  };
  return Object.fromEntries(
    Object.entries({ action, actor, since: moment(since), until: moment(until) }).filter(([, value]) => value),
  );
}

export function AuditFilters(o: {
  search: AuditSearch;
  actors: readonly (readonly [id: string, name: string])[];
  onChange(change: AuditSearch): void;
}) {
  const { action, actor, since, until } = o.search;
  return (
    <search className="filters">
      <Field label="Action">
        {(control) => (
          <select
            {...control}
            value={action ?? ""}
            onChange={(event) => o.onChange({ action: event.target.value || undefined })}
          >
            <option value="">Any</option>
            {actions.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        )}
      </Field>
      {o.actors.length > 0 && (
        <Field label="By">
          {(control) => (
            <select
              {...control}
              value={actor ?? ""}
              onChange={(event) => o.onChange({ actor: event.target.value || undefined })}
            >
              <option value="">Anybody</option>
              {o.actors.map(([id, name]) => (
                <option key={id} value={id}>
                  {name}
                </option>
              ))}
            </select>
          )}
        </Field>
      )}
      <Field label="From">
        {(control) => (
          <input
            {...control}
            type="datetime-local"
            value={since ?? ""}
            onChange={(event) => o.onChange({ since: event.target.value || undefined })}
          />
        )}
      </Field>
      <Field label="Before">
        {(control) => (
          <input
            {...control}
            type="datetime-local"
            value={until ?? ""}
            onChange={(event) => o.onChange({ until: event.target.value || undefined })}
          />
        )}
      </Field>
    </search>
  );
}

export function AuditRow({ entry, nameOf }: { entry: AuditEntry; nameOf(userId: string): string | undefined }) {
  const { at, action, actor, credential, target, outcome, count, address, requestId } = entry;
  return (
    <tr>
      <td className="time">
        <Time at={at} />
      </td>
      <td className="first">
        <strong>{action}</strong>
        {count > 1 && <span className="muted"> {count} times</span>}
      </td>
      <td className="line" data-label="By">
        {actor ? (
          (nameOf(actor.userId) ?? <span className="mono">{actor.userId}</span>)
        ) : (
          <span className="muted">the platform</span>
        )}
        {credential?.type === "api_token" && <span className="sub">by an API token</span>}
      </td>
      <td className="mono">{target && `${target.type} ${target.id}`}</td>
      <td>{outcome === "success" ? "success" : <span className="field-problem">{outcome}</span>}</td>
      <td className="mono line" data-label="Address">
        {address}
      </td>
      <td className="mono request" data-label="Request">
        {requestId}
      </td>
    </tr>
  );
}
