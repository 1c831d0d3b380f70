// Where services stand: in layers, each right of all that call it (the longest path from the callers), and within a layer in an order
// with few crossings. The picture takes the whole place that there is.
import type { Link, Service } from "./fold";

export const WIDE = 176;
export const HIGH = 44;
/** The least distances between nodes. */
const GAP_X = 96;
const GAP_Y = 20;
const MARGIN = 24;
/** What links of a service to itself take at the sides. */
const ROUND = 34;
/** What a link takes that passes a layer. */
const PASSING = 14;
/** Times that the order within layers is improved. */
const SWEEPS = 12;

export interface Place {
  service: Service;
  /** The middle. */
  x: number;
  y: number;
}
export interface Way {
  link: Link;
  path: string;
  /** Where its text stands. */
  x: number;
  y: number;
}
export interface Layout {
  places: Place[];
  ways: Way[];
  width: number;
  height: number;
}

/** Something in a layer: a service, or a link that passes it. */
interface Slot {
  service: Service | null;
  layer: number;
  rank: number;
  before: Slot[];
  after: Slot[];
  y: number;
}

/** Links that lead back when everything is called from left to right. */
function backward(services: Service[], links: Link[]): Set<Link> {
  const out = new Map<Service, Link[]>();
  const called = new Map<Service, number>();
  for (const link of links) {
    out.set(link.client, [...(out.get(link.client) ?? []), link]);
    called.set(link.server, (called.get(link.server) ?? 0) + 1);
  }
  const back = new Set<Link>();
  const state = new Map<Service, "open" | "done">();
  const order = [...services].sort((a, b) => (called.get(a) ?? 0) - (called.get(b) ?? 0) || (a.id < b.id ? -1 : 1));
  for (const root of order) {
    if (state.has(root)) continue;
    const stack: [Service, number][] = [[root, 0]];
    state.set(root, "open");
    while (stack.length) {
      const top = stack[stack.length - 1]!;
      const link = out.get(top[0])?.[top[1]++];
      if (!link) {
        state.set(top[0], "done");
        stack.pop();
      } else if (link.client === link.server || state.get(link.server) === "open") {
        back.add(link);
      } else if (!state.has(link.server)) {
        state.set(link.server, "open");
        stack.push([link.server, 0]);
      }
    }
  }
  return back;
}

/** The longest path to each service. */
function layersOf(services: Service[], links: Link[], back: Set<Link>): Map<Service, number> {
  const ahead = links.filter((link) => !back.has(link));
  const waits = new Map(services.map((service) => [service, 0]));
  for (const link of ahead) waits.set(link.server, waits.get(link.server)! + 1);
  const layers = new Map(services.map((service) => [service, 0]));
  const ready = services.filter((service) => !waits.get(service));
  for (let service = ready.pop(); service; service = ready.pop()) {
    for (const link of ahead) {
      if (link.client !== service) continue;
      layers.set(link.server, Math.max(layers.get(link.server)!, layers.get(service)! + 1));
      waits.set(link.server, waits.get(link.server)! - 1);
      if (!waits.get(link.server)) ready.push(link.server);
    }
  }
  // Who is called by nobody stands right before whom it calls, not far away.
  const called = new Set(ahead.map((link) => link.server));
  for (const service of services) {
    const next = ahead.filter((link) => link.client === service).map((link) => layers.get(link.server)!);
    if (!called.has(service) && next.length) layers.set(service, Math.min(...next) - 1);
  }
  return layers;
}

