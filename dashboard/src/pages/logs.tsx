import type { Sandbox } from "@sandgate/client";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { ArrowDown, Download, Pause, Play } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { createLogBuffer, createWaitingLines, type LogBuffer, type LogLine } from "../log-buffer.ts";
import { hasEnded, useSandbox } from "../sandbox-queries.ts";
import { Button, Field } from "../ui/basics.tsx";
import { Problem } from "../ui/problem.tsx";
import { saveFile } from "../ui/save.ts";
import "../styles/logs.css";

type Stream = "stdout" | "stderr";

/** How many lines from before are shown at first. */
const historyLines = 10_000;
/** How often lines that came are shown, in milliseconds. */
const showMs = 100;
/** How many lines are shown at once, and taken in at once. */
const maxShown = 5_000;
const burstLines = 500;
const rowHeight = 20;
const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  fractionalSecondDigits: 3,
  hourCycle: "h23",
});

/** The log of a sandbox, as it comes. */
export function Logs() {
  const { sandbox, record } = useSandbox();
  const { stream, q = "" } = useSearch({ from: "/shell/sandboxes/$sandboxId/logs" });
  const navigate = useNavigate({ from: "/sandboxes/$sandboxId/logs" });
  const [paused, setPaused] = useState(false);
  const tail = useTail(sandbox, stream as Stream | undefined, { text: q, paused });
  return (
    <>
      <search className="filters">
        <Field label="Stream">
          {(control) => (
            <select
              {...control}
              value={stream ?? ""}
              onChange={(event) =>
                navigate({ search: (old) => ({ ...old, stream: event.target.value || undefined }), replace: true })
              }
            >
              <option value="">Both</option>
              <option value="stdout">stdout</option>
              <option value="stderr">stderr</option>
            </select>
          )}
        </Field>
        <Field label="Search">
          {(control) => (
            <input
              {...control}
              type="search"
              value={q}
              spellCheck={false}
              placeholder="Text in a line"
              onChange={(event) =>
                navigate({ search: (old) => ({ ...old, q: event.target.value || undefined }), replace: true })
              }
            />
          )}
        </Field>
        <div className="log-tools">
          <Button
            icon={paused ? <Play aria-hidden /> : <Pause aria-hidden />}
            disabled={hasEnded(record) && !paused}
            onClick={() => setPaused(!paused)}
          >
            {paused ? "Resume" : "Pause"}
          </Button>
          <DownloadAll sandbox={sandbox} stream={stream as Stream | undefined} />
        </div>
      </search>
      {tail.error !== undefined && (
        <Problem error={tail.error}>
          <p>
            <Button onClick={tail.tryAgain}>Try again</Button>
          </p>
        </Problem>
      )}
      <LogView buffer={tail.buffer} version={tail.version} isLive={!paused} />
      <p className="log-status muted num" role="status">
        {describe(tail, { paused, isSearch: q !== "" })}
      </p>
    </>
  );
}

function describe({ buffer, ...tail }: Tail, o: { paused: boolean; isSearch: boolean }): string {
  const lines = `${buffer.kept.toLocaleString()} ${buffer.kept === 1 ? "line" : "lines"}`;
  const found = o.isSearch ? `${buffer.shown.length.toLocaleString()} of ${lines} found` : lines;
  const older = buffer.dropped > 0 || tail.hasOlder ? ", older ones are in the download" : "";
  if (tail.isEnd) return `${found}${older}. The log has ended.`;
  if (tail.error !== undefined) return `${found}${older}. Stopped.`;
  return `${found}${older}. ${o.paused ? "Paused." : "Live."}`;
}

interface Tail {
  buffer: LogBuffer;
  /** Changes with what the buffer shows. */
  version: number;
  /** Whether there are lines before the first that was read. */
  hasOlder: boolean;
  isEnd: boolean;
  /** Why it is not followed any more. */
  error: unknown;
  tryAgain(): void;
}

