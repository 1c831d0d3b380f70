// The layout: nested boxes (host, namespace, container, bridge) with chips for other nodes. Present nodes
// keep their positions while others are added and removed: chips have slots, boxes their order, widths only
// grow.
import type { Line, Picture, Spot } from "../mapdata";

export interface Chip {
  spot: Spot;
  x: number;
  y: number;
  w: number;
  h: number;
}
export interface Box extends Chip {
  depth: number;
  closed: boolean;
  /** Nodes inside. */
  inside: number;
}
export interface Cable {
  line: Line;
  from: Chip;
  to: Chip;
}
export interface Plan {
  boxes: Box[];
  chips: Chip[];
  cables: Cable[];
  places: Map<number, Chip>;
  width: number;
  height: number;
}

const CHIP_W = 148;
const CHIP_H = 26;
const GAP = 8;
const HEAD = 26;
const PAD = 10;
const CLOSED_W = 190;

/** Types that may contain others. */
const GROUPS = new Set(["host", "netns", "container", "bridge", "ovsbridge", "bond", "vrf", "vm", "libvirt"]);
/** Types that are boxes around their layer 2 children. */
const SWITCHES = new Set(["bridge", "ovsbridge", "bond", "vrf"]);

interface Group {
  spot: Spot;
  children: Group[];
  loose: Spot[];
  count: number;
}

/** Remembers slots and widths between layouts. */
export class Arranger {
  private slots = new Map<string, (string | null)[]>();
  private widths = new Map<string, number>();
  /** Boxes that the user opened or closed, by ID of the node. */
  closed = new Map<string, boolean>();

  arrange(picture: Picture): Plan {
    const roots = tree(picture);
    const plan: Plan = { boxes: [], chips: [], cables: [], places: new Map(), width: 0, height: 0 };
    let y = 0;
    for (const root of roots) {
      const size = this.size(root, 0);
      this.place(root, 0, y, 0, plan, size);
      plan.width = Math.max(plan.width, size.w);
      y += size.h + 3 * GAP;
    }
    plan.height = Math.max(0, y - 3 * GAP);
    for (const line of picture.edges.values()) {
      if (!line.Layer2) continue;
      const from = plan.places.get(line.Parent);
      const to = plan.places.get(line.Child);
      if (!from || !to || from === to) continue;
      if ("depth" in from && SWITCHES.has(from.spot.Type) && within(from, to)) continue;
      plan.cables.push({ line, from, to });
    }
    return plan;
  }

  isClosed(group: Group): boolean {
    const chosen = this.closed.get(group.spot.ID);
    if (chosen !== undefined) return chosen;
    // A namespace with nothing but loopback is not interesting.
    return (
      group.spot.Type === "netns" &&
      group.children.length === 0 &&
      group.loose.every((spot) => spot.Name === "lo") &&
      group.loose.length <= 1
    );
  }

  /** Slots of the chips of a group: present chips keep theirs, new ones fill gaps. */
  private seats(group: Group): (string | null)[] {
    const seats = this.slots.get(group.spot.ID) ?? [];
    const there = new Set(group.loose.map((spot) => spot.ID));
    for (let i = 0; i < seats.length; i++) if (seats[i] && !there.has(seats[i]!)) seats[i] = null;
    const seated = new Set(seats);
    let hole = 0;
    for (const spot of group.loose) {
      if (seated.has(spot.ID)) continue;
      while (hole < seats.length && seats[hole] !== null) hole++;
      seats[hole] = spot.ID;
    }
    while (seats.length > 0 && seats[seats.length - 1] === null) seats.pop();
    this.slots.set(group.spot.ID, seats);
    return seats;
  }

  /** A number that only changes when it has to change by much. */
  private steady(key: string, wanted: number): number {
    const before = this.widths.get(key);
    if (before !== undefined && wanted <= before * 1.15 && wanted >= before * 0.5) return before;
    this.widths.set(key, wanted);
    return wanted;
  }

  private sizes = new Map<Group, { w: number; h: number; columns: number; width: number }>();

  private size(group: Group, depth: number): { w: number; h: number } {
    if (this.isClosed(group)) return { w: CLOSED_W, h: HEAD };
    const id = group.spot.ID;
    const seats = this.seats(group).length;
    const columns = Math.max(1, Math.round(this.steady(`${id}c`, Math.sqrt(seats * 0.45))));
    const sizes = group.children.map((child) => this.size(child, depth + 1));
    const area = sizes.reduce((sum, size) => sum + (size.w + GAP) * (size.h + GAP), 0);
    const widest = sizes.reduce((most, size) => Math.max(most, size.w), 0);
    const rows = Math.ceil(seats / columns);
    const used = Math.min(seats, columns);
    const grid = seats ? { w: used * (CHIP_W + GAP) - GAP, h: rows * (CHIP_H + GAP) - GAP } : { w: 0, h: 0 };
    const ratio = depth === 0 ? 2.2 : 1.7;
    const wanted = Math.max(widest, Math.sqrt((area + grid.w * grid.h) * ratio), grid.w);
    const width = Math.max(this.steady(`${id}w`, wanted), widest, grid.w);
    const shelves = shelve(sizes, width);
    const inner = Math.max(grid.w, shelves.w);
    const both = grid.h && shelves.h ? GAP + 2 : 0;
    const size = { w: Math.max(inner + 2 * PAD, CLOSED_W), h: HEAD + grid.h + both + shelves.h + PAD, columns, width };
    this.sizes.set(group, size);
    return size;
  }

