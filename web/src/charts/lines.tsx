// Lines over time, with uPlot.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { clock, moment } from "../format";
import { dark } from "../state";

export interface Series {
  name: string;
  values: (number | null)[];
}

const STROKES = { light: ["#0b6e8f", "#b0562b", "#5d6b9e", "#3d7f4f"], dark: ["#5cc3e0", "#f0b35a", "#a6b4f0", "#7fd596"] };

/** A chart as wide as its container; times in seconds since 1970. */
export function Chart({ times, series, format, height = 130, label }: {
  times: number[];
  series: Series[];
  format: (value: number) => string;
  height?: number;
  label: string;
}) {
  const place = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const theme = dark.value;
  const names = series.map((one) => one.name).join("|");
  const data = [times, ...series.map((one) => one.values)] as uPlot.AlignedData;
  useEffect(() => {
    const element = place.current!;
    const text = theme ? "#94a6b4" : "#586874";
    const grid = { stroke: theme ? "#243540" : "#e2e8ed", width: 1 };
    const strokes = theme ? STROKES.dark : STROKES.light;
    const long = (times[times.length - 1] ?? 0) - (times[0] ?? 0) > 20 * 3600;
    const timeText = (seconds: number) => (long ? moment(seconds * 1000, true) : clock(seconds * 1000));
    const axis = { stroke: text, grid, ticks: grid, font: "11px system-ui, sans-serif" };
    const built = new uPlot(
      {
        width: element.clientWidth || 300,
        height,
        cursor: { y: false },
        legend: { live: true },
        axes: [{ ...axis, space: 78, values: (_, all) => all.map(timeText) }, { ...axis, size: 82, values: (_, all) => all.map((value) => format(value)) }],
        series: [
          { value: (_, value) => (value === null ? "" : timeText(value)) },
          ...series.map((one, i) => ({
            label: one.name,
            stroke: strokes[i % strokes.length]!,
            width: 1.5,
            points: { show: times.length < 40, size: 4 },
            value: (_: uPlot, value: number | null) => (value === null ? "–" : format(value)),
          })),
        ],
      },
      data,
      element,
    );
    plot.current = built;
    const observer = new ResizeObserver(() => {
      if (element.clientWidth) built.setSize({ width: element.clientWidth, height });
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
      built.destroy();
      plot.current = null;
    };
  }, [theme, names, height]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [times, series]);
  return <div class="chart" role="img" aria-label={label} ref={place} />;
}
