import { Tabs } from "@base-ui/react/tabs";
import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useParams, useRouterState } from "@tanstack/react-router";
import { Clock, Square } from "lucide-react";
import { type FormEvent, Suspense, useState } from "react";
import { hasEnded, sandboxQuery, useSandboxChange } from "../sandbox-queries.ts";
import { useTitle } from "../title.ts";
import { Button, CopyButton, Loading, PageHeader, State } from "../ui/basics.tsx";
import { Confirm, FormDialog } from "../ui/dialog.tsx";
import { SecondsField } from "../ui/form.tsx";
import { Problem } from "../ui/problem.tsx";
import { Distance, spell } from "../ui/time.tsx";
import { useWorkspace } from "../workspace.ts";
import { Uploads } from "./uploads.tsx";

const tabs = [
  ["overview", "Overview", "/sandboxes/$sandboxId"],
  ["logs", "Logs", "/sandboxes/$sandboxId/logs"],
  ["metrics", "Metrics", "/sandboxes/$sandboxId/metrics"],
  ["terminal", "Terminal", "/sandboxes/$sandboxId/terminal"],
  ["files", "Files", "/sandboxes/$sandboxId/files"],
  ["ports", "Ports", "/sandboxes/$sandboxId/ports"],
] as const;

/** What the tabs of a sandbox have above them. */
export function SandboxPage() {
  const { sandboxId } = useParams({ from: "/shell/sandboxes/$sandboxId" });
  const { workspace, sandgate } = useWorkspace();
  const { data: sandbox, error } = useQuery(sandboxQuery(sandgate, workspace.id, sandboxId));
  useTitle(sandbox?.name ?? "Sandbox");
  const current = useRouterState({ select: ({ location }) => location.pathname.split("/")[3] || "overview" });
  if (!sandbox) {
    return (
      <>
        <PageHeader title="Sandbox" />
        {error ? <Problem error={error} /> : <Loading what="Reading the sandbox" />}
      </>
    );
  }
  const isOver = hasEnded(sandbox);
  return (
    <>
      <PageHeader
        title={
          <span className="title-line">
            {sandbox.name} <State state={sandbox.state} />
          </span>
        }
        note={
          <>
            <span className="mono">{sandbox.image}</span>
            {!isOver && sandbox.expiresAt && (
              <>
                , expires <Distance at={sandbox.expiresAt} />
              </>
            )}
          </>
        }
      >
        <CopyButton text={sandbox.id} label="Copy id" />
        {sandbox.state === "ready" && <Extend />}
        {!isOver && sandbox.state !== "stopping" && <Stop name={sandbox.name} />}
      </PageHeader>
      {error && <Problem error={error} />}
      <Uploads sandboxId={sandbox.id} />
      <Tabs.Root value={current}>
        <Tabs.List className="tabs" aria-label="Sandbox">
          {tabs.map(([value, text, to]) => (
            <Tabs.Tab key={value} value={value} nativeButton={false} render={<Link to={to} params={{ sandboxId }} />}>
              {text}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value={current} className="tab-panel">
          <Suspense fallback={<Loading />}>
            <Outlet />
          </Suspense>
        </Tabs.Panel>
      </Tabs.Root>
    </>
  );
}

function Stop({ name }: { name: string }) {
  const { sandboxId } = useParams({ from: "/shell/sandboxes/$sandboxId" });
  const { sandgate } = useWorkspace();
  const stop = useSandboxChange(async () => (await sandgate.sandboxes.get(sandboxId)).stop());
  return (
    <Confirm
      trigger={
        <Button kind="danger" icon={<Square aria-hidden />}>
          Stop
        </Button>
      }
      title={`Stop ${name}?`}
      action="Stop sandbox"
      run={() => stop.mutateAsync(undefined)}
    >
      <p>Its processes get ten seconds to end. Its files are lost; logs and samples stay.</p>
    </Confirm>
  );
}

const lengths = [900, 3_600, 4 * 3_600, 24 * 3_600];

function Extend() {
  const { sandboxId } = useParams({ from: "/shell/sandboxes/$sandboxId" });
  const { sandgate } = useWorkspace();
  const [open, setOpen] = useState(false);
  const [seconds, setSeconds] = useState("3600");
  const extend = useSandboxChange(async (seconds: number) => (await sandgate.sandboxes.get(sandboxId)).extend(seconds));
  function submit(event: FormEvent) {
    event.preventDefault();
    extend.mutate(Number(seconds), { onSuccess: () => setOpen(false) });
  }
  return (
    <>
      <Button
        icon={<Clock aria-hidden />}
        onClick={() => {
          extend.reset();
          setOpen(true);
        }}
      >
        Extend
      </Button>
      <FormDialog title="Extend" open={open} onClose={() => setOpen(false)}>
        <form className="form" onSubmit={submit}>
          <SecondsField label="Ends in" unit="seconds from now" value={seconds} onChange={setSeconds} />
          <div className="form-end">
            {lengths.map((length) => (
              <Button key={length} className="small" onClick={() => setSeconds(String(length))}>
                {spell(length)}
              </Button>
            ))}
          </div>
          {extend.isError && <Problem error={extend.error} />}
          <div className="form-end">
            <Button onClick={() => setOpen(false)}>Cancel</Button>
            <Button kind="primary" type="submit" busy={extend.isPending}>
              Save
            </Button>
          </div>
        </form>
      </FormDialog>
    </>
  );
}
