import type { SandboxRecord, SandboxState } from "@sandgate/client";
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { Plus } from "lucide-react";
import { useEffect, useState } from "react";
import { curlLine } from "../curl.ts";
import { parseLabel } from "../labels.ts";
import { isChanging, liveMs } from "../sandbox-queries.ts";
import { useTitle } from "../title.ts";
import { Empty, Field, Labels, Loading, PageHeader, State } from "../ui/basics.tsx";
import { keepWithin, Table } from "../ui/list.tsx";
import { Pager } from "../ui/pager.tsx";
import { Problem } from "../ui/problem.tsx";
import { Distance, Time } from "../ui/time.tsx";
import { useWorkspace } from "../workspace.ts";

const pageSize = 50;
const states = [
  ["", "Any state"],
  ["provisioning,ready,stopping", "Live"],
  ["provisioning", "Provisioning"],
  ["ready", "Ready"],
  ["stopping", "Stopping"],
  ["stopped", "Stopped"],
  ["failed", "Failed"],
] as const;
const hurriedMs = 1_000;

/** The sandboxes of the workspace, newest first, as they change. */
export function Sandboxes() {
  useTitle("Sandboxes");
  const { workspace, sandgate } = useWorkspace();
  const { state, name, label, cursor } = useSearch({ from: "/shell/sandboxes" });
  const navigate = useNavigate({ from: "/sandboxes" });
  const labels = label === undefined ? {} : parseLabel(label);
  const query = { limit: pageSize, state: state?.split(",") as SandboxState[] | undefined, name, labels };
  const list = useQuery({
    queryKey: [workspace.id, "sandboxes", query, cursor],
    queryFn: async ({ signal }) => {
      const { items, nextCursor } = await sandgate.sandboxes.list(query).page(cursor, { signal });
      return { sandboxes: items.map(({ record }) => record), nextCursor };
    },
    placeholderData: keepWithin(workspace.id),
    refetchInterval: ({ state: { data } }) => (data?.sandboxes.some(isChanging) ? hurriedMs : liveMs),
  });
  const isFiltered = Boolean(state || name || label);
  /** Another filter begins at the first page. */
  const filter = (change: { state?: string; name?: string; label?: string }) =>
    navigate({ search: (old) => ({ ...old, ...change, cursor: undefined }), replace: true });
  const rows = list.data?.sandboxes ?? [];

  return (
    <>
      <PageHeader title="Sandboxes">
        <Link to="/sandboxes/new" className="button primary">
          <Plus aria-hidden /> New sandbox
        </Link>
      </PageHeader>
      <search className="filters">
        <Field label="State">
          {(control) => (
            <select {...control} value={state ?? ""} onChange={(event) => filter({ state: event.target.value })}>
              {states.map(([value, text]) => (
                <option key={value} value={value}>
                  {text}
                </option>
              ))}
            </select>
          )}
        </Field>
        <FilterText
          label="Name"
          placeholder="Starts with"
          value={name ?? ""}
          onChange={(value) => filter({ name: value })}
        />
        <FilterText
          label="Label"
          placeholder="key=value"
          value={label ?? ""}
          problem={labels ? undefined : "Write key=value."}
          onChange={(value) => filter({ label: value })}
        />
      </search>
      {list.isError && <Problem error={list.error} />}
      {list.isPending && !list.isError && <Loading what="Reading the sandboxes" />}
      {list.data && rows.length === 0 && !list.isError && (
        <NoSandboxes isFiltered={isFiltered || cursor !== undefined} />
      )}
      {rows.length > 0 && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls where it is narrow, by keyboard too.
        <section className="table-box" aria-label="Sandboxes" tabIndex={0}>
          <Table
            caption={`Sandboxes of ${workspace.name}, newest first`}
            columns={["Name", "State", "Image", "Created", "Expires", "Labels"]}
          >
            {rows.map((sandbox) => (
              <Row key={sandbox.id} sandbox={sandbox} />
            ))}
          </Table>
        </section>
      )}
      <Pager
        cursor={cursor}
        nextCursor={list.data?.nextCursor ?? null}
        onTurn={(next) => navigate({ search: (old) => ({ ...old, cursor: next }) })}
      />
    </>
  );
}

function Row({ sandbox }: { sandbox: SandboxRecord }) {
  const { id, name, state, stateReason, image, createdAt, expiresAt, stoppedAt, labels } = sandbox;
  return (
    <tr>
      <td className="first">
        <Link to="/sandboxes/$sandboxId" params={{ sandboxId: id }} className="primary-link">
          {name}
        </Link>
      </td>
      <td className="second">
        <State state={state} />
        {stateReason && <span className="sub">{stateReason.replaceAll("_", " ")}</span>}
      </td>
      <td className="mono image">{image}</td>
      <td className="time" data-label="Created">
        <Time at={createdAt} />
      </td>
      <td className="time" data-label={stoppedAt ? "Ended" : "Expires"}>
        <Distance at={stoppedAt ?? expiresAt} />
      </td>
      <td>{Object.keys(labels).length > 0 && <Labels labels={labels} />}</td>
    </tr>
  );
}

/** A filter that is taken a moment after the last key. */
function FilterText(o: {
  label: string;
  value: string;
  placeholder: string;
  problem?: string | undefined;
  onChange(value: string): void;
}) {
  const { value, onChange } = o;
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => onChange(text.trim()), 250);
    return () => clearTimeout(timer);
  });
  return (
    <Field label={o.label} problem={o.problem}>
      {(control) => (
        <input
          {...control}
          type="search"
          value={text}
          placeholder={o.placeholder}
          spellCheck={false}
          autoCapitalize="none"
          onChange={(event) => setText(event.target.value)}
        />
      )}
    </Field>
  );
}

function NoSandboxes({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered) {
    return (
      <Empty title="No sandbox fits">
        <p>
          <Link to="/sandboxes" className="inline-link">
            Show all sandboxes
          </Link>
        </p>
      </Empty>
    );
  }
  return (
    <Empty
      title="No sandboxes yet"
      cli="npx sandgate run default"
      curl={curlLine("POST", "/sandboxes/provision", { image: "default", labels: { purpose: "first" } })}
    >
      <p>
        A sandbox is an isolated container that runs an image for a while. Here you see each one, live, and what became
        of it.
      </p>
      <p>
        <Link to="/sandboxes/new" className="button primary">
          <Plus aria-hidden /> New sandbox
        </Link>
      </p>
    </Empty>
  );
}