/** Lays services out in a window of this size; what does not fit makes it larger. */
export function lay(services: Service[], links: Link[], room: { width: number; height: number }): Layout {
  // A fixed order, so that the picture stays when rates change.
  services = [...services].sort((a, b) => (a.id < b.id ? -1 : 1));
  links = [...links].sort((a, b) => (a.id < b.id ? -1 : 1));
  const back = backward(services, links);
  const layerOf = layersOf(services, links, back);
  const slots = new Map<Service, Slot>();
  const layers: Slot[][] = [];
  const put = (service: Service | null, layer: number): Slot => {
    const slot: Slot = { service, layer, rank: 0, before: [], after: [], y: 0 };
    (layers[layer] ??= []).push(slot);
    return slot;
  };
  for (let i = 0; i <= Math.max(0, ...layerOf.values()); i++) layers[i] = [];
  for (const service of services) slots.set(service, put(service, layerOf.get(service)!));
  const passed = new Map<Link, Slot[]>();
  for (const link of links) {
    const [from, to] = back.has(link) ? [link.server, link.client] : [link.client, link.server];
    if (from === to) continue;
    let last = slots.get(from)!;
    const end = slots.get(to)!;
    const through: Slot[] = [];
    for (let layer = last.layer + 1; layer < end.layer; layer++) {
      const slot = put(null, layer);
      last.after.push(slot);
      slot.before.push(last);
      through.push(slot);
      last = slot;
    }
    // Links back within a layer have no order.
    if (last.layer < end.layer) {
      last.after.push(end);
      end.before.push(last);
    }
    passed.set(link, back.has(link) ? through.reverse() : through);
  }
  const rank = (layer: Slot[]) => layer.forEach((slot, i) => (slot.rank = layer.length > 1 ? i / (layer.length - 1) : 0.5));
  layers.forEach(rank);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      const middle = new Map(layer.map((slot) => {
        const near = down ? slot.before : slot.after;
        return [slot, near.length ? near.reduce((sum, one) => sum + one.rank, 0) / near.length : slot.rank];
      }));
      layer.sort((a, b) => middle.get(a)! - middle.get(b)!);
      rank(layer);
    }
  }
  const high = (slot: Slot) => (slot.service ? HIGH : PASSING);
  const needs = layers.map((layer) => layer.reduce((sum, slot) => sum + high(slot) + GAP_Y, -GAP_Y));
  const height = Math.max(room.height, Math.max(0, ...needs) + 2 * MARGIN);
  const edge = MARGIN + (links.some((link) => link.client === link.server) ? ROUND : 0);
  const width = Math.max(room.width, layers.length * (WIDE + GAP_X) - GAP_X + 2 * edge);
  const step = layers.length > 1 ? (width - 2 * edge - WIDE) / (layers.length - 1) : 0;
  const x = (layer: number) => (layers.length > 1 ? edge + WIDE / 2 + layer * step : width / 2);
  layers.forEach((layer, i) => {
    const gap = Math.min(150, (height - 2 * MARGIN - (needs[i]! - GAP_Y * (layer.length - 1))) / Math.max(1, layer.length));
    let y = (height - (needs[i]! - GAP_Y * (layer.length - 1)) - gap * (layer.length - 1)) / 2;
    for (const slot of layer) {
      slot.y = y + high(slot) / 2;
      y += high(slot) + gap;
    }
  });
  // Where links leave and arrive: side by side, in the order of their other ends.
  const ports = (all: Link[], at: (link: Link) => Service, other: (link: Link) => Service): Map<Link, number> => {
    const found = new Map<Link, number>();
    for (const service of services) {
      const own = all.filter((link) => at(link) === service).sort((a, b) => slots.get(other(a))!.y - slots.get(other(b))!.y);
      own.forEach((link, i) => found.set(link, slots.get(service)!.y + ((i + 1) / (own.length + 1) - 0.5) * (HIGH - 12)));
    }
    return found;
  };
  const leaves = ports(links, (link) => link.client, (link) => link.server);
  const arrives = ports(links, (link) => link.server, (link) => link.client);
  const ways = links.map((link): Way => {
    const [from, to] = [slots.get(link.client)!, slots.get(link.server)!];
    const [y1, y2] = [leaves.get(link)!, arrives.get(link)!];
    if (from.layer === to.layer) {
      // Around: out at the right, below, and in at the left.
      const x1 = x(from.layer) + WIDE / 2;
      const x2 = x(to.layer) - WIDE / 2;
      const below = Math.max(from.y, to.y) + HIGH / 2 + 22;
      const path = `M${x1} ${y1}C${x1 + 44} ${y1} ${x1 + 44} ${below} ${x1} ${below}L${x2} ${below}C${x2 - 44} ${below} ${x2 - 44} ${y2} ${x2} ${y2}`;
      return { link, path, x: (x1 + x2) / 2, y: below };
    }
    // A link back leads from right to left.
    const side = from.layer < to.layer ? WIDE / 2 : -WIDE / 2;
    const points = [{ x: x(from.layer) + side, y: y1 }];
    for (const slot of passed.get(link) ?? []) {
      points.push({ x: x(slot.layer) - side, y: slot.y }, { x: x(slot.layer) + side, y: slot.y });
    }
    points.push({ x: x(to.layer) - side, y: y2 });
    let path = `M${points[0]!.x} ${points[0]!.y}`;
    for (let i = 1; i < points.length; i++) {
      const [a, b] = [points[i - 1]!, points[i]!];
      const half = (a.x + b.x) / 2;
      path += `C${half} ${a.y} ${half} ${b.y} ${b.x} ${b.y}`;
    }
    // Nearer to the server, where links to several of them part.
    const [a, b] = [points[points.length - 2]!, points[points.length - 1]!];
    return { link, path, x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  });
  spread(ways);
  const places = services.map((service) => {
    const slot = slots.get(service)!;
    return { service, x: x(slot.layer), y: slot.y };
  });
  return { places, ways, width, height };
}

/** Moves texts apart that would stand on each other. */
function spread(ways: Way[]): void {
  const sorted = [...ways].sort((a, b) => a.x - b.x || a.y - b.y);
  for (let i = 0; i < sorted.length; i++) {
    for (let k = i - 1; k >= 0 && sorted[i]!.x - sorted[k]!.x < 80; k--) {
      const [a, b] = [sorted[k]!, sorted[i]!];
      const near = 30 - Math.abs(b.y - a.y);
      if (near > 0) b.y += b.y >= a.y ? near : -near;
    }
  }
}
