import type { MetricPoint } from "@sandgate/client";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import UPlot from "uplot";
import { hasEnded, useSandbox } from "../sandbox-queries.ts";
import { Empty, Field, Loading } from "../ui/basics.tsx";
import { Problem } from "../ui/problem.tsx";
import { bytes } from "../ui/time.tsx";
import "uplot/dist/uPlot.min.css";
import "../styles/metrics.css";

const mebibyte = 1024 * 1024;
const minuteMs = 60_000;
const windows = [
  ["5", "Last 5 minutes"],
  ["15", "Last 15 minutes"],
  ["60", "Last hour"],
  ["360", "Last 6 hours"],
  ["1440", "Last 24 hours"],
] as const;
const defaultWindow = "15";
const sampleMs = 5_000;

/** CPU and memory of a sandbox: now, and by window. */
export function Metrics() {
  const { sandbox, record, key } = useSandbox();
  const { window: minutes = defaultWindow } = useSearch({ from: "/shell/sandboxes/$sandboxId/metrics" });
  const navigate = useNavigate({ from: "/sandboxes/$sandboxId/metrics" });
  const isOver = hasEnded(record);
  // What has ended is shown up to its end.
  const end = record.stoppedAt && isOver ? Date.parse(record.stoppedAt) : undefined;
  const lengthMs = Number(minutes) * minuteMs;
  const samples = useQuery({
    queryKey: [...key, "metrics", minutes, isOver],
    queryFn: async ({ signal }) =>
      sandbox.metrics({
        since: new Date((end ?? Date.now()) - lengthMs),
        ...(end && { until: new Date(end + 1000) }),
        signal,
      }),
    refetchInterval: isOver ? false : sampleMs,
  });
  const points = samples.data ?? [];
  return (
    <>
      <div className="filters">
        <Field label="Window">
          {(control) => (
            <select
              {...control}
              value={minutes}
              onChange={(event) =>
                navigate({ search: (old) => ({ ...old, window: event.target.value }), replace: true })
              }
            >
              {windows.map(([value, text]) => (
                <option key={value} value={value}>
                  {end ? text.replace("Last", "The last") : text}
                </option>
              ))}
            </select>
          )}
        </Field>
        {!isOver && <span className="live">A sample every 5 seconds</span>}
      </div>
      {samples.isError && <Problem error={samples.error} />}
      {samples.isPending && !samples.isError && <Loading what="Reading the samples" />}
      {samples.data && points.length < 2 && (
        <Empty title="No samples yet">
          <p>The first ones come within seconds of the sandbox's start.</p>
        </Empty>
      )}
      {points.length >= 2 && (
        <div className="plots">
          <Plot
            title="CPU"
            unit="cores"
            times={timesOf(points)}
            values={coresOf(points)}
            format={(value) => value.toFixed(2)}
          />
          <Plot
            title="Memory"
            unit="MiB"
            times={timesOf(points)}
            values={points.map(({ memoryUsage }) => memoryUsage / mebibyte)}
            format={(value) => bytes(value * mebibyte)}
            limit={record.memoryMb}
          />
        </div>
      )}
    </>
  );
}

const timesOf = (points: readonly MetricPoint[]) => points.map(({ timestamp }) => Date.parse(timestamp) / 1000);

/** The counter's rise between one sample and the next is the cores in use. */
function coresOf(points: readonly MetricPoint[]): (number | null)[] {
  return points.map((point, i) => {
    const before = points[i - 1];
    if (!before) return null;
    const seconds = (Date.parse(point.timestamp) - Date.parse(before.timestamp)) / 1000;
    return seconds > 0 ? Math.max(0, point.cpuUsage - before.cpuUsage) / seconds : null;
  });
}

function Plot(o: {
  title: string;
  unit: string;
  times: number[];
  values: (number | null)[];
  format(value: number): string;
  limit?: number;
}) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot>(null);
  const scheme = useColorScheme();
  const { title, unit, limit, format } = o;
  const data: UPlot.AlignedData = [o.times, o.values];
  const latest = useRef(data);
  latest.current = data;

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const style = getComputedStyle(element);
    const axis: UPlot.Axis = {
      stroke: style.color,
      font: `11px ${style.fontFamily}`,
      grid: { stroke: style.borderTopColor, width: 1 },
      ticks: { show: false },
    };
    const made = new UPlot(
      {
        width: element.clientWidth,
        height: 220,
        cursor: { y: false, drag: { x: false, y: false } },
        legend: { live: true },
        scales: { y: { range: (_, _min, max) => [0, Math.max(max * 1.15, 0.05)] } },
        axes: [axis, { ...axis, size: 56 }],
        series: [
          { value: (_, seconds) => (seconds ? new Date(seconds * 1000).toLocaleTimeString() : "–") },
          {
            label: unit,
            stroke: style.accentColor,
            width: 1.75,
            fill: style.textDecorationColor,
            points: { show: false },
            value: (_, value) => (value === null ? "–" : format(value)),
          },
        ],
      },
      latest.current,
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: 220 }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [scheme, unit]);

  useEffect(() => plot.current?.setData([o.times, o.values]), [o.times, o.values]);

  const known = o.values.filter((value) => value !== null);
  const average = known.reduce((sum, value) => sum + value, 0) / Math.max(known.length, 1);
  return (
    <section className="card">
      <header>
        <h2>
          {title} <span className="muted">({unit})</span>
        </h2>
        <dl className="figures num">
          <div>
            <dt>Now</dt>
            <dd>{format(known.at(-1) ?? 0)}</dd>
          </div>
          <div>
            <dt>Average</dt>
            <dd>{format(average)}</dd>
          </div>
          <div>
            <dt>Most</dt>
            <dd>{format(known.reduce((most, value) => Math.max(most, value), 0))}</dd>
          </div>
          {limit !== undefined && (
            <div>
              <dt>Limit</dt>
              <dd>{format(limit)}</dd>
            </div>
          )}
        </dl>
      </header>
      <div ref={box} className="plot" role="img" aria-label={`${title} over time`} />
    </section>
  );
}

/** Changes with the colours of the page. */
function useColorScheme(): string {
  const read = () => `${document.documentElement.dataset.theme} ${matchMedia("(prefers-color-scheme: dark)").matches}`;
  const [scheme, setScheme] = useState(read);
  useEffect(() => {
    const update = () => setScheme(read());
    const query = matchMedia("(prefers-color-scheme: dark)");
    const observer = new MutationObserver(update);
    query.addEventListener("change", update);
    observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      query.removeEventListener("change", update);
      observer.disconnect();
    };
  }, []);
  return scheme;
}