/** Follows the log, and shows what came a few times a second. A stream that breaks off goes on where it was. */
function useTail(sandbox: Sandbox, stream: Stream | undefined, o: { text: string; paused: boolean }): Tail {
  const [version, setVersion] = useState(0);
  const [error, setError] = useState<unknown>();
  const [isEnd, setIsEnd] = useState(false);
  const [hasOlder, setHasOlder] = useState(false);
  const [tries, setTries] = useState(0);
  const buffer = useRef(createLogBuffer());
  const wanted = useRef(o);
  wanted.current = o;

  useEffect(() => {
    const controller = new AbortController();
    const { signal } = controller;
    const waiting = createWaitingLines();
    buffer.current = createLogBuffer();
    buffer.current.search(wanted.current.text);
    setError(undefined);
    setIsEnd(false);
    setHasOlder(false);
    setVersion((old) => old + 1);
    const timer = setInterval(() => {
      if (wanted.current.paused) return;
      if (waiting.moveTo(buffer.current, maxShown)) setVersion((old) => old + 1);
    }, showMs);
    async function lookForOlder(until: string) {
      const older = sandbox.logs({ since: sandbox.record.createdAt, until, limit: 1, stream, signal });
      for await (const _ of older) setHasOlder(true);
    }
    async function follow() {
      let count = 0;
      let first: string | undefined;
      for await (const entry of sandbox.logs({ follow: true, limit: historyLines, stream, signal })) {
        first ??= entry.timestamp;
        waiting.push(entry);
        count += 1;
        if (count === historyLines) await lookForOlder(first);
        // A burst leaves the browser time for everything else.
        if (count % burstLines === 0) await new Promise((resolve) => setTimeout(resolve));
      }
      setIsEnd(true);
    }
    follow().catch((thrown: unknown) => {
      if (!signal.aborted) setError(thrown);
    });
    return () => {
      controller.abort();
      clearInterval(timer);
    };
  }, [sandbox, stream, tries]);

  useEffect(() => {
    buffer.current.search(o.text);
    setVersion((old) => old + 1);
  }, [o.text]);

  return { buffer: buffer.current, version, hasOlder, isEnd, error, tryAgain: () => setTries((old) => old + 1) };
}

function LogView({ buffer, version, isLive }: { buffer: LogBuffer; version: number; isLive: boolean }) {
  const box = useRef<HTMLElement>(null);
  const [atEnd, setAtEnd] = useState(true);
  const { shown } = buffer;
  const rows = useVirtualizer({
    count: shown.length,
    getScrollElement: () => box.current,
    estimateSize: () => rowHeight,
    overscan: 20,
  });
  useEffect(() => {
    if (atEnd && isLive && shown.length > 0) rows.scrollToIndex(shown.length - 1, { align: "end" });
  }, [version, atEnd, isLive]);
  return (
    <div className="log-frame">
      <section
        ref={box}
        className="log"
        aria-label="Log lines"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, by keyboard too.
        tabIndex={0}
        onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) =>
          setAtEnd(scrollHeight - scrollTop - clientHeight < rowHeight * 2)
        }
      >
        {shown.length === 0 && <p className="log-empty muted">Nothing to show.</p>}
        <ol style={{ height: rows.getTotalSize() }}>
          {rows.getVirtualItems().map(({ index, start }) => {
            const line = shown[index];
            return line && <Line key={line.number} line={line} top={start} />;
          })}
        </ol>
      </section>
      {!atEnd && (
        <Button
          className="log-end small"
          icon={<ArrowDown aria-hidden />}
          onClick={() => {
            setAtEnd(true);
            rows.scrollToIndex(shown.length - 1, { align: "end" });
          }}
        >
          To the end
        </Button>
      )}
    </div>
  );
}

function Line({ line, top }: { line: LogLine; top: number }) {
  return (
    <li className={line.stream} style={{ transform: `translateY(${top}px)` }}>
      <time dateTime={line.timestamp} title={line.timestamp}>
        {clock.format(new Date(line.timestamp))}
      </time>
      {line.stream === "stderr" && <span className="visually-hidden">stderr </span>}
      <span className="log-text">{line.log}</span>
    </li>
  );
}

/** All that is kept of the log, as a file. */
function DownloadAll({ sandbox, stream }: { sandbox: Sandbox; stream: Stream | undefined }) {
  const [count, setCount] = useState<number>();
  const [error, setError] = useState<unknown>();
  async function download() {
    setError(undefined);
    setCount(0);
    try {
      const parts: string[] = [];
      for await (const { timestamp, stream: from, log } of sandbox.logs({ since: sandbox.record.createdAt, stream })) {
        parts.push(`${timestamp} ${from} ${log}\n`);
        if (parts.length % 10_000 === 0) setCount(parts.length);
      }
      saveFile(`${sandbox.name}.log`, new Blob(parts, { type: "text/plain" }));
    } catch (thrown) {
      setError(thrown);
    } finally {
      setCount(undefined);
    }
  }
  return (
    <>
      <Button icon={<Download aria-hidden />} busy={count !== undefined} onClick={download}>
        Download
      </Button>
      {error !== undefined && <Problem error={error} />}
    </>
  );
}
