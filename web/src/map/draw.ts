// Draws a plan on a canvas: from afar only shapes, nearer also names and numbers; never what is outside.
// Long drawings are split into steps, so that the map stays movable.
import { brief, rate } from "../format";
import type { Spot } from "../mapdata";
import type { Box, Cable, Chip, Plan } from "./layout";
import { heat, palette, type Colour, type Palette } from "./palette";

/** Options of a picture. */
export interface DrawOptions {
  colour: Colour;
  dark: boolean;
  /** Nodes that a search found; null without one. */
  found: Set<number> | null;
}
/** Marks over the picture. */
export interface Marks {
  selected: number | null;
  hovered: number | null;
  /** Nodes of a path, in order. */
  path: number[];
}
export interface Camera {
  x: number;
  y: number;
  k: number;
}
/** A canvas and the visible part of the plan; sizes in CSS pixels. */
export interface Sight {
  context: CanvasRenderingContext2D;
  camera: Camera;
  width: number;
  height: number;
  /** Pixels of the canvas in one CSS pixel. */
  ratio: number;
}

const FONT = "system-ui, sans-serif";
/** Names and numbers are drawn from here on. */
const NEAR = 0.42;
/** Names of large boxes are drawn from here on. */
const FAR = 0.1;
/** Things that are drawn in a step. */
const STEP = 48;
/** Curves in one stroke: long paths cost more than their parts. */
const STROKE = 12;

export const isNear = (camera: Camera) => camera.k > NEAR;

/** Whether a chip is visible. */
export function seenIn({ camera, width, height }: Sight): (chip: Chip) => boolean {
  const left = -camera.x / camera.k;
  const top = -camera.y / camera.k;
  const right = left + width / camera.k;
  const bottom = top + height / camera.k;
  return (chip) => chip.x < right && chip.x + chip.w > left && chip.y < bottom && chip.y + chip.h > top;
}

function place({ context, camera, ratio }: Sight): void {
  const k = camera.k * ratio;
  context.setTransform(k, 0, 0, k, camera.x * ratio, camera.y * ratio);
}

const isDown = (spot: Spot) => spot.State !== undefined && spot.State !== "UP" && spot.State !== "UNKNOWN";

/** The changing properties of a chip as a number; NaN for a chip that is not drawn. */
function keyOf(spot: Spot, options: DrawOptions, near: boolean): number {
  if (options.found && !options.found.has(spot.N)) return -1;
  const step = options.colour === "state" ? 0 : heat(spot, options.colour);
  // Numbers are shown with three digits.
  return near ? Number((spot.rates[0] + spot.rates[1]).toPrecision(3)) * 8 + step : step;
}

/** Draws the plan, in steps, and stores the chips' properties in `keys`. */
export function* drawing(sight: Sight, plan: Plan, options: DrawOptions, keys: Float64Array): Generator<void> {
  const { context, camera, width, height, ratio } = sight;
  const colours = palette(options.dark);
  const near = isNear(camera);
  const seen = seenIn(sight);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.globalAlpha = 1;
  context.fillStyle = colours.back;
  context.fillRect(0, 0, width, height);
  place(sight);
  context.lineWidth = 1 / Math.max(camera.k, 0.6);
  let done = 0;
  for (const box of plan.boxes) {
    if (!seen(box)) continue;
    frame(context, box, colours, camera.k);
    if (++done % STEP === 0) yield;
  }
  yield;
  context.strokeStyle = colours.cable;
  context.globalAlpha = plan.cables.length > 400 ? 0.35 : 0.75;
  context.lineWidth = 1.2 / Math.max(camera.k, 0.5);
  for (const part of parts(plan.cables, seen)) {
    context.beginPath();
    for (const cable of part) curve(context, cable.from, cable.to);
    context.stroke();
    yield;
  }
  context.globalAlpha = 1;
  context.lineWidth = 1 / Math.max(camera.k, 0.6);
  keys.fill(NaN);
  for (let i = 0; i < plan.chips.length; i++) {
    const chip = plan.chips[i]!;
    if (!seen(chip)) continue;
    keys[i] = keyOf(chip.spot, options, near);
    if (near) whole(context, chip, options, colours);
    else spot(context, chip, options, colours);
    if (++done % STEP === 0) yield;
  }
}

