// Draws a plan on a canvas: far away only shapes, near also names and numbers; never what is outside.
import { brief, rate } from "../format";
import type { Spot } from "../mapdata";
import type { Box, Cable, Chip, Plan } from "./layout";

export type Colour = "state" | "rate" | "drops" | "errors";
export interface Look {
  colour: Colour;
  selected: number | null;
  hovered: number | null;
  /** Nodes of a path, in order. */
  path: number[];
  /** Nodes that a search found; null without one. */
  found: Set<number> | null;
  grey: boolean;
}
export interface Camera {
  x: number;
  y: number;
  k: number;
}

interface Palette {
  back: string;
  boxes: string[];
  border: string;
  chip: string;
  text: string;
  dim: string;
  cable: string;
  accent: string;
  up: string;
  down: string;
  heat: string[];
}

const LIGHT: Palette = {
  back: "#f6f8fa",
  boxes: ["#ffffff", "#f1f5f8", "#e8eef3", "#dfe8ee"],
  border: "#c6d1da",
  chip: "#ffffff",
  text: "#17242e",
  dim: "#586874",
  cable: "#8fa2b1",
  accent: "#0b6e8f",
  up: "#1f8a4c",
  down: "#b3362b",
  heat: ["#ffffff", "#e3f1f6", "#bfe0ea", "#8fc8d8", "#f3d98b", "#f0b35a", "#e58a4e"],
};
const DARK: Palette = {
  back: "#0d1419",
  boxes: ["#131c23", "#18242c", "#1e2c36", "#243540"],
  border: "#32434f",
  chip: "#1a262e",
  text: "#e2eaf0",
  dim: "#94a6b4",
  cable: "#587080",
  accent: "#5cc3e0",
  up: "#4fc17d",
  down: "#f0766a",
  heat: ["#1a262e", "#1c3440", "#1e4655", "#23606f", "#6b5a24", "#8a5f22", "#a2532a"],
};
export const palette = (dark: boolean) => (dark ? DARK : LIGHT);

const FONT = "system-ui, sans-serif";

/** Which step of the scale a node has. */
function heat(spot: Spot, colour: Colour): number {
  const [rx, tx, drops, errors] = spot.rates;
  const value = colour === "rate" ? rx + tx : colour === "drops" ? drops : errors;
  if (value <= 0) return 0;
  // Rates: 10 kbit/s to 1 Gbit/s; others: 1 to 10,000 a second.
  const power = Math.log10(value) - (colour === "rate" ? 3 : 0);
  return Math.max(1, Math.min(6, Math.ceil(power)));
}

function middle(chip: Chip): [number, number] {
  return [chip.x + chip.w / 2, chip.y + ("depth" in chip ? Math.min(chip.h, 26) : chip.h) / 2];
}

