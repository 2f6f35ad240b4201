import type { CreatedPreview, ListeningPort, Preview } from "@sandgate/client";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { ExternalLink, Plus, Share2 } from "lucide-react";
import { useState } from "react";
import { curlLine } from "../curl.ts";
import { liveMs, useSandbox } from "../sandbox-queries.ts";
import { Button, CodeLine, Empty, Loading, Tag } from "../ui/basics.tsx";
import { Confirm, FormDialog } from "../ui/dialog.tsx";
import { CheckField, Form, TextField } from "../ui/form.tsx";
import { Table } from "../ui/list.tsx";
import { Problem } from "../ui/problem.tsx";
import { Distance, spell } from "../ui/time.tsx";

const defaultSeconds = 3_600;
const linkSeconds = 300;

/** What listens in a sandbox, and the addresses by which browsers reach it. */
export function Ports() {
  const { sandbox, record, key } = useSandbox();
  const queries = useQueryClient();
  const isReady = record.state === "ready";
  const listening = useQuery({
    queryKey: [...key, "listening"],
    queryFn: ({ signal }) => sandbox.ports.listening({ signal }),
    enabled: isReady,
    refetchInterval: liveMs,
  });
  const previews = useQuery({
    queryKey: [...key, "previews"],
    queryFn: ({ signal }) => sandbox.ports.list({ signal }),
    enabled: isReady,
    refetchInterval: liveMs,
  });
  const [sharing, setSharing] = useState<number | "any">();
  const [made, setMade] = useState<CreatedPreview>();
  const read = () => queries.invalidateQueries({ queryKey: [...key, "previews"] });
  if (!isReady) {
    return (
      <Empty title="No ports">
        <p>A sandbox's ports are reached while it is ready.</p>
      </Empty>
    );
  }
  // One server listens for both families.
  const ports = [...new Map((listening.data ?? []).map((each) => [each.port, each])).values()].toSorted(
    (a, b) => a.port - b.port,
  );
  return (
    <>
      {made && <NewPreview preview={made} onClose={() => setMade(undefined)} />}
      <section className="card">
        <header>
          <h2>What listens</h2>
          <Button className="small" icon={<Plus aria-hidden />} onClick={() => setSharing("any")}>
            Share another port
          </Button>
        </header>
        {listening.error && <Problem error={listening.error} />}
        {listening.isPending && <Loading />}
        {listening.data && ports.length === 0 && (
          <Empty
            title="Nothing listens yet"
            curl={curlLine("POST", `/sandboxes/${record.name}/processes`, { command: "python3 -m http.server 3000" })}
          >
            <p>Start a server in the sandbox: it is here within seconds, on whatever address it listens.</p>
          </Empty>
        )}
        {ports.length > 0 && (
          <ListeningPorts ports={ports} previews={previews.data ?? []} onShare={setSharing} onOpened={read} />
        )}
      </section>
      <section className="card">
        <h2>Shared</h2>
        {previews.error && <Problem error={previews.error} />}
        {previews.data?.length === 0 && <p className="muted">No port has an address yet.</p>}
        {previews.data && previews.data.length > 0 && <Previews previews={previews.data} onChange={read} />}
      </section>
      <FormDialog title="Share a port" open={sharing !== undefined} onClose={() => setSharing(undefined)}>
        <Form
          action="Share"
          onCancel={() => setSharing(undefined)}
          send={async (fields) => {
            const preview = await sandbox.ports.open(fields.number("port") ?? 0, {
              ttlSeconds: fields.number("ttl_seconds"),
              public: fields.flag("public"),
            });
            setMade(preview);
            setSharing(undefined);
            await read();
          }}
        >
          <TextField
            label="Port"
            name="port"
            type="number"
            min={1}
            max={65_535}
            defaultValue={sharing === "any" ? "" : sharing}
          />
          <TextField
            label="Time to live"
            name="ttl_seconds"
            type="number"
            unit="seconds"
            min={60}
            max={86_400}
            defaultValue={defaultSeconds}
            hint="At most as long as the sandbox lives."
          />
          <CheckField label="Public: anyone with the address can open it" name="public" />
        </Form>
      </FormDialog>
    </>
  );
}