/** Redraws chips whose properties have changed. */
export function freshen(sight: Sight, plan: Plan, options: DrawOptions, keys: Float64Array): void {
  const { context, camera } = sight;
  const colours = palette(options.dark);
  const near = isNear(camera);
  place(sight);
  for (let i = 0; i < plan.chips.length; i++) {
    const before = keys[i]!;
    if (Number.isNaN(before)) continue;
    const chip = plan.chips[i]!;
    const key = keyOf(chip.spot, options, near);
    if (key === before) continue;
    keys[i] = key;
    if (!near) {
      spot(context, chip, options, colours);
      continue;
    }
    // Only the inside: edges drawn repeatedly would become thick.
    context.fillStyle = fillOf(chip.spot, options, colours);
    const edge = Math.max(0.6, 0.8 / camera.k);
    context.beginPath();
    context.roundRect(chip.x + edge, chip.y + edge, chip.w - 2 * edge, chip.h - 2 * edge, 5 - edge);
    context.fill();
    inside(context, chip, colours);
  }
}

/** Draws the marks over the picture. */
export function mark(sight: Sight, plan: Plan, marks: Marks, dark: boolean): void {
  const { context, camera, width, height, ratio } = sight;
  const colours = palette(dark);
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  place(sight);
  context.strokeStyle = colours.accent;
  const focus = marks.selected ?? marks.hovered;
  if (focus !== null) {
    context.lineWidth = 2 / Math.max(camera.k, 0.5);
    context.beginPath();
    for (const cable of plan.cables) {
      if (cable.from.spot.N === focus || cable.to.spot.N === focus) curve(context, cable.from, cable.to);
    }
    context.stroke();
  }
  way(context, plan, marks.path, colours, camera.k);
  for (const [n, wide] of [[marks.hovered, 1.5], [marks.selected, 3]] as const) {
    const chip = n === null ? undefined : plan.places.get(n);
    if (!chip) continue;
    context.lineWidth = wide / Math.max(camera.k, 0.35);
    context.beginPath();
    context.roundRect(chip.x - 1, chip.y - 1, chip.w + 2, chip.h + 2, 6);
    context.stroke();
  }
}

function* parts(all: Cable[], seen: (chip: Chip) => boolean): Generator<Cable[]> {
  let part: Cable[] = [];
  for (const cable of all) {
    if (!seen(cable.from) && !seen(cable.to)) continue;
    part.push(cable);
    if (part.length < STROKE) continue;
    yield part;
    part = [];
  }
  if (part.length) yield part;
}

function fillOf(spot: Spot, options: DrawOptions, colours: Palette): string {
  return colours.heat[options.colour === "state" ? (isDown(spot) ? 0 : 1) : heat(spot, options.colour)]!;
}

/** A chip from afar. */
function spot(context: CanvasRenderingContext2D, chip: Chip, options: DrawOptions, colours: Palette): void {
  const { spot } = chip;
  const step = heat(spot, options.colour);
  context.globalAlpha = options.found && !options.found.has(spot.N) ? 0.25 : 1;
  if (options.colour === "state") context.fillStyle = isDown(spot) ? colours.down : colours.cable;
  else context.fillStyle = step ? colours.heat[step]! : colours.border;
  context.fillRect(chip.x, chip.y, chip.w, chip.h);
  context.globalAlpha = 1;
}

function whole(context: CanvasRenderingContext2D, chip: Chip, options: DrawOptions, colours: Palette): void {
  context.globalAlpha = options.found && !options.found.has(chip.spot.N) ? 0.25 : 1;
  context.fillStyle = fillOf(chip.spot, options, colours);
  context.strokeStyle = colours.border;
  context.beginPath();
  context.roundRect(chip.x, chip.y, chip.w, chip.h, 5);
  context.fill();
  context.stroke();
  inside(context, chip, colours);
  context.globalAlpha = 1;
}

function inside(context: CanvasRenderingContext2D, chip: Chip, colours: Palette): void {
  const { spot } = chip;
  context.textBaseline = "middle";
  context.beginPath();
  context.arc(chip.x + 11, chip.y + 13, 3.6, 0, 7);
  if (isDown(spot)) {
    const wide = context.lineWidth;
    context.lineWidth = 1.6;
    context.strokeStyle = colours.down;
    context.stroke();
    context.lineWidth = wide;
    context.strokeStyle = colours.border;
  } else {
    context.fillStyle = spot.State === undefined ? colours.cable : colours.up;
    context.fill();
  }
  const total = spot.rates[0] + spot.rates[1];
  const number = total >= 1000 ? rate(total) : "";
  context.font = `11px ${FONT}`;
  const taken = number ? context.measureText(number).width + 8 : 0;
  if (number) {
    context.fillStyle = colours.dim;
    context.fillText(number, chip.x + chip.w - taken, chip.y + 14);
  }
  context.fillStyle = colours.text;
  context.font = `12px ${FONT}`;
  fit(context, spot.Name, chip.x + 20, chip.y + 14, chip.w - 26 - taken - (spot.Captures ? 14 : 0));
  if (spot.Captures) {
    context.fillStyle = colours.accent;
    context.fillText("●", chip.x + chip.w - taken - 14, chip.y + 13);
  }
}

