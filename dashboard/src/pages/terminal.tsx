import type { ProcessRecord, Terminal as RemoteTerminal, Sandbox } from "@sandgate/client";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Screen } from "@xterm/xterm";
import { Plus, X } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { curlLine } from "../curl.ts";
import { useSandbox } from "../sandbox-queries.ts";
import { Button, Empty, IconButton, Loading } from "../ui/basics.tsx";
import { Problem } from "../ui/problem.tsx";
import "@xterm/xterm/css/xterm.css";
import "../styles/terminal.css";

const listMs = 5_000;
/** So many bytes may wait to be shown; xterm.js throws what comes beyond 50 MB away. */
const maxPendingBytes = 8 * 1024 * 1024;

/** Terminals in a sandbox. They run on when the page is left, and are found again. */
export function TerminalPage() {
  const { sandbox, record, key } = useSandbox();
  const { process: asked } = useSearch({ from: "/shell/sandboxes/$sandboxId/terminal" });
  const navigate = useNavigate({ from: "/sandboxes/$sandboxId/terminal" });
  const queries = useQueryClient();
  const isReady = record.state === "ready";
  const running = useQuery({
    queryKey: [...key, "terminals"],
    queryFn: async ({ signal }) => {
      const processes = await sandbox.commands.list({ state: "running", signal });
      return processes.filter(({ pty }) => pty !== null).toSorted((a, b) => a.startedAt.localeCompare(b.startedAt));
    },
    enabled: isReady,
    refetchInterval: listMs,
  });
  const read = () => queries.invalidateQueries({ queryKey: [...key, "terminals"] });
  const show = (id: string | undefined) =>
    navigate({ search: (old) => ({ ...old, process: id }), replace: asked === undefined });
  const start = useMutation({
    mutationFn: async () => {
      const terminal = await sandbox.pty.create({ cols: 100, rows: 30 });
      // The screen attaches to it.
      terminal.close();
      return terminal.id;
    },
    onSuccess: async (id) => {
      await read();
      await show(id);
    },
  });
  const end = useMutation({
    mutationFn: async (id: string) => (await sandbox.commands.connect(id)).kill(),
    onSuccess: async (_, id) => {
      await read();
      if (id === asked) await show(undefined);
    },
  });
  const [tries, setTries] = useState(0);
  const terminals = running.data ?? [];
  const first = terminals[0]?.id;
  // What is shown is chosen once: when a shell ends, what is typed on must not go into another.
  useEffect(() => {
    if (asked === undefined && first !== undefined) {
      navigate({ search: (old) => ({ ...old, process: first }), replace: true });
    }
  }, [asked, first, navigate]);
  if (!isReady) {
    return (
      <Empty title="No terminal">
        <p>A sandbox has terminals while it is ready.</p>
      </Empty>
    );
  }
  const current = terminals.find(({ id }) => id === asked);
  return (
    <>
      <div className="terminal-bar">
        {terminals.map((terminal, i) => (
          <span key={terminal.id} className="terminal-tab" data-current={terminal.id === current?.id}>
            <button
              type="button"
              aria-pressed={terminal.id === current?.id}
              onClick={() => show(terminal.id)}
            >{`Terminal ${i + 1}`}</button>
            <IconButton label={`End terminal ${i + 1}`} onClick={() => end.mutate(terminal.id)}>
              <X aria-hidden />
            </IconButton>
          </span>
        ))}
        <Button className="small" icon={<Plus aria-hidden />} busy={start.isPending} onClick={() => start.mutate()}>
          New terminal
        </Button>
      </div>
      {[running.error, start.error, end.error].map((error, i) => (error ? <Problem key={i} error={error} /> : null))}
      {running.isPending && <Loading what="Looking for terminals" />}
      {running.data && !current && (asked !== undefined || first === undefined) && (
        <Empty
          title={first === undefined ? "No terminal is open" : "This terminal has ended"}
          cli={`npx sandgate shell ${record.name}`}
          curl={curlLine("POST", `/sandboxes/${record.name}/exec`, { command: "uname -a" })}
        >
          <p>
            A terminal runs a shell in the sandbox. It stays when you leave this page, and is here when you come back.
          </p>
          <p>
            <Button kind="primary" icon={<Plus aria-hidden />} busy={start.isPending} onClick={() => start.mutate()}>
              Open a terminal
            </Button>
          </p>
        </Empty>
      )}
      {current && (
        <TerminalScreen
          key={`${current.id} ${tries}`}
          sandbox={sandbox}
          terminal={current}
          onEnd={read}
          onTryAgain={() => setTries((old) => old + 1)}
        />
      )}
    </>
  );
}