  private place(group: Group, x: number, y: number, depth: number, plan: Plan, size: { w: number; h: number }): void {
    const closed = this.isClosed(group);
    const box: Box = { spot: group.spot, x, y, w: size.w, h: size.h, depth, closed, inside: group.count };
    plan.boxes.push(box);
    plan.places.set(group.spot.N, box);
    if (closed) {
      // Edges to nodes inside end at the closed box.
      const all = (inner: Group): void => {
        for (const spot of inner.loose) plan.places.set(spot.N, box);
        for (const child of inner.children) {
          plan.places.set(child.spot.N, box);
          all(child);
        }
      };
      all(group);
      return;
    }
    const { columns, width } = this.sizes.get(group) ?? { columns: 1, width: size.w };
    const byId = new Map(group.loose.map((spot) => [spot.ID, spot]));
    const seats = this.seats(group);
    seats.forEach((id, i) => {
      const spot = id ? byId.get(id) : undefined;
      if (!spot) return;
      const chip = {
        spot,
        x: x + PAD + (i % columns) * (CHIP_W + GAP),
        y: y + HEAD + Math.floor(i / columns) * (CHIP_H + GAP),
        w: CHIP_W,
        h: CHIP_H,
      };
      plan.chips.push(chip);
      plan.places.set(spot.N, chip);
    });
    const rows = Math.ceil(seats.length / columns);
    const top = y + HEAD + (rows ? rows * (CHIP_H + GAP) + 2 : 0);
    const sizes = group.children.map((child) => this.size(child, depth + 1));
    shelve(sizes, width).spots.forEach((spot, i) => {
      this.place(group.children[i]!, x + PAD + spot.x, top + spot.y, depth + 1, plan, sizes[i]!);
    });
  }
}

function within(box: Chip, inner: Chip): boolean {
  return inner.x >= box.x && inner.y >= box.y && inner.x + inner.w <= box.x + box.w && inner.y + inner.h <= box.y + box.h;
}

/** Rectangles in rows of a width, in their order. */
function shelve(sizes: { w: number; h: number }[], width: number) {
  const spots: { x: number; y: number }[] = [];
  let x = 0;
  let y = 0;
  let row = 0;
  let w = 0;
  for (const size of sizes) {
    if (x > 0 && x + size.w > width + 0.5) {
      x = 0;
      y += row + GAP;
      row = 0;
    }
    spots.push({ x, y });
    x += size.w + GAP;
    row = Math.max(row, size.h);
    w = Math.max(w, x - GAP);
  }
  return { spots, w, h: y + row };
}

/** Which node contains which: by ownership, and ports in their bridge when both have the same owner. */
function tree(picture: Picture): Group[] {
  const owner = new Map<number, number>();
  for (const line of picture.edges.values()) {
    if (!line.Layer2) owner.set(line.Child, line.Parent);
  }
  const parent = new Map(owner);
  for (const line of picture.edges.values()) {
    const above = picture.nodes.get(line.Parent);
    if (line.Layer2 && above && SWITCHES.has(above.Type) && owner.get(line.Child) === owner.get(line.Parent)) {
      parent.set(line.Child, line.Parent);
    }
  }
  const groups = new Map<number, Group>();
  const full = new Set(parent.values());
  for (const spot of picture.nodes.values()) {
    if (GROUPS.has(spot.Type) && (full.has(spot.N) || spot.Type === "host" || spot.Type === "netns")) {
      groups.set(spot.N, { spot, children: [], loose: [], count: 0 });
    }
  }
  const roots: Group[] = [];
  const strays: Spot[] = [];
  const order = [...picture.nodes.values()].sort((a, b) => a.Created - b.Created || a.N - b.N);
  const inside = (n: number, group: Group): boolean => {
    // Cycles cannot be drawn as boxes; a node that would close one is placed outside.
    for (let at: number | undefined = n, steps = 0; at !== undefined && steps < 32; at = parent.get(at), steps++) {
      if (at === group.spot.N) return true;
    }
    return false;
  };
  for (const spot of order) {
    const own = groups.get(spot.N);
    const above = parent.get(spot.N);
    const into = above === undefined ? undefined : groups.get(above);
    if (into && own && inside(above!, own)) roots.push(own);
    else if (into) own ? into.children.push(own) : into.loose.push(spot);
    else if (own) roots.push(own);
    else strays.push(spot);
  }
  const total = (group: Group): number => {
    group.count = group.loose.length + group.children.reduce((sum, child) => sum + 1 + total(child), 0);
    return group.count;
  };
  roots.forEach(total);
  if (strays.length) {
    const spot: Spot = {
      N: -1, ID: "", Host: "", Name: "others", Type: "others", Created: 0, rates: [0, 0, 0, 0],
    };
    roots.push({ spot, children: [], loose: strays, count: strays.length });
  }
  return roots;
}
