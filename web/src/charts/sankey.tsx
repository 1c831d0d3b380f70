// Who sends how much to whom: bands between columns of names, as wide as what they stand for.
import { brief } from "../format";
import { colourOf } from "./stack";
import { useWidth } from "./width";

/** An amount from the name in each column to that in the next. */
export interface Band {
  path: string[];
  value: number;
}

const BAR = 10;
const GAP = 6;
/** What a name takes at least, px: its text. */
const TEXT = 16;
/** Names in a column; the rest is one more. */
const MOST = 10;
const REST = "others";

export function Sankey({ bands, heads, format, label, choose }: {
  bands: Band[];
  /** What the columns are. */
  heads: string[];
  format: (value: number) => string;
  label: string;
  choose?: (from: string, to: string) => void;
}) {
  const [place, width] = useWidth();
  // Names of columns, those with most first.
  const columns = heads.map((_, i) => {
    const sums = new Map<string, number>();
    for (const { path, value } of bands) sums.set(path[i] ?? "–", (sums.get(path[i] ?? "–") ?? 0) + value);
    const sorted = [...sums].sort((a, b) => b[1] - a[1]);
    const rest = sorted.slice(MOST).reduce((sum, [, value]) => sum + value, 0);
    return [...sorted.slice(0, MOST), ...(rest ? [[REST, rest] as [string, number]] : [])];
  });
  const total = bands.reduce((sum, { value }) => sum + value, 0);
  const rows = Math.max(...columns.map((column) => column.length));
  const height = Math.max(180, 24 + rows * 40);
  const unit = (height - 24 - (TEXT + GAP) * (rows - 1)) / Math.max(1, total);
  const takes = (value: number) => Math.max(TEXT, value * unit);
  const side = Math.min(190, width / (heads.length + 1.2));
  const x = (i: number) => (heads.length < 2 ? 0 : side + (i / (heads.length - 1)) * (width - 2 * side - BAR));
  const tops = columns.map((column) => {
    const used = column.reduce((sum, [, value]) => sum + takes(value), 0) + GAP * (column.length - 1);
    let y = 22 + Math.max(0, height - 24 - used) / 2;
    return new Map(column.map(([name, value]) => {
      const top = y + (takes(value) - value * unit) / 2;
      y += takes(value) + GAP;
      return [name, { top, value }];
    }));
  });
  const known = (i: number, name: string | undefined) => (tops[i]!.has(name ?? "–") ? (name ?? "–") : REST);
  const used = columns.map(() => new Map<string, [number, number]>());
  const drawn = heads.slice(1).flatMap((_, i) => {
    const sums = new Map<string, { from: string; to: string; value: number }>();
    for (const { path, value } of bands) {
      const [from, to] = [known(i, path[i]), known(i + 1, path[i + 1])];
      const id = `${from}\n${to}`;
      const sum = sums.get(id) ?? { from, to, value: 0 };
      sum.value += value;
      sums.set(id, sum);
    }
    const order = (name: string, at: number) => [...tops[at]!.keys()].indexOf(name);
    const sorted = [...sums.values()].sort((a, b) => order(a.from, i) - order(b.from, i) || order(a.to, i + 1) - order(b.to, i + 1));
    return sorted.map(({ from, to, value }) => {
      const out = used[i]!.get(from) ?? [0, 0];
      const into = used[i + 1]!.get(to) ?? [0, 0];
      const y1 = tops[i]!.get(from)!.top + (out[1] + value / 2) * unit;
      const y2 = tops[i + 1]!.get(to)!.top + (into[0] + value / 2) * unit;
      used[i]!.set(from, [out[0], out[1] + value]);
      used[i + 1]!.set(to, [into[0] + value, into[1]]);
      const [x1, x2] = [x(i) + BAR, x(i + 1)];
      const half = (x1 + x2) / 2;
      return { key: `${i} ${from}\n${to}`, from, to, value, path: `M${x1} ${y1}C${half} ${y1} ${half} ${y2} ${x2} ${y2}`, first: order(from, i) };
    });
  });
  return (
    <div class="sankey" ref={place}>
      <svg width={width} height={height} role="group" aria-label={label}>
        {heads.map((head, i) => (
          <text key={head} class="head" x={i === 0 ? side : i === heads.length - 1 ? x(i) + BAR : x(i) + BAR / 2} y={12}
            text-anchor={i === 0 ? "end" : i === heads.length - 1 ? "start" : "middle"}>{head}</text>
        ))}
        {drawn.map((band) => {
          const text = `${band.from} to ${band.to}: ${format(band.value)}`;
          const able = choose && band.from !== REST && band.to !== REST;
          return (
            <path key={band.key} d={band.path} class={`band ${colourOf(band.first, band.from)}`} stroke-width={Math.max(1, band.value * unit)}
              {...(able ? {
                role: "button",
                tabindex: 0,
                "aria-label": text,
                onClick: () => choose(band.from, band.to),
                onKeyDown: (event: KeyboardEvent) => event.key === "Enter" && choose(band.from, band.to),
              } : {})}>
              <title>{text}</title>
            </path>
          );
        })}
        {tops.map((column, i) => [...column].map(([name, { top, value }], n) => {
          const high = Math.max(2, value * unit);
          const end = i === 0;
          return (
            <g key={`${i} ${name}`}>
              <rect x={x(i)} y={top} width={BAR} height={high} rx={2} class={i === 0 ? colourOf(n, name) : "bar"} />
              <text x={end ? x(i) - 6 : x(i) + BAR + 6} y={top + high / 2 + 4} text-anchor={end ? "end" : "start"}>
                <title>{`${name}: ${format(value)}`}</title>
                {brief(name, Math.max(8, Math.floor(side / 8.5)))} <tspan class="amount">{format(value)}</tspan>
              </text>
            </g>
          );
        }))}
      </svg>
    </div>
  );
}
