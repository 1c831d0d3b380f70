// Amounts over time, on top of each other: bars, because a slice of time has a begin and an end.
import { useSignal } from "@preact/signals";
import { brief, clock, moment } from "../format";
import { useWidth } from "./width";

/** What a name has in a slice of time. */
export interface Slice {
  /** ms since the Unix epoch. */
  start: number;
  ms: number;
  name: string;
  value: number;
}

const LEFT = 76;
const BOTTOM = 20;
const TOP = 6;

/** The colour of the n-th name: one of eight of the style sheet. */
export const colourOf = (n: number, name: string) => (name === "others" ? "series-rest" : `series-${n % 8}`);

/** A round number at or above, and the lines at it and below. */
export function scale(most: number, steps = 3): number[] {
  if (most <= 0) return [0, 1];
  const raw = most / steps;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((one) => one * power >= raw)! * power;
  return Array.from({ length: Math.ceil(most / step - 1e-9) + 1 }, (_, i) => i * step);
}

/** The names of slices, those with most first; the rest last. */
export function namesOf(slices: Slice[]): string[] {
  const sums = new Map<string, number>();
  for (const { name, value, ms } of slices) sums.set(name, (sums.get(name) ?? 0) + value * ms);
  return [...sums].sort((a, b) => Number(a[0] === "others") - Number(b[0] === "others") || b[1] - a[1]).map(([name]) => name);
}

export function Stacked({ slices, from, until, format, label, height = 190, legend = true, choose }: {
  slices: Slice[];
  from: number;
  until: number;
  format: (value: number) => string;
  label: string;
  height?: number;
  legend?: boolean;
  /** What a click on a name does. */
  choose?: (name: string) => void;
}) {
  const [place, width] = useWidth();
  const over = useSignal<number | null>(null);
  const names = namesOf(slices);
  const order = new Map(names.map((name, i) => [name, i]));
  const byTime = new Map<number, Slice[]>();
  for (const slice of slices) byTime.set(slice.start, [...(byTime.get(slice.start) ?? []), slice]);
  const columns = [...byTime].sort((a, b) => a[0] - b[0]);
  const most = Math.max(0, ...columns.map(([, all]) => all.reduce((sum, one) => sum + one.value, 0)));
  const marks = scale(most);
  const top = marks[marks.length - 1]!;
  const x = (ms: number) => LEFT + ((ms - from) / Math.max(1, until - from)) * (width - LEFT - 4);
  const y = (value: number) => TOP + (1 - value / top) * (height - TOP - BOTTOM);
  const long = until - from > 20 * 3600e3;
  const time = (ms: number) => (long ? moment(ms, true) : clock(ms, "minutes"));
  const shown = over.value === null ? undefined : columns.find(([start]) => start === over.value);
  const ticks = Math.max(2, Math.min(6, Math.floor(width / 130)));
  return (
    <div class="stacked" ref={place}>
      <svg width={width} height={height} role="img" aria-label={`${label}: ${names.length} of ${columns.length} slices of time`}
        onMouseLeave={() => (over.value = null)}>
        {marks.map((mark) => (
          <g key={mark} class="mark">
            <line x1={LEFT} x2={width - 4} y1={y(mark)} y2={y(mark)} />
            <text x={LEFT - 6} y={y(mark) + 4} text-anchor="end">{mark ? format(mark) : "0"}</text>
          </g>
        ))}
        {Array.from({ length: ticks }, (_, i) => from + ((until - from) * i) / (ticks - 1)).map((ms, i) => (
          <text key={i} class="tick" x={x(ms)} y={height - 4} text-anchor={i === 0 ? "start" : i === ticks - 1 ? "end" : "middle"}>{time(ms)}</text>
        ))}
        {columns.map(([start, all]) => {
          const left = Math.max(LEFT, x(start));
          const right = Math.min(width - 4, x(start + all[0]!.ms));
          let sum = 0;
          const sorted = [...all].sort((a, b) => order.get(a.name)! - order.get(b.name)!);
          return (
            <g key={start} class={over.value === start ? "column over" : "column"} onMouseEnter={() => (over.value = start)}>
              <rect x={left} width={Math.max(1, right - left)} y={TOP} height={height - TOP - BOTTOM} class="ground" />
              {sorted.map((one) => {
                const bottom = y(sum);
                sum += one.value;
                return (
                  <rect key={one.name} class={colourOf(order.get(one.name)!, one.name)} x={left} y={y(sum)}
                    width={Math.max(1, right - left - (right - left > 4 ? 1 : 0))} height={Math.max(0, bottom - y(sum))} />
                );
              })}
            </g>
          );
        })}
      </svg>
      {legend && (
        <ul class="key">
          <li class="quiet time">{shown ? `${time(shown[0])}, ${format(shown[1].reduce((sum, one) => sum + one.value, 0))}` : `${time(from)} – ${time(until)}`}</li>
          {names.map((name, i) => {
            const value = shown?.[1].find((one) => one.name === name)?.value;
            const text = `${brief(name, 34)}${shown ? ` ${format(value ?? 0)}` : ""}`;
            return (
              <li key={name}>
                <i class={colourOf(i, name)} aria-hidden="true" />
                {choose && name !== "others" ? <button type="button" class="plain" onClick={() => choose(name)}>{text}</button> : text}
              </li>
            );
          })}
        </ul>
      )}
    </div>
  );
}
