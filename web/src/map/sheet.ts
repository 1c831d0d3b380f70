// The picture of the map, drawn on a sheet larger than the window. While the user moves the map only the
// sheet moves; a new one is drawn in the background, a part in each frame, and replaces it when it is
// complete.
import { drawing, freshen, type Camera, type DrawOptions, type Sight } from "./draw";
import type { Plan } from "./layout";

interface Sheet extends Sight {
  canvas: HTMLCanvasElement;
  keys: Float64Array;
  /** The plan that is drawn on it; none at first. */
  plan: Plan | null;
  options: DrawOptions | null;
}

/** How far a sheet extends beyond the window on each side, at most, as a share of the window. */
const MARGIN = 0.3;
/** Pixels of a sheet at most; then it has no margin. */
const PIXELS = 12e6;
/** Time for drawing in each frame while the map is moved, and while it is at rest, ms. */
const MOVING = 4;
const RESTING = 10;
/** The map is at rest when it was not moved for so long, ms. */
const REST = 90;
/** While it is zoomed a sheet serves so much smaller and larger. */
const SMALL = 0.55;
const LARGE = 2.2;

export class Sheets {
  private front: Sheet;
  private back: Sheet;
  private work: Generator<void> | null = null;
  private plan: Plan | null = null;
  private options: DrawOptions | null = null;
  private stale = true;
  private hurried = true;
  private width = 1;
  private height = 1;
  private margin = { x: 0, y: 0 };
  private last: Camera = { x: 0, y: 0, k: 1 };
  private moved = 0;

  constructor(first: HTMLCanvasElement, second: HTMLCanvasElement) {
    this.front = sheet(first);
    this.back = sheet(second);
    this.back.canvas.style.visibility = "hidden";
  }

  /** Says how large the window is. */
  resize(width: number, height: number): void {
    this.width = width;
    this.height = height;
    const ratio = devicePixelRatio;
    const large = width * height * (1 + 2 * MARGIN) ** 2 * ratio ** 2 > PIXELS;
    this.margin = large ? { x: 0, y: 0 } : { x: Math.round(width * MARGIN), y: Math.round(height * MARGIN) };
    this.restart();
    this.hurry();
  }

  /** Sets the plan to show from now on. */
  show(plan: Plan, options: DrawOptions): void {
    this.plan = plan;
    this.options = options;
    this.restart();
  }

  /** Has the next frame wait until all is drawn. */
  hurry(): void {
    this.hurried = true;
  }

  private restart(): void {
    this.work = null;
    this.stale = true;
  }

  /** Colours and numbers may be others. */
  freshen(): void {
    const { front } = this;
    if (front.plan && front.options) freshen(front, front.plan, front.options, front.keys);
  }

  /** Moves the sheet, and draws on for a while. Whether there is more to draw. */
  frame(camera: Camera): boolean {
    const now = performance.now();
    const { last } = this;
    if (camera.x !== last.x || camera.y !== last.y || camera.k !== last.k) this.moved = now;
    this.last = { ...camera };
    const moving = now - this.moved < REST && !this.hurried;
    if (!this.work && this.plan && this.options && this.needs(camera, moving)) this.begin(camera);
    if (this.work) this.draw(this.hurried ? Infinity : moving ? MOVING : RESTING);
    this.hurried = false;
    this.place(camera);
    return this.work !== null || (this.plan !== null && this.needs(camera, false));
  }

  private begin(camera: Camera): void {
    const { back, margin } = this;
    back.width = this.width + 2 * margin.x;
    back.height = this.height + 2 * margin.y;
    back.ratio = devicePixelRatio;
    const [wide, high] = [Math.round(back.width * back.ratio), Math.round(back.height * back.ratio)];
    if (back.canvas.width !== wide || back.canvas.height !== high) {
      back.canvas.width = wide;
      back.canvas.height = high;
      back.canvas.style.width = `${back.width}px`;
      back.canvas.style.height = `${back.height}px`;
    }
    back.camera = { x: camera.x + margin.x, y: camera.y + margin.y, k: camera.k };
    const chips = this.plan!.chips.length;
    if (back.keys.length !== chips) back.keys = new Float64Array(chips);
    back.plan = this.plan;
    back.options = this.options;
    this.work = drawing(back, this.plan!, this.options!, back.keys);
    this.stale = false;
  }

  private draw(budget: number): void {
    const end = performance.now() + budget;
    while (!this.work!.next().done) {
      if (performance.now() < end) continue;
      // The browser defers drawing; reading a pixel makes it draw now, and not all at once later.
      this.back.context.getImageData(0, 0, 1, 1);
      if (performance.now() > end) return;
    }
    this.work = null;
    [this.front, this.back] = [this.back, this.front];
    this.front.canvas.style.visibility = "";
    this.back.canvas.style.visibility = "hidden";
    // Changes during drawing.
    this.freshen();
  }

  /** Whether the sheet is another picture than the one that is wanted here, or soon will be. */
  private needs(camera: Camera, moving: boolean): boolean {
    const { front } = this;
    if (this.stale || !front.plan) return true;
    const zoom = camera.k / front.camera.k;
    if (zoom !== 1 && (!moving || zoom < SMALL || zoom > LARGE)) return true;
    // The sheet ends within the window, or nearly, and the plan continues.
    const left = camera.x - front.camera.x * zoom;
    const top = camera.y - front.camera.y * zoom;
    const near = { x: this.margin.x / 3, y: this.margin.y / 3 };
    const plan = this.plan!;
    const begins = { x: camera.x, y: camera.y };
    const ends = { x: camera.x + plan.width * camera.k, y: camera.y + plan.height * camera.k };
    return (
      Math.max(begins.x, -near.x) < left - 1 ||
      Math.max(begins.y, -near.y) < top - 1 ||
      Math.min(ends.x, this.width + near.x) > left + front.width * zoom + 1 ||
      Math.min(ends.y, this.height + near.y) > top + front.height * zoom + 1
    );
  }

  private place(camera: Camera): void {
    const { front } = this;
    const scale = camera.k / front.camera.k;
    // Positions between pixels would be blurred.
    const whole = (place: number) => (scale === 1 ? Math.round(place * front.ratio) / front.ratio : place);
    const x = whole(camera.x - front.camera.x * scale);
    const y = whole(camera.y - front.camera.y * scale);
    front.canvas.style.transform = `translate(${x}px, ${y}px) scale(${scale})`;
  }
}

function sheet(canvas: HTMLCanvasElement): Sheet {
  const context = canvas.getContext("2d", { alpha: false, willReadFrequently: true })!;
  const camera = { x: 0, y: 0, k: 1 };
  return { canvas, context, camera, width: 1, height: 1, ratio: 1, keys: new Float64Array(0), plan: null, options: null };
}