export function draw(
  context: CanvasRenderingContext2D,
  plan: Plan,
  camera: Camera,
  width: number,
  height: number,
  dark: boolean,
  look: Look,
): void {
  const colours = palette(dark);
  const ratio = context.canvas.width / width;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = colours.back;
  context.fillRect(0, 0, width, height);
  context.translate(camera.x, camera.y);
  context.scale(camera.k, camera.k);
  const left = -camera.x / camera.k;
  const top = -camera.y / camera.k;
  const right = left + width / camera.k;
  const bottom = top + height / camera.k;
  const seen = (chip: Chip) => chip.x < right && chip.x + chip.w > left && chip.y < bottom && chip.y + chip.h > top;
  const near = camera.k > 0.42;
  const dimmed = (spot: Spot) => look.found !== null && !look.found.has(spot.N);

  context.lineWidth = 1 / Math.max(camera.k, 0.6);
  for (const box of plan.boxes) if (seen(box)) frame(context, box, colours, near);
  cables(context, plan.cables, seen, colours, look, camera.k);
  context.textBaseline = "middle";
  for (const chip of plan.chips) {
    if (!seen(chip)) continue;
    const { spot } = chip;
    context.globalAlpha = dimmed(spot) ? 0.25 : 1;
    const down = spot.State !== undefined && spot.State !== "UP" && spot.State !== "UNKNOWN";
    const step = look.colour === "state" ? (down ? 0 : 1) : heat(spot, look.colour);
    context.fillStyle = colours.heat[step]!;
    if (!near) {
      context.fillStyle = look.colour === "state" ? (down ? colours.down : colours.cable) : step ? colours.heat[step]! : colours.border;
      context.fillRect(chip.x, chip.y, chip.w, chip.h);
      continue;
    }
    context.strokeStyle = colours.border;
    context.beginPath();
    context.roundRect(chip.x, chip.y, chip.w, chip.h, 5);
    context.fill();
    context.stroke();
    // Full is up, a ring is down: not told by colour alone.
    context.beginPath();
    context.arc(chip.x + 11, chip.y + 13, 3.5, 0, 7);
    if (spot.State === undefined) {
      context.fillStyle = colours.cable;
      context.fill();
    } else if (down) {
      context.strokeStyle = colours.down;
      context.stroke();
    } else {
      context.fillStyle = colours.up;
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
  context.globalAlpha = 1;
  way(context, plan, look, colours, camera.k);
  for (const [n, wide] of [[look.hovered, 1.5], [look.selected, 3]] as const) {
    const chip = n === null ? undefined : plan.places.get(n);
    if (!chip) continue;
    context.strokeStyle = colours.accent;
    context.lineWidth = wide / Math.max(camera.k, 0.35);
    context.beginPath();
    context.roundRect(chip.x - 1, chip.y - 1, chip.w + 2, chip.h + 2, 6);
    context.stroke();
  }
  if (look.grey) {
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.globalAlpha = 0.55;
    context.fillStyle = colours.back;
    context.fillRect(0, 0, width, height);
    context.globalAlpha = 1;
  }
}

function frame(context: CanvasRenderingContext2D, box: Box, colours: Palette, near: boolean): void {
  context.fillStyle = colours.boxes[Math.min(box.depth, 3)]!;
  context.strokeStyle = colours.border;
  context.beginPath();
  context.roundRect(box.x, box.y, box.w, box.h, 7);
  context.fill();
  context.stroke();
  if (!near && box.w < 600) return;
  const size = near ? 12 : 24;
  context.textBaseline = "middle";
  context.font = `600 ${size}px ${FONT}`;
  context.fillStyle = colours.dim;
  context.fillText(box.closed ? "▸" : "▾", box.x + 8, box.y + 14);
  context.fillStyle = colours.text;
  const wide = fit(context, box.spot.Name, box.x + 22, box.y + 14, box.w - 110);
  context.font = `11px ${FONT}`;
  context.fillStyle = colours.dim;
  const what = `${brief(box.spot.Type, 16)}${box.closed ? ` · ${box.inside}` : ""}`;
  if (near) context.fillText(what, box.x + 30 + wide, box.y + 14);
}

const texts = new Map<string, { text: string; wide: number }>();

/** Writes a name in a width; what does not fit is cut. Returns how wide it is. */
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

/** From side to side; of what stands one above the other, both on the right. */
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

function cables(
  context: CanvasRenderingContext2D,
  all: Cable[],
  seen: (chip: Chip) => boolean,
  colours: Palette,
  look: Look,
  zoom: number,
): void {
  const focus = look.selected ?? look.hovered;
  context.strokeStyle = colours.cable;
  context.globalAlpha = all.length > 400 ? 0.35 : 0.75;
  context.lineWidth = 1.2 / Math.max(zoom, 0.5);
  context.beginPath();
  for (const cable of all) if (seen(cable.from) || seen(cable.to)) curve(context, cable.from, cable.to);
  context.stroke();
  context.globalAlpha = 1;
  if (focus === null) return;
  context.strokeStyle = colours.accent;
  context.lineWidth = 2 / Math.max(zoom, 0.5);
  context.beginPath();
  for (const cable of all) {
    if (cable.from.spot.N === focus || cable.to.spot.N === focus) curve(context, cable.from, cable.to);
  }
  context.stroke();
}

function way(context: CanvasRenderingContext2D, plan: Plan, look: Look, colours: Palette, zoom: number): void {
  if (look.path.length === 0) return;
  const stops = look.path.flatMap((n) => plan.places.get(n) ?? []);
  context.strokeStyle = colours.accent;
  context.fillStyle = colours.accent;
  context.lineWidth = 3 / Math.max(zoom, 0.5);
  context.setLineDash([8, 5]);
  context.beginPath();
  for (let i = 1; i < stops.length; i++) curve(context, stops[i - 1]!, stops[i]!);
  context.stroke();
  context.setLineDash([]);
  context.font = `700 11px ${FONT}`;
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