function ListeningPorts(o: {
  ports: readonly ListeningPort[];
  previews: readonly Preview[];
  onShare(port: number): void;
  onOpened(): Promise<unknown>;
}) {
  return (
    <Table caption="Ports that something listens on" columns={["Port", "Address", "Process", "Actions"]}>
      {o.ports.map(({ port, address, processId }) => (
        <tr key={port}>
          <td className="first">
            <strong className="num">{port}</strong>
          </td>
          <td className="mono" data-label="On">
            {address}
          </td>
          <td className="mono request">{processId}</td>
          <td className="actions-cell">
            <OpenButton port={port} preview={o.previews.find((each) => each.port === port)} onOpened={o.onOpened} />
            <Button className="small" icon={<Share2 aria-hidden />} onClick={() => o.onShare(port)}>
              Share
            </Button>
          </td>
        </tr>
      ))}
    </Table>
  );
}

/** Opens a port in a new tab, by a link that works once there. Makes its preview if it has none. */
function OpenButton(o: { port: number; preview: Preview | undefined; onOpened(): Promise<unknown> }) {
  const { sandbox } = useSandbox();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  async function open() {
    setBusy(true);
    setError(undefined);
    // Before anything is awaited, or the browser takes it for a pop-up that nobody asked for.
    const tab = window.open("about:blank", "_blank");
    try {
      const { id } = o.preview ?? (await sandbox.ports.open(o.port, { ttlSeconds: defaultSeconds }));
      const { url } = await sandbox.ports.link(id, { ttlSeconds: linkSeconds });
      if (tab) {
        tab.opener = null;
        tab.location.replace(url);
      }
      await o.onOpened();
    } catch (thrown) {
      tab?.close();
      setError(thrown);
    } finally {
      setBusy(false);
    }
  }
  return (
    <>
      {error !== undefined && <Problem error={error} />}
      <Button className="small" icon={<ExternalLink aria-hidden />} busy={busy} onClick={open}>
        Open
      </Button>
    </>
  );
}

function NewPreview({ preview, onClose }: { preview: CreatedPreview; onClose(): void }) {
  const { sandbox } = useSandbox();
  const [link, setLink] = useState<string>();
  const [error, setError] = useState<unknown>();
  async function makeLink() {
    setError(undefined);
    await sandbox.ports.link(preview.id, { ttlSeconds: linkSeconds }).then(({ url }) => setLink(url), setError);
  }
  return (
    <section className="notice good secret" aria-label="New address">
      <h2>Port {preview.port} is shared</h2>
      <CodeLine code={preview.url} />
      {!preview.public && (
        <>
          <p>Programs send this token, which is not shown again:</p>
          <CodeLine code={`curl ${preview.url} -H 'X-Sandgate-Token: ${preview.token}'`} />
          {link === undefined ? (
            <p>
              <Button onClick={makeLink}>Make a link for a browser</Button>
            </p>
          ) : (
            <>
              <p>This link works once, within {spell(linkSeconds)}:</p>
              <CodeLine code={link} />
            </>
          )}
          {error !== undefined && <Problem error={error} />}
        </>
      )}
      <p>
        <Button onClick={onClose}>I have it</Button>
      </p>
    </section>
  );
}

function Previews({ previews, onChange }: { previews: readonly Preview[]; onChange(): Promise<unknown> }) {
  const { sandbox } = useSandbox();
  return (
    <Table caption="Addresses of ports" columns={["Port", "Address", "Expires", "Actions"]}>
      {previews.map((preview) => (
        <tr key={preview.id}>
          <td className="first">
            <strong className="num">{preview.port}</strong> {preview.public && <Tag>public</Tag>}
          </td>
          <td className="mono">{preview.url}</td>
          <td className="time" data-label="Expires">
            <Distance at={preview.expiresAt} />
          </td>
          <td className="actions-cell">
            <Confirm
              trigger={
                <Button kind="danger" className="small">
                  Revoke
                </Button>
              }
              title={`Revoke the address of port ${preview.port}?`}
              action="Revoke address"
              run={async () => {
                await sandbox.ports.close(preview.id);
                await onChange();
              }}
            >
              <p>Whoever uses it is cut off within a second.</p>
            </Confirm>
          </td>
        </tr>
      ))}
    </Table>
  );
}
