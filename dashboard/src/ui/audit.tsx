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

type Action = NonNullable<AuditLogOptions["action"]>;

/** The types of the API say whether one is missing. */
const actions = Object.keys({
  "api_token.create": true,
  "api_token.list": true,
  "api_token.revoke": true,
  "api_token.revoke_all": true,
  "audit_log.read": true,
  "file.archive": true,
  "file.delete": true,
  "file.list": true,
  "file.move": true,
  "file.read": true,
  "file.write": true,
  "identity.list": true,
  "image.create": true,
  "image.delete": true,
  "image.list": true,
  "image.read": true,
  "image.update": true,
  "member.add": true,
  "member.list": true,
  "member.remove": true,
  "member.update": true,
  "port.connect": true,
  "port.list": true,
  "preview.create": true,
  "preview.link": true,
  "preview.list": true,
  "preview.read": true,
  "preview.revoke": true,
  "process.end": true,
  "process.list": true,
  "process.read": true,
  "process.signal": true,
  "process.start": true,
  "process.write": true,
  "registry.create": true,
  "registry.delete": true,
  "registry.list": true,
  "registry.read": true,
  "registry.update": true,
  "sandbox.exec": true,
  "sandbox.extend": true,
  "sandbox.list": true,
  "sandbox.provision": true,
  "sandbox.read": true,
  "sandbox.read_logs": true,
  "sandbox.stop": true,
  "second_factor.enable": true,
  "second_factor.read": true,
  "second_factor.remove": true,
  "second_factor.replace_recovery_codes": true,
  "second_factor.use_recovery_code": true,
  "session.end": true,
  "session.end_all": true,
  "session.list": true,
  "user.change_password": true,
  "user.delete": true,
  "user.disable": true,
  "user.enable": true,
  "user.link": true,
  "user.list": true,
  "user.make_operator": true,
  "user.read": true,
  "user.register": true,
  "user.reset_password": true,
  "user.sign_in": true,
  "user.unlink": true,
  "user.verify": true,
  "workspace.create": true,
  "workspace.delete": true,
  "workspace.list": true,
  "workspace.read": true,
  "workspace.take_over": true,
  "workspace.update": true,
} satisfies Record<Action, true>);

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

/** What an entry is about, and what else is known of it, such as a path or a program. */
function Target({ type, id, ...details }: NonNullable<AuditEntry["target"]>) {
  return (
    <>
      {type} {id}
      {Object.entries(details).map(([name, value]) => (
        <span key={name} className="sub">
          {name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)} {value}
        </span>
      ))}
    </>
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
      <td className="mono">{target && <Target {...target} />}</td>
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
