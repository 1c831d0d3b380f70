// The service graph as people see it: a node for each service, a link for each pair, with its ports on it.
import type { ServiceEdge as Call } from "../records";

/** Addresses of one network from this number on are one node. */
const CROWD = 3;
const PROTOCOLS: Record<number, string> = { 1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6", 132: "sctp" };
export const protocolOf = (call: Call) => PROTOCOLS[call.protocol] ?? `ip ${call.protocol}`;
/** A port as it stands on a link. */
export const portOf = (call: Call) => (call.protocol === 6 ? `:${call.port}` : `${protocolOf(call)}:${call.port}`);

export type Kind = "service" | "address" | "network" | "outside";
export interface Service {
  id: string;
  name: string;
  kind: Kind;
  /** Addresses that it stands for. */
  members: Set<string>;
}
export interface Link {
  id: string;
  client: Service;
  server: Service;
  /** What it is the sum of, most bytes first. */
  calls: Call[];
  bytes: number;
  connections: number;
  failed: number;
  retransmitted: number;
  packets: number;
  /** Per second, in the last minute; null if that is not known. */
  bits: number | null;
  begun: number | null;
  failing: number | null;
  /** µs; of several ports the slowest. */
  p50: number | null;
  p95: number | null;
  change: string | undefined;
}

/** Whether an address is of the internet, rather than of a network of one's own. */
export function outside(address: string): boolean {
  if (address.includes(":")) return !/^(f[cd]|fe[89ab]|ff|::1?$|::ffff:)/i.test(address);
  const [a = 0, b = 0] = address.split(".").map(Number);
  return !(a === 10 || a === 127 || a === 0 || a >= 224 || (a === 172 && b >= 16 && b < 32) || (a === 192 && b === 168) ||
    (a === 169 && b === 254) || (a === 100 && b >= 64 && b < 128));
}

/** The network that an address is grouped by. */
export function networkOf(address: string): string {
  if (outside(address)) return "internet";
  if (!address.includes(":")) return `${address.split(".").slice(0, 3).join(".")}.0/24`;
  // The first four groups, as the server writes addresses: with one gap at most.
  const [head = "", tail] = address.split("::");
  const before = head.split(":").filter(Boolean);
  const after = tail === undefined ? [] : tail.split(":").filter(Boolean);
  const whole = tail === undefined ? before : [...before, ...Array<string>(Math.max(0, 8 - before.length - after.length)).fill("0"), ...after];
  return `${whole.slice(0, 4).join(":").replace(/(:0)+$/, "")}::/64`;
}

const nameOf = (end: Call["client"]) => end.service ?? end.address ?? "(unknown)";

/** The services of edges, and the links between them. */
export function fold(calls: Call[], grouped: boolean): { services: Service[]; links: Link[] } {
  const crowds = new Map<string, Set<string>>();
  if (grouped) {
    for (const { client, server } of calls) {
      for (const { service, address } of [client, server]) {
        if (service || !address) continue;
        const network = networkOf(address);
        crowds.set(network, (crowds.get(network) ?? new Set()).add(address));
      }
    }
  }
  const services = new Map<string, Service>();
  const find = (end: Call["client"]): Service => {
    const { service, address } = end;
    const network = !service && address ? networkOf(address) : "";
    const crowd = (crowds.get(network)?.size ?? 0) >= CROWD;
    const id = crowd ? `net ${network}` : `${service ? "service" : "address"} ${nameOf(end)}`;
    let found = services.get(id);
    if (!found) {
      const kind: Kind = service ? "service" : crowd ? (network === "internet" ? "outside" : "network") : address && outside(address) ? "outside" : "address";
      const name = crowd ? (network === "internet" ? "Internet" : network) : nameOf(end);
      found = { id, name, kind, members: new Set() };
      services.set(id, found);
    }
    if (address) found.members.add(address);
    return found;
  };
  const links = new Map<string, Link>();
  const more = (before: number | null, value: number | undefined) => (value === undefined ? before : (before ?? 0) + value);
  const most = (before: number | null, value: number | undefined) => (value === undefined ? before : Math.max(before ?? 0, value));
  for (const call of calls) {
    const [client, server] = [find(call.client), find(call.server)];
    const id = `${client.id} → ${server.id}`;
    let link = links.get(id);
    if (!link) {
      link = {
        id, client, server, calls: [], bytes: 0, connections: 0, failed: 0, retransmitted: 0, packets: 0,
        bits: null, begun: null, failing: null, p50: null, p95: null, change: call.change,
      };
      links.set(id, link);
    }
    link.calls.push(call);
    link.bytes += call.client_sent.bytes + call.server_sent.bytes;
    link.packets += call.client_sent.packets + call.server_sent.packets;
    link.connections += call.connections;
    link.failed += call.failures.refused + call.failures.timed_out;
    link.retransmitted += call.retransmitted.client + call.retransmitted.server;
    link.bits = more(link.bits, call.rate?.bits_per_second);
    link.begun = more(link.begun, call.rate?.connections_per_second);
    link.failing = more(link.failing, call.rate?.failures_per_second);
    link.p50 = most(link.p50, call.rtt?.p50_us);
    link.p95 = most(link.p95, call.rtt?.p95_us);
    // New or vanished is only what is so with all its ports.
    if (link.change !== call.change) link.change = undefined;
  }
  for (const link of links.values()) {
    link.calls.sort((a, b) => b.client_sent.bytes + b.server_sent.bytes - a.client_sent.bytes - a.server_sent.bytes);
  }
  return { services: [...services.values()], links: [...links.values()] };
}

/** The ports of a link, as a short text. */
export function portsOf(link: Link, most = 3): string {
  const ports = [...new Set(link.calls.map(portOf))];
  return ports.length > most ? `${ports.slice(0, most - 1).join(" ")} +${ports.length - most + 1}` : ports.join(" ");
}
