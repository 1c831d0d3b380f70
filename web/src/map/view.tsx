import { useSignal, useSignalEffect } from "@preact/signals";
import { select } from "d3-selection";
import { zoom, zoomIdentity, type ZoomTransform } from "d3-zoom";
import { useEffect, useRef } from "preact/hooks";
import { brief, plain, rate } from "../format";
import { picture, pastError, pulse, shape, type Spot } from "../mapdata";
import { connection, dark, param, route, set } from "../state";
import { Details } from "./details";
import { draw, type Camera, type Colour, type Look } from "./draw";
import { Arranger, type Chip, type Plan } from "./layout";

const COLOURS: [Colour, string][] = [
  ["state", "State"],
  ["rate", "Rate"],
  ["drops", "Drops"],
  ["errors", "Errors"],
];
/** Results of a search that are listed. */
const LISTED = 60;
/** Time of a move to a new place, ms. */
const MOVE = 260;

/** Kept while other views are shown, so that everything stands where it stood. */
const arranger = new Arranger();
let lastCamera: Camera | null = null;

function matches(spot: Spot, words: string[]): boolean {
  const text = [spot.Name, spot.Type, spot.MAC, spot.Host, ...(spot.IP ?? [])].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

/** Between two plans, for what is in both. */
function between(before: Plan, after: Plan, share: number): Plan {
  const part = <T extends Chip>(chip: T): T => {
    const old = before.places.get(chip.spot.N);
    if (!old) return chip;
    const mix = (a: number, b: number) => a + (b - a) * share;
    return { ...chip, x: mix(old.x, chip.x), y: mix(old.y, chip.y), w: mix(old.w, chip.w), h: mix(old.h, chip.h) };
  };
  const boxes = after.boxes.map(part);
  const chips = after.chips.map(part);
  const places = new Map<number, Chip>([...boxes, ...chips].map((chip) => [chip.spot.N, chip]));
  for (const [n, chip] of after.places) if (!places.has(n)) places.set(n, chip);
  const cables = after.cables.map((cable) => ({
    ...cable,
    from: places.get(cable.from.spot.N) ?? cable.from,
    to: places.get(cable.to.spot.N) ?? cable.to,
  }));
  return { ...after, boxes, chips, cables, places };
}

export function MapView() {
  const canvas = useRef<HTMLCanvasElement>(null);
  const hover = useSignal<{ spot: Spot; x: number; y: number } | null>(null);
  const search = param("find");
  const colour = param("colour", "rate") as Colour;
  const selected = param("node");
  const way = param("path");
  const engine = useRef<Engine | null>(null);

  useEffect(() => {
    const built = new Engine(canvas.current!, (spot, x, y) => {
      hover.value = spot ? { spot, x, y } : null;
    });
    engine.current = built;
    return () => built.stop();
  }, []);
  useSignalEffect(() => {
    shape.value;
    engine.current?.rearrange();
  });
  useSignalEffect(() => {
    pulse.value;
    dark.value;
    connection.value;
    route.value;
    engine.current?.refresh();
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
      <div class="map-stage">
        <canvas
          ref={canvas}
          tabIndex={0}
          role="application"
          aria-label={`Map of ${picture.nodes.size} nodes. Arrow keys move, plus and minus zoom, 0 shows all; nodes can be found by the search field.`}
        />
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

/** The canvas: what is drawn when, and what pointer and keys do. */
class Engine {
  private plan: Plan = { boxes: [], chips: [], cables: [], places: new Map(), width: 0, height: 0 };
  private before: Plan | null = null;
  private moved = 0;
  private camera: Camera = lastCamera ?? { x: 0, y: 0, k: 1 };
  private frame = 0;
  private hovered: number | null = null;
  private fitted = lastCamera !== null;
  private readonly zooming = zoom<HTMLCanvasElement, unknown>().scaleExtent([0.02, 4]);
  private readonly observer: ResizeObserver;
  private readonly calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  /** Frames since the page began, for measurements. */
  static frames = 0;

  constructor(
    private readonly canvas: HTMLCanvasElement,
    private readonly hover: (spot: Spot | null, x: number, y: number) => void,
  ) {
    this.zooming.on("zoom", (event: { transform: ZoomTransform }) => {
      this.camera = { x: event.transform.x, y: event.transform.y, k: event.transform.k };
      lastCamera = this.camera;
      this.refresh();
    });
    const area = select(canvas);
    area.call(this.zooming).on("dblclick.zoom", null);
    area.call(this.zooming.transform, zoomIdentity.translate(this.camera.x, this.camera.y).scale(this.camera.k));
    canvas.addEventListener("pointermove", this.pointer);
    canvas.addEventListener("pointerleave", this.leave);
    canvas.addEventListener("click", this.click);
    canvas.addEventListener("keydown", this.key);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(canvas);
  }

  stop(): void {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    this.frame = -1;
  }

  private resize(): void {
    const ratio = devicePixelRatio;
    this.canvas.width = Math.max(1, Math.round(this.canvas.clientWidth * ratio));
    this.canvas.height = Math.max(1, Math.round(this.canvas.clientHeight * ratio));
    if (!this.fitted) this.fit();
    this.paint();
  }

  rearrange(): void {
    const next = arranger.arrange(picture);
    const known = this.plan.places.size > 0;
    this.before = known && !this.calm && next.places.size < 3000 ? this.current() : null;
    this.moved = performance.now();
    this.plan = next;
    if (!this.fitted) this.fit();
    this.refresh();
  }

  private current(): Plan {
    if (!this.before) return this.plan;
    const share = Math.min(1, (performance.now() - this.moved) / MOVE);
    if (share >= 1) {
      this.before = null;
      return this.plan;
    }
    return between(this.before, this.plan, 1 - (1 - share) ** 3);
  }

  refresh(): void {
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.paint();
      if (this.before) this.refresh();
    });
  }

  private look(): Look {
    const { params } = route.peek();
    const words = (params.find ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const number = (id: string) => picture.byId.get(id) ?? picture.byTid(id);
    return {
      colour: (params.colour ?? "rate") as Colour,
      selected: params.node ? (picture.byId.get(params.node) ?? null) : null,
      hovered: this.hovered,
      path: (params.path ?? "").split(",").flatMap((id) => (id ? (number(id) ?? []) : [])),
      found: words.length
        ? new Set([...picture.nodes.values()].filter((spot) => matches(spot, words)).map((spot) => spot.N))
        : null,
      grey: connection.peek() === "gone",
    };
  }

  private paint(): void {
    const context = this.canvas.getContext("2d", { alpha: false });
    if (!context || this.canvas.clientWidth === 0) return;
    Engine.frames += 1;
    const { clientWidth, clientHeight } = this.canvas;
    draw(context, this.current(), this.camera, clientWidth, clientHeight, dark.peek(), this.look());
  }

  private move(camera: Camera): void {
    const transform = zoomIdentity.translate(camera.x, camera.y).scale(camera.k);
    select(this.canvas).call(this.zooming.transform, transform);
  }

  fit(): void {
    const { clientWidth, clientHeight } = this.canvas;
    if (!clientWidth || !this.plan.width) return;
    this.fitted = true;
    const margin = 16;
    const k = Math.min(
      1.25,
      (clientWidth - 2 * margin) / this.plan.width,
      (clientHeight - 2 * margin) / this.plan.height,
    );
    this.move({ k, x: (clientWidth - this.plan.width * k) / 2, y: margin });
  }

  /** Brings a node into the middle. */
  show(n: number): void {
    const chip = this.plan.places.get(n);
    if (!chip) return;
    const k = Math.max(this.camera.k, 0.8);
    const { clientWidth, clientHeight } = this.canvas;
    this.move({
      k,
      x: clientWidth / 2 - (chip.x + chip.w / 2) * k,
      y: clientHeight / 2 - (chip.y + Math.min(chip.h, 200) / 2) * k,
    });
  }

  zoomBy(factor: number): void {
    select(this.canvas).call(this.zooming.scaleBy, factor);
  }

  closeAll(closed: boolean): void {
    for (const spot of picture.nodes.values()) {
      if (spot.Type === "netns" || spot.Type === "container") arranger.closed.set(spot.ID, closed);
      if (!closed) arranger.closed.set(spot.ID, false);
    }
    this.rearrange();
    this.fit();
  }

  private at(event: MouseEvent): { chip: Chip | null; box: boolean; x: number; y: number } {
    const bounds = this.canvas.getBoundingClientRect();
    const x = event.clientX - bounds.left;
    const y = event.clientY - bounds.top;
    const px = (x - this.camera.x) / this.camera.k;
    const py = (y - this.camera.y) / this.camera.k;
    const hit = (chip: Chip) => px >= chip.x && px <= chip.x + chip.w && py >= chip.y && py <= chip.y + chip.h;
    const chip = this.plan.chips.find(hit);
    if (chip) return { chip, box: false, x, y };
    const box = this.plan.boxes.findLast((one) => hit(one) && py <= one.y + 26);
    return { chip: box ?? null, box: box !== undefined, x, y };
  }

  private pointer = (event: PointerEvent): void => {
    const { chip, x, y } = this.at(event);
    this.canvas.classList.toggle("pointing", chip !== null);
    const n = chip?.spot.N ?? null;
    if (n !== this.hovered) {
      this.hovered = n;
      this.refresh();
    }
    this.hover(chip?.spot ?? null, x, y);
  };

  private leave = (): void => {
    this.hovered = null;
    this.hover(null, 0, 0);
    this.refresh();
  };

  private click = (event: MouseEvent): void => {
    const { chip, box, x } = this.at(event);
    if (!chip) {
      set({ node: "" });
      return;
    }
    // The triangle of a box, or what is closed.
    const inside = (x - this.camera.x) / this.camera.k - chip.x;
    if (box && inside < 22) {
      arranger.closed.set(chip.spot.ID, !(chip as Plan["boxes"][0]).closed);
      this.rearrange();
      return;
    }
    set({ node: chip.spot.ID });
  };

  private key = (event: KeyboardEvent): void => {
    const step = 60;
    const moves: Record<string, [number, number]> = {
      ArrowLeft: [step, 0],
      ArrowRight: [-step, 0],
      ArrowUp: [0, step],
      ArrowDown: [0, -step],
    };
    const by = moves[event.key];
    if (by) this.move({ ...this.camera, x: this.camera.x + by[0], y: this.camera.y + by[1] });
    else if (event.key === "+") this.zoomBy(1.3);
    else if (event.key === "-") this.zoomBy(1 / 1.3);
    else if (event.key === "0") this.fit();
    else if (event.key === "Escape") set({ node: "" });
    else return;
    event.preventDefault();
  };
}
