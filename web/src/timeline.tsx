// The slider of the page: the moment that is shown.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { ago, clock, moment } from "./format";
import { at, begins, say, serverNow, set, skew } from "./state";

/** Nearer to now than this is now, ms. */
const NEAR = 1500;
const SPANS: [number, string][] = [
  [15 * 60e3, "15 min"],
  [3600e3, "1 h"],
  [6 * 3600e3, "6 h"],
  [24 * 3600e3, "1 day"],
  [7 * 24 * 3600e3, "7 days"],
  [0, "all"],
];

const local = (ms: number) => {
  const date = new Date(ms - new Date(ms).getTimezoneOffset() * 60e3);
  return date.toISOString().slice(0, 19);
};

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
  const goTo = (ms: number) => {
    set({ at: end - ms < NEAR ? "" : String(Math.round(Math.max(ms, first))) });
  };
  const ticks = [0, 0.25, 0.5, 0.75].map((share) => start + (end - start) * share);
  const label = (ms: number) => (end - start > 20 * 3600e3 ? moment(ms).slice(5, 16) : clock(ms));
  return (
    <section class={at.value === null ? "timeline" : "timeline past"} aria-label="Time line">
      <button type="button" class="live" aria-pressed={at.value === null} onClick={() => set({ at: "" })}>
        <span aria-hidden="true">●</span> Live
      </button>
      <div class="track">
        <input
          type="range"
          aria-label="Moment that is shown"
          aria-valuetext={at.value === null ? "now" : moment(shown)}
          min={start}
          max={end}
          step={1000}
          value={Math.min(Math.max(shown, start), end)}
          onInput={(event) => goTo(Number(event.currentTarget.value))}
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
        type="datetime-local"
        step={1}
        value={local(shown)}
        max={local(end)}
        onChange={(event) => {
          const ms = new Date(event.currentTarget.value).getTime();
          if (Number.isFinite(ms)) goTo(ms);
        }}
      />
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