function TerminalScreen(o: { sandbox: Sandbox; terminal: ProcessRecord; onEnd(): void; onTryAgain(): void }) {
  const { sandbox, terminal, onEnd, onTryAgain } = o;
  const { id } = terminal;
  const box = useRef<HTMLDivElement>(null);
  const [status, setStatus] = useState("Connecting");
  const [error, setError] = useState<unknown>();
  const whenOver = useRef(onEnd);
  whenOver.current = onEnd;

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const style = getComputedStyle(element);
    const screen = new Screen({
      fontFamily: style.fontFamily,
      fontSize: 13,
      lineHeight: 1.15,
      cursorBlink: true,
      scrollback: 10_000,
      screenReaderMode: true,
      theme: { background: style.backgroundColor, foreground: style.color, cursor: style.color },
    });
    const fit = new FitAddon();
    screen.loadAddon(fit);
    screen.open(element);
    fit.fit();
    const controller = new AbortController();
    let remote: RemoteTerminal | undefined;
    /** Typed while nothing was attached. */
    const typed: (string | Uint8Array)[] = [];
    const write = (data: string | Uint8Array) => (remote ? remote.write(data) : typed.push(data));
    const observer = new ResizeObserver(() => fit.fit());
    observer.observe(element);
    /**
     * Whether what is shown is from before. What it asks a terminal was answered then, and a second answer would be typed
     * into the shell. Each answer is an escape sequence, which letters and control keys are not.
     */
    let isReplay = true;
    screen.onData((text) => {
      if (!isReplay || !text.startsWith("\x1b")) write(text);
    });
    screen.onBinary((text) => write(Uint8Array.from(text, (each) => each.charCodeAt(0))));
    screen.onResize(({ cols, rows }) => void remote?.resize({ cols, rows }));
    let replayEnd: number | undefined;
    /** Shows the output after a byte. Returns where to go on if it came faster than it could be shown. */
    async function show(after: number): Promise<number | undefined> {
      let pendingBytes = 0;
      let next: number | undefined;
      const terminal = await sandbox.pty.connect(id, {
        after,
        cols: screen.cols,
        rows: screen.rows,
        signal: controller.signal,
        onData: (data) => {
          if (next !== undefined) return;
          const { offset } = terminal;
          pendingBytes += data.length;
          screen.write(data, () => {
            pendingBytes -= data.length;
            isReplay &&= offset < (replayEnd ?? 0);
          });
          if (pendingBytes <= maxPendingBytes) return;
          next = offset;
          remote = undefined;
          terminal.close();
        },
        onConnection: (isConnected) => setStatus(isConnected ? "Connected" : "Connecting again"),
      });
      if (controller.signal.aborted) {
        terminal.close();
        return undefined;
      }
      const { outputBytes, retainedFrom } = terminal.process.record;
      replayEnd ??= outputBytes;
      isReplay &&= outputBytes > retainedFrom;
      remote = terminal;
      for (const data of typed.splice(0)) terminal.write(data);
      await terminal.wait();
      if (next !== undefined) await new Promise<void>((resolve) => screen.write("", resolve));
      return next;
    }
    async function attach() {
      screen.focus();
      let next: number | undefined = 0;
      while (next !== undefined && !controller.signal.aborted) next = await show(next);
      if (controller.signal.aborted) return;
      setStatus("Ended");
      whenOver.current();
    }
    attach().catch((thrown: unknown) => {
      if (controller.signal.aborted) return;
      // What is typed now would go nowhere.
      screen.options.disableStdin = true;
      setError(thrown);
      setStatus("Not connected");
    });
    return () => {
      controller.abort();
      remote?.close();
      observer.disconnect();
      screen.dispose();
    };
  }, [sandbox, id]);

  return (
    <>
      {error !== undefined && (
        <Problem error={error}>
          <p>
            <Button onClick={onTryAgain}>Try again</Button>
          </p>
        </Problem>
      )}
      <section className="terminal" aria-label="Terminal">
        <div ref={box} className="terminal-screen" />
      </section>
      <p className="muted log-status" role="status">
        {status}
      </p>
    </>
  );
}
