// The map's nodes and edges, from /ws/map; from /api/map when WebSockets are refused, and for the past.
import { signal } from "@preact/signals";
import { get, Unreachable } from "./api";
import { applyList, setSocket } from "./live";
import { at, begins, connection, serverNow, skew, user } from "./state";

export interface Spot {
  N: number;
  ID: string;
  TID?: string;
  Host: string;
  Name: string;
  Type: string;
  State?: string;
  MAC?: string;
  IP?: string[];
  Created: number;
  Captures?: number;
  Refused?: string;
  /** bit/s received and sent, packets/s dropped and with errors. */
  rates: [number, number, number, number];
}
export interface Line {
  N: number;
  Parent: number;
  Child: number;
  Layer2: boolean;
  Type?: string;
}
interface Changes {
  Time: number;
  Begins?: number;
  Whole: boolean;
  Nodes: Omit<Spot, "rates">[];
  Edges: Line[];
  GoneNodes: number[];
  GoneEdges: number[];
  Rates: number[];
}

export class Picture {
  nodes = new Map<number, Spot>();
  edges = new Map<number, Line>();
  byId = new Map<string, number>();

  /** The node with a TID, which stays when an interface is made again under its name. */
  byTid(tid: string): number | undefined {
    for (const spot of this.nodes.values()) if (spot.TID === tid) return spot.N;
    return undefined;
  }

  /** Applies changes; returns whether nodes or edges were added, removed or changed, not only rates. */
  apply(changes: Changes): boolean {
    if (changes.Whole) {
      this.nodes.clear();
      this.edges.clear();
      this.byId.clear();
    }
    for (const n of changes.GoneEdges) this.edges.delete(n);
    for (const n of changes.GoneNodes) {
      const spot = this.nodes.get(n);
      if (spot && this.byId.get(spot.ID) === n) this.byId.delete(spot.ID);
      this.nodes.delete(n);
    }
    for (const node of changes.Nodes) {
      this.nodes.set(node.N, { ...node, rates: this.nodes.get(node.N)?.rates ?? [0, 0, 0, 0] });
      this.byId.set(node.ID, node.N);
    }
    for (const edge of changes.Edges) this.edges.set(edge.N, edge);
    const { Rates: all } = changes;
    for (let i = 0; i + 4 < all.length; i += 5) {
      const spot = this.nodes.get(all[i]!);
      if (spot) spot.rates = [all[i + 1]!, all[i + 2]!, all[i + 3]!, all[i + 4]!];
    }
    return (
      changes.Whole ||
      changes.Nodes.length + changes.Edges.length + changes.GoneNodes.length + changes.GoneEdges.length > 0
    );
  }
}

/** The map's data. */
export const picture = new Picture();
/** Counts changes of nodes and edges. */
export const shape = signal(0);
/** Counts all changes. */
export const pulse = signal(0);
/** Why the past cannot be shown. */
export const pastError = signal("");

function take(changes: Changes): void {
  if (at.peek() === null) skew.value = changes.Time - Date.now();
  begins.value = changes.Begins ?? begins.peek();
  if (picture.apply(changes)) shape.value += 1;
  pulse.value += 1;
}

/** Interval of polling, and of retrying the WebSocket, ms. */
const POLL = 5000;
const RETRY = [1000, 2000, 4000, 8000];
/** WebSockets that were refused in a row until polling begins. */
const REFUSED = 2;

let socket: WebSocket | null = null;
let tries = 0;
let refused = 0;
let timer: ReturnType<typeof setTimeout> | undefined;

function later(work: () => void, ms: number): void {
  clearTimeout(timer);
  timer = setTimeout(work, ms);
}

function again(): void {
  const wait = RETRY[Math.min(tries, RETRY.length - 1)]!;
  tries += 1;
  later(() => void connect(), wait);
}

async function poll(): Promise<void> {
  try {
    take(await get<Changes>("/api/map"));
    connection.value = "polling";
    tries = 0;
    refused += 1;
    // Retry the WebSocket now and then.
    later(() => void (refused % 6 === 0 ? connect() : poll()), POLL);
  } catch {
    if (user.peek() === null) return;
    connection.value = "unreachable";
    again();
  }
}

function hangUp(): void {
  const before = socket;
  socket = null;
  setSocket(null);
  before?.close();
}

function connect(): void {
  hangUp();
  // A moment of the past that was to be shown would hang up again.
  clearTimeout(timer);
  if (at.peek() !== null || !user.peek()) return;
  const ws = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/map`);
  socket = ws;
  let received = false;
  ws.onmessage = (event) => {
    if (socket !== ws) return;
    const message = JSON.parse(event.data as string) as Changes & { Table?: Parameters<typeof applyList>[0] };
    if (message.Table) {
      applyList(message.Table);
      return;
    }
    if (message.Whole === undefined) return;
    if (!received) setSocket((text) => ws.send(text));
    received = true;
    refused = 0;
    tries = 0;
    connection.value = "live";
    take(message);
  };
  ws.onclose = () => {
    if (socket !== ws) return;
    hangUp();
    if (!received) refused += 1;
    if (received && connection.peek() === "live") connection.value = "connecting";
    // A request shows the cause: an expired login, a proxy without WebSockets, or an unreachable
    // server.
    if (!received && refused >= REFUSED) void poll();
    else if (received) later(connect, 300);
    else void probe();
  };
}

/** Is anybody there? */
async function probe(): Promise<void> {
  try {
    await get("/api");
  } catch {
    if (user.peek() === null) return;
    connection.value = "unreachable";
  }
  again();
}

async function showPast(moment: number): Promise<void> {
  hangUp();
  clearTimeout(timer);
  try {
    const changes = await get<Changes>(`/api/map?at=${moment}`);
    if (at.peek() !== moment) return;
    pastError.value = "";
    take(changes);
    connection.value = "live";
  } catch (error) {
    if (at.peek() !== moment) return;
    if (error instanceof Unreachable) later(() => void showPast(moment), RETRY[1]!);
    else pastError.value = (error as Error).message;
  }
}

/** Follows the selected moment from now on. */
export function follow(): () => void {
  let before: number | null | undefined;
  const stopAt = at.subscribe((moment) => {
    if (moment === before) return;
    before = moment;
    pastError.value = "";
    // Moving the slider requests many moments: the last one counts.
    if (moment !== null) later(() => void showPast(Math.min(moment, serverNow())), 120);
    else connect();
  });
  // In the past there is no WebSocket that would find the server again.
  const stopConnection = connection.subscribe((state) => {
    const moment = at.peek();
    if (state === "unreachable" && moment !== null) later(() => void showPast(moment), RETRY[1]!);
  });
  const stopUser = user.subscribe((someone) => {
    if (someone && at.peek() === null && !socket) connect();
    if (someone === null) hangUp();
  });
  return () => {
    stopAt();
    stopConnection();
    stopUser();
    hangUp();
  };
}
