import { useSignal, useSignalEffect } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { brief, plain, rate } from "../format";
import { watchMap } from "../live";
import { picture, pastError, pulse, shape, type Spot } from "../mapdata";
import { connection, dark, param, route, set } from "../state";
import { Details } from "./details";
import { Engine, matches } from "./engine";
import type { Colour } from "./palette";

const COLOURS: [Colour, string][] = [
  ["state", "State"],
  ["rate", "Rate"],
  ["drops", "Drops"],
  ["errors", "Errors"],
];
/** Results of a search that are listed. */
const LISTED = 60;
export function MapView() {
  const stage = useRef<HTMLDivElement>(null);
  const hover = useSignal<{ spot: Spot; x: number; y: number } | null>(null);
  const search = param("find");
  const colour = param("colour", "rate") as Colour;
  const selected = param("node");
  const way = param("path");
  const engine = useRef<Engine | null>(null);

  useEffect(() => {
    const built = new Engine(stage.current!, (spot, x, y) => {
      hover.value = spot ? { spot, x, y } : null;
    });
    engine.current = built;
    watchMap(true);
    return () => {
      built.stop();
      watchMap(false);
    };
  }, []);
  useSignalEffect(() => {
    shape.value;
    engine.current?.rearrange();
  });
  useSignalEffect(() => {
    pulse.value;
    engine.current?.freshen();
  });
  useSignalEffect(() => {
    dark.value;
    route.value;
    engine.current?.restyle();
  });

  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  shape.value;
  const found = words.length ? [...picture.nodes.values()].filter((spot) => matches(spot, words)) : [];
  const spot = selected ? picture.nodes.get(picture.byId.get(selected) ?? -1) : undefined;

  return (
    <div class="map">
      <div class="map-tools" role="toolbar" aria-label="Map">
        <input
          type="search"
          placeholder="Find name, address, type"
          aria-label="Find nodes"
          value={search}
          onInput={(event) => set({ find: event.currentTarget.value })}
        />
        <label>
          Colour by{" "}
          <select value={colour} onChange={(event) => set({ colour: event.currentTarget.value })}>
            {COLOURS.map(([value, name]) => (
              <option key={value} value={value}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <span class="buttons">
          <button type="button" aria-label="Zoom in" onClick={() => engine.current?.zoomBy(1.4)}>+</button>
          <button type="button" aria-label="Zoom out" onClick={() => engine.current?.zoomBy(1 / 1.4)}>−</button>
          <button type="button" onClick={() => engine.current?.fit()}>Fit</button>
          <button type="button" onClick={() => engine.current?.closeAll(true)}>Collapse</button>
          <button type="button" onClick={() => engine.current?.closeAll(false)}>Expand</button>
        </span>
        {way && (
          <button type="button" onClick={() => set({ path: "" })}>
            Clear path
          </button>
        )}
        <span class="quiet" aria-live="polite">
          {picture.nodes.size} nodes{words.length ? `, ${found.length} found` : ""}
        </span>
      </div>
      {words.length > 0 && (
        <ul class="found" aria-label="Nodes found">
          {found.slice(0, LISTED).map((one) => (
            <li key={one.ID}>
              <button
                type="button"
                aria-pressed={one.ID === selected}
                onClick={() => {
                  set({ node: one.ID });
                  engine.current?.show(one.N);
                }}
              >
                <bdi>{brief(one.Name, 40)}</bdi> <span class="quiet">{plain(one.Type)} {one.IP?.[0] ?? ""}</span>
              </button>
            </li>
          ))}
          {found.length > LISTED && <li class="quiet">and {found.length - LISTED} more</li>}
        </ul>
      )}
      <div class={connection.value === "unreachable" ? "map-stage old" : "map-stage"}>
        <div
          ref={stage}
          class="surface"
          tabIndex={0}
          role="application"
          aria-label={`Map of ${picture.nodes.size} nodes. Arrow keys move, plus and minus zoom, 0 shows all; nodes can be found by the search field.`}
        >
          <canvas />
          <canvas />
          <canvas class="marks" />
        </div>
        {hover.value && (
          <div
            class="tip"
            role="tooltip"
            ref={(tip) => {
              if (!tip || !hover.value) return;
              tip.style.left = `${hover.value.x + 14}px`;
              tip.style.top = `${hover.value.y + 14}px`;
            }}
          >
            <b><bdi>{brief(hover.value.spot.Name, 80)}</bdi></b> {plain(hover.value.spot.Type)}
            {hover.value.spot.State ? ` · ${plain(hover.value.spot.State)}` : ""}
            {hover.value.spot.IP?.map((address) => <div key={address}>{plain(address)}</div>)}
            {hover.value.spot.rates[0] + hover.value.spot.rates[1] > 0 && (
              <div>
                ↓ {rate(hover.value.spot.rates[0])} ↑ {rate(hover.value.spot.rates[1])}
              </div>
            )}
          </div>
        )}
        {pastError.value && <p class="floating" role="alert">{plain(pastError.value)}</p>}
        {picture.nodes.size === 0 && !pastError.value && <p class="floating quiet">Nothing yet.</p>}
        <Legend colour={colour} />
      </div>
      {selected && <Details key={selected} id={selected} spot={spot} />}
    </div>
  );
}

function Legend({ colour }: { colour: Colour }) {
  const text = {
    state: "full dot: up · ring: down · ●: captured",
    rate: "to 10 kbit/s … 1 Gbit/s and more",
    drops: "dropped packets: 1 … 10,000 a second",
    errors: "errors: 1 … 10,000 a second",
  }[colour];
  return (
    <p class="legend">
      {colour !== "state" && (
        <span class="heat" aria-hidden="true">
          {[1, 2, 3, 4, 5, 6].map((step) => (
            <i key={step} class={`heat-${step}`} />
          ))}
        </span>
      )}
      {text}
    </p>
  );
}
