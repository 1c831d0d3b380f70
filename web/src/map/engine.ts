// The map's engine: scheduling of drawings, and handling of pointer and keys.
import { select } from "d3-selection";
import { zoom, zoomIdentity, type ZoomTransform } from "d3-zoom";
import { picture, type Spot } from "../mapdata";
import { dark, route, set } from "../state";
import { mark, type Camera, type DrawOptions, type Marks, type Sight } from "./draw";
import { Arranger, type Box, type Chip, type Plan } from "./layout";
import type { Colour } from "./palette";
import { Sheets } from "./sheet";

/** Duration of a move, ms. */
const MOVE = 260;
/** Nodes at most that are moved there step by step. */
const MOVED = 500;
/** Layout may take one part in this many of the page's time. */
const SHARE = 8;

/** Survives a change of the view, so that positions stay. */
const arranger = new Arranger();
let lastCamera: Camera | null = null;

/** Whether all words are in a node's names. */
export function matches(spot: Spot, words: string[]): boolean {
  const text = [spot.Name, spot.Type, spot.MAC, spot.Host, ...(spot.IP ?? [])].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

/** Interpolates between two plans, for nodes in both. */
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

export class Engine {
  private plan: Plan = { boxes: [], chips: [], cables: [], places: new Map(), width: 0, height: 0 };
  private before: Plan | null = null;
  private moved = 0;
  private camera: Camera = lastCamera ?? { x: 0, y: 0, k: 1 };
  private frame = 0;
  private waiting: ReturnType<typeof setTimeout> | undefined;
  private arranged = 0;
  private hovered: number | null = null;
  private fitted = lastCamera !== null;
  private style = "";
  private marked = "";
  private readonly zooming = zoom<HTMLElement, unknown>().scaleExtent([0.02, 4]);
  private readonly observer: ResizeObserver;
  private readonly calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  private readonly sheets: Sheets;
  private readonly over: Sight & { canvas: HTMLCanvasElement };

  constructor(
    private readonly surface: HTMLElement,
    private readonly hover: (spot: Spot | null, x: number, y: number) => void,
  ) {
    const [first, second, marks] = surface.querySelectorAll("canvas");
    this.sheets = new Sheets(first!, second!);
    this.sheets.show(this.plan, this.options());
    const context = marks!.getContext("2d")!;
    this.over = { canvas: marks!, context, camera: this.camera, width: 1, height: 1, ratio: 1 };
    this.zooming.on("zoom", (event: { transform: ZoomTransform }) => {
      this.camera = { x: event.transform.x, y: event.transform.y, k: event.transform.k };
      lastCamera = this.camera;
      this.refresh();
    });
    const area = select(surface);
    area.call(this.zooming).on("dblclick.zoom", null);
    area.call(this.zooming.transform, zoomIdentity.translate(this.camera.x, this.camera.y).scale(this.camera.k));
    surface.addEventListener("pointermove", this.pointer);
    surface.addEventListener("pointerleave", this.leave);
    surface.addEventListener("click", this.click);
    surface.addEventListener("keydown", this.key);
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(surface);
  }

  stop(): void {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
    clearTimeout(this.waiting);
    this.frame = -1;
  }

  private resize(): void {
    const { clientWidth, clientHeight } = this.surface;
    const { over } = this;
    over.ratio = devicePixelRatio;
    over.width = clientWidth;
    over.height = clientHeight;
    over.canvas.width = Math.max(1, Math.round(clientWidth * over.ratio));
    over.canvas.height = Math.max(1, Math.round(clientHeight * over.ratio));
    this.marked = "";
    this.sheets.resize(clientWidth, clientHeight);
    if (!this.fitted) this.fit();
    this.paint();
  }

  /** Nodes or edges are others. Of many changes one after the other the last one counts. */
  rearrange(): void {
    if (this.waiting !== undefined) return;
    const wait = this.arranged - performance.now();
    if (wait > 0) this.waiting = setTimeout(() => this.arrange(), wait);
    else this.arrange();
  }

  private arrange(): void {
    clearTimeout(this.waiting);
    this.waiting = undefined;
    const begin = performance.now();
    const next = arranger.arrange(picture);
    const end = performance.now();
    this.arranged = end + SHARE * (end - begin);
    const known = this.plan.places.size > 0;
    this.before = known && !this.calm && next.places.size < MOVED ? this.current() : null;
    this.moved = end;
    this.plan = next;
    this.marked = "";
    this.sheets.show(next, this.options());
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

  /** Rates are others. */
  freshen(): void {
    this.sheets.freshen();
  }

  /** Selection, search result or colouring may have changed. */
  restyle(): void {
    const { params } = route.peek();
    const style = [params.colour, params.find, dark.peek()].join("\n");
    if (style !== this.style) this.sheets.show(this.plan, this.options());
    this.style = style;
    this.refresh();
  }

  private refresh(): void {
    if (this.frame !== 0) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.paint();
    });
  }

  private options(): DrawOptions {
    const { params } = route.peek();
    const words = (params.find ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    const found = [...picture.nodes.values()].filter((spot) => words.length > 0 && matches(spot, words));
    return {
      colour: (params.colour ?? "rate") as Colour,
      dark: dark.peek(),
      found: words.length ? new Set(found.map((spot) => spot.N)) : null,
    };
  }

  private marks(): Marks {
    const { params } = route.peek();
    const number = (id: string) => picture.byId.get(id) ?? picture.byTid(id);
    return {
      selected: params.node ? (picture.byId.get(params.node) ?? null) : null,
      hovered: this.hovered,
      path: (params.path ?? "").split(",").flatMap((id) => (id ? (number(id) ?? []) : [])),
    };
  }

  private paint(): void {
    if (this.surface.clientWidth === 0) return;
    let plan = this.plan;
    if (this.before) {
      plan = this.current();
      this.sheets.show(plan, this.options());
      this.sheets.hurry();
      this.marked = "";
    }
    const more = this.sheets.frame(this.camera);
    this.mark(plan);
    if (more || this.before) this.refresh();
  }

  /** Redraws marks after a change. */
  private mark(plan: Plan): void {
    const marks = this.marks();
    const some = marks.selected !== null || marks.hovered !== null || marks.path.length > 0;
    const key = some ? JSON.stringify([marks, this.camera, dark.peek()]) : "none";
    if (key === this.marked) return;
    this.marked = key;
    this.over.canvas.hidden = !some;
    this.over.camera = this.camera;
    if (some) mark(this.over, plan, marks, dark.peek());
  }

  private move(camera: Camera): void {
    const transform = zoomIdentity.translate(camera.x, camera.y).scale(camera.k);
    select(this.surface).call(this.zooming.transform, transform);
  }

  fit(): void {
    const { clientWidth, clientHeight } = this.surface;
    if (!clientWidth || !this.plan.width) return;
    this.fitted = true;
    const margin = 16;
    const k = Math.min(
      1.25,
      (clientWidth - 2 * margin) / this.plan.width,
      (clientHeight - 2 * margin) / this.plan.height,
    );
    this.sheets.hurry();
    this.move({ k, x: (clientWidth - this.plan.width * k) / 2, y: margin });
  }

  /** Brings a node into the middle. */
  show(n: number): void {
    const chip = this.plan.places.get(n);
    if (!chip) return;
    const k = Math.max(this.camera.k, 0.8);
    const { clientWidth, clientHeight } = this.surface;
    this.sheets.hurry();
    this.move({
      k,
      x: clientWidth / 2 - (chip.x + chip.w / 2) * k,
      y: clientHeight / 2 - (chip.y + Math.min(chip.h, 200) / 2) * k,
    });
  }

  zoomBy(factor: number): void {
    select(this.surface).call(this.zooming.scaleBy, factor);
  }

  closeAll(closed: boolean): void {
    for (const spot of picture.nodes.values()) {
      if (spot.Type === "netns" || spot.Type === "container") arranger.closed.set(spot.ID, closed);
      if (!closed) arranger.closed.set(spot.ID, false);
    }
    this.arrange();
    this.fit();
  }

  private at(event: MouseEvent): { chip: Chip | null; box: boolean; x: number; y: number } {
    const bounds = this.surface.getBoundingClientRect();
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
    this.surface.classList.toggle("pointing", chip !== null);
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
    // The triangle of a box, or the closed box itself.
    const inside = (x - this.camera.x) / this.camera.k - chip.x;
    if (box && inside < 22) {
      arranger.closed.set(chip.spot.ID, !(chip as Box).closed);
      this.arrange();
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
