// The time line of the page: how much there was when, the moment that is shown, and a range of time.
import { useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { lines } from "./api";
import { useWidth } from "./charts/width";
import { ago, clock, moment, parseMoment } from "./format";
import type { Point } from "./history";
import { useAnswer } from "./hooks";
import { at, begins, param, say, serverNow, set, skew } from "./state";

/** Nearer to now than this is now, ms. */
const NEAR = 1500;
/** How often the newest of the histogram is asked for, and all of it, ms. */
const EVERY = 10_000;
const WHOLE = 600_000;
/** Slices that are younger still change, ms. */
const SETTLED = 60_000;
/** Height of the histogram, px, and a move that selects a range. */
const HIGH = 26;
const MOVED = 5;
const SPANS: [number, string][] = [
  [15 * 60e3, "15 min"],
  [3600e3, "1 h"],
  [6 * 3600e3, "6 h"],
  [24 * 3600e3, "1 day"],
  [7 * 24 * 3600e3, "7 days"],
  [0, "all"],
];
const RANGES: [number, string][] = [
  [0, "no range"],
  [5 * 60e3, "5 min before"],
  [15 * 60e3, "15 min before"],
  [3600e3, "1 h before"],
  [6 * 3600e3, "6 h before"],
  [24 * 3600e3, "1 day before"],
];

export function Timeline() {
  const turn = useSignal(0);
  const span = useSignal(3600e3);
  useEffect(() => {
    const timer = setInterval(() => {
      turn.value += 1;
    }, 1000);
    return () => clearInterval(timer);
  }, []);
  // In steps of a second, so that the slider reaches both ends.
  turn.value;
  skew.value;
  const end = Math.ceil(serverNow() / 1000) * 1000;
  const first = begins.value ?? end - 60e3;
  const start = Math.floor(Math.min(end - 10e3, Math.max(first, span.value ? end - span.value : first)) / 1000) * 1000;
  const shown = at.value ?? end;
  const from = Number(param("from")) || null;
  const goTo = (ms: number, near = NEAR) => {
    const chosen = Math.round(Math.max(ms, first));
    // A range ends at the moment that is shown.
    const range = from !== null ? String(Math.round(chosen - (shown - from))) : "";
    set({ at: end - ms < near ? "" : String(chosen), ...(range ? { from: range } : {}) });
  };
  const select = (a: number, b: number) => {
    const [begin, until] = [Math.min(a, b), Math.max(a, b)];
    set({ from: String(Math.round(Math.max(begin, first))), at: end - until < NEAR ? "" : String(Math.round(until)) });
  };
  const ticks = [0, 0.25, 0.5, 0.75].map((share) => start + (end - start) * share);
  const label = (ms: number) => (end - start > 20 * 3600e3 ? moment(ms, true) : clock(ms, end - start > 600e3 ? "minutes" : "seconds"));
  const range = from !== null ? shown - from : 0;
  return (
    <section class={at.value === null ? "timeline" : "timeline past"} aria-label="Time line">
      <button type="button" class="live" aria-pressed={at.value === null} onClick={() => set({ at: "", from: "" })}>
        <span aria-hidden="true">●</span> Live
      </button>
      <div class="track">
        <Histogram start={start} end={end} from={from} shown={shown} goTo={goTo} select={select} />
        <input
          type="range"
          aria-label="Moment that is shown"
          aria-valuetext={at.value === null ? "now" : moment(shown)}
          min={start}
          max={end}
          step={1000}
          value={Math.min(Math.max(shown, start), end)}
          // One step by keys is away from now.
          onInput={(event) => goTo(Number(event.currentTarget.value), 500)}
        />
        <div class="ticks" aria-hidden="true">
          {ticks.map((ms, i) => (
            <span key={i}>{label(ms)}</span>
          ))}
          <span>now</span>
        </div>
      </div>
      <label class="sr" for="moment">Moment</label>
      <input
        id="moment"
        type="text"
        size={21}
        spellcheck={false}
        autocomplete="off"
        title="A time, a day and a time, or how long ago: 14:05, 11-25 14:05:30, -10m"
        value={moment(shown)}
        onChange={(event) => {
          const ms = parseMoment(event.currentTarget.value, end);
          if (ms === null || ms > end + 1000) {
            say("A moment is a time like 14:05 or 2026-11-25 14:05:30, or so long ago like -10m; not in the future", true);
            event.currentTarget.value = moment(shown);
          } else goTo(ms);
        }}
      />
      <label>
        <span class="sr">Range of time up to the moment</span>
        <select
          value={RANGES.some(([ms]) => ms === range) ? range : -1}
          onChange={(event) => {
            const ms = Number(event.currentTarget.value);
            set({ from: ms > 0 ? String(Math.round(shown - ms)) : "" });
          }}
        >
          {RANGES.map(([ms, name]) => <option key={ms} value={ms}>{name}</option>)}
          {!RANGES.some(([ms]) => ms === range) && <option value={-1}>{`${clock(from!, "minutes")} – ${at.value === null ? "now" : clock(shown, "minutes")}`}</option>}
        </select>
      </label>
      <label>
        <span class="sr">Span of the time line</span>
        <select value={span.value} onChange={(event) => (span.value = Number(event.currentTarget.value))}>
          {SPANS.map(([ms, name]) => (
            <option key={ms} value={ms}>{name}</option>
          ))}
        </select>
      </label>
      <button
        type="button"
        title="Copy a link that shows the same at the same moment"
        onClick={() => {
          if (at.value === null) set({ at: String(Math.round(serverNow() - NEAR)) });
          navigator.clipboard?.writeText(location.href).then(
            () => say("Link copied"),
            () => say("The link is in the address bar"),
          ) ?? say("The link is in the address bar");
        }}
      >
        Bookmark
      </button>
      <span class="quiet wide">{at.value === null ? "" : ago(shown, end)}</span>
    </section>
  );
}

/** Bytes of all services over time, red by the share of attempts that failed; a click selects a moment, a drag a range. */
function Histogram({ start, end, from, shown, goTo, select }: {
  start: number;
  end: number;
  from: number | null;
  shown: number;
  goTo: (ms: number) => void;
  select: (a: number, b: number) => void;
}) {
  const [place, width] = useWidth();
  const begun = useSignal<number | null>(null);
  const reached = useSignal(0);
  // Steps of half a minute: the picture need not be asked for each second.
  const key = Math.floor(start / 30e3);
  const known = useRef({ key: -1, points: new Map<string, Point>(), asked: 0 });
  const answer = useAnswer(`histogram ${key}`, async (signal) => {
    const now = serverNow();
    const kept = known.current;
    // Only what is new, unless the time line shows another time, or slices have become longer.
    const again = Math.abs(key - kept.key) > 1 || now - kept.asked > WHOLE;
    const newest = Math.max(0, ...[...kept.points.keys()].map((one) => Date.parse(one)));
    const begin = again ? start : Math.max(start, newest - SETTLED);
    const query = new URLSearchParams({ from: String(Math.floor(begin)), until: String(Math.ceil(now)) });
    // An older server has none.
    const { rows } = await lines<Point>(`/api/services/history?${query}`, signal).catch(() => ({ rows: [] as Point[] }));
    if (again) Object.assign(kept, { points: new Map(), asked: now });
    kept.key = key;
    for (const point of rows) kept.points.set(point.start, point);
    return [...kept.points.values()].filter((point) => Date.parse(point.start) + point.seconds * 1000 > start);
  }, EVERY);
  const data = answer.value.data ?? [];
  const amount = (point: Point) => point.bytes / point.seconds;
  const most = Math.max(1, ...data.map(amount));
  const x = (ms: number) => ((ms - start) / (end - start)) * width;
  const ms = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    return start + Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * (end - start);
  };
  const selecting = begun.value !== null && Math.abs(x(reached.value) - x(begun.value)) > MOVED;
  const [a, b] = selecting ? [Math.min(begun.value!, reached.value), Math.max(begun.value!, reached.value)] : [from, from === null ? null : shown];
  return (
    <div class="histogram" ref={place}>
      <svg
        width={width}
        height={HIGH}
        aria-hidden="true"
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          begun.value = reached.value = ms(event);
        }}
        onPointerMove={(event) => {
          if (begun.value !== null) reached.value = ms(event);
        }}
        onPointerUp={(event) => {
          if (begun.value === null) return;
          const [one, other] = [begun.value, ms(event)];
          begun.value = null;
          if (Math.abs(x(one) - x(other)) > MOVED) select(one, other);
          else goTo(other);
        }}
        onPointerCancel={() => (begun.value = null)}
      >
        <title>Traffic over time: click for a moment, drag for a range</title>
        <rect class="ground" width={width} height={HIGH} />
        {data.map((point) => {
          const left = x(Date.parse(point.start));
          const wide = Math.max(1, x(Date.parse(point.start) + point.seconds * 1000) - left - 0.5);
          const high = Math.max(1, HIGH * Math.sqrt(amount(point) / most));
          const failed = Math.min(1, point.failed / Math.max(1, point.connections));
          return (
            <g key={point.start}>
              <rect class="act" x={left} y={HIGH - high} width={wide} height={high} />
              {failed > 0 && <rect class="failing" x={left} y={HIGH - high} width={wide} height={Math.max(2, high * failed)} />}
            </g>
          );
        })}
        {a !== null && b !== null && <rect class="selected" x={x(a)} y={0} width={Math.max(2, x(b) - x(a))} height={HIGH} />}
      </svg>
    </div>
  );
}