function frame(context: CanvasRenderingContext2D, box: Box, colours: Palette, zoom: number): void {
  const near = zoom > NEAR;
  context.fillStyle = colours.boxes[Math.min(box.depth, 3)]!;
  context.strokeStyle = colours.border;
  if (near) {
    context.beginPath();
    context.roundRect(box.x, box.y, box.w, box.h, 7);
    context.fill();
    context.stroke();
  } else {
    context.fillRect(box.x, box.y, box.w, box.h);
    context.strokeRect(box.x, box.y, box.w, box.h);
  }
  if (!near && (box.w < 600 || zoom < FAR)) return;
  const size = near ? 12 : 24;
  context.textBaseline = "middle";
  context.font = `600 ${size}px ${FONT}`;
  context.fillStyle = colours.dim;
  context.fillText(box.closed ? "▸" : "▾", box.x + 8, box.y + 14);
  context.fillStyle = colours.text;
  const wide = fit(context, box.spot.Name, box.x + 22, box.y + 14, box.w - 78);
  context.font = `11px ${FONT}`;
  context.fillStyle = colours.dim;
  const what = `${brief(box.spot.Type, 16)}${box.closed ? ` · ${box.inside}` : ""}`;
  if (near) context.fillText(what, box.x + 30 + wide, box.y + 14);
}

const texts = new Map<string, { text: string; wide: number }>();

/** Writes a name, cut to a width. Returns its width. */
function fit(context: CanvasRenderingContext2D, name: string, x: number, y: number, most: number): number {
  const key = `${context.font}|${Math.round(most)}|${name}`;
  let known = texts.get(key);
  if (!known) {
    let text = brief(name, 40);
    while (text.length > 2 && context.measureText(text).width > most) text = `${text.slice(0, -2)}…`;
    known = { text, wide: context.measureText(text).width };
    if (texts.size > 20000) texts.clear();
    texts.set(key, known);
  }
  context.fillText(known.text, x, y);
  return known.wide;
}

function middle(chip: Chip): [number, number] {
  return [chip.x + chip.w / 2, chip.y + ("depth" in chip ? Math.min(chip.h, 26) : chip.h) / 2];
}

/** Between facing sides; of chips one above the other, both on the right. */
function curve(context: CanvasRenderingContext2D, from: Chip, to: Chip): void {
  const [x1, y1] = middle(from);
  const [x2, y2] = middle(to);
  const apart = (from.w + to.w) / 2;
  const side1 = x2 - x1 < -apart ? -1 : 1;
  const side2 = x2 - x1 > apart ? -1 : 1;
  const start = x1 + (side1 * from.w) / 2;
  const end = x2 + (side2 * to.w) / 2;
  const bend = Math.min(90, 16 + Math.abs(end - start) / 2 + Math.abs(y2 - y1) / 8);
  context.moveTo(start, y1);
  context.bezierCurveTo(start + side1 * bend, y1, end + side2 * bend, y2, end, y2);
}

function way(context: CanvasRenderingContext2D, plan: Plan, path: number[], colours: Palette, zoom: number): void {
  if (path.length === 0) return;
  const stops = path.flatMap((n) => plan.places.get(n) ?? []);
  context.fillStyle = colours.accent;
  context.lineWidth = 3 / Math.max(zoom, 0.5);
  context.setLineDash([8, 5]);
  context.beginPath();
  for (let i = 1; i < stops.length; i++) curve(context, stops[i - 1]!, stops[i]!);
  context.stroke();
  context.setLineDash([]);
  context.font = `700 11px ${FONT}`;
  context.textBaseline = "middle";
  stops.forEach((chip, i) => {
    context.strokeRect(chip.x, chip.y, chip.w, chip.h);
    context.beginPath();
    context.arc(chip.x, chip.y, 9, 0, 7);
    context.fill();
    context.fillStyle = colours.back;
    context.textAlign = "center";
    context.fillText(String(i + 1), chip.x, chip.y + 1);
    context.textAlign = "left";
    context.fillStyle = colours.accent;
  });
}
