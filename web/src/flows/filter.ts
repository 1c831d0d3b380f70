// The filter box: completion of conditions and of pcap expressions, and the part of both languages that also works for
// the past.
import { quoted } from "../api";
import { KEYS } from "./keys";

/** Words of pcap expressions, with their meanings. */
export const WORDS: [string, string][] = [
  ["tcp", "TCP"],
  ["udp", "UDP"],
  ["icmp", "ICMP"],
  ["icmp6", "ICMPv6"],
  ["arp", "ARP"],
  ["ip", "IPv4"],
  ["ip6", "IPv6"],
  ["host", "host ADDRESS: either side"],
  ["net", "net 10.0.0.0/8"],
  ["port", "port NUMBER: either side"],
  ["portrange", "portrange 8000-8100"],
  ["src", "src host, src port: one direction"],
  ["dst", "dst host, dst port"],
  ["vlan", "vlan NUMBER"],
  ["and", "both"],
  ["or", "one of both"],
  ["not", "the opposite"],
];

const LAYERS: Record<string, string> = {
  tcp: "TCP",
  udp: "UDP",
  icmp: "ICMPv4",
  icmp6: "ICMPv6",
  arp: "ARP",
  ip: "IPv4",
  ip6: "IPv6",
};

/** Values of keys that have few. */
const VALUES: Record<string, string[]> = {
  state: ["established", "syn-sent", "syn-received", "closing", "closed", "reset"],
  protocol: ["tcp", "udp", "icmp", "icmpv6", "sctp", "arp"],
};

/** Keys of queries for the past. */
const PAST: Record<string, string> = {
  address: "Network",
  port: "Transport",
  interface: "Interface",
  state: "TCPMetric.State",
};
for (const name of ["Process", "PID", "User", "Container", "Pod", "Unit"]) {
  for (const side of ["A", "B"]) PAST[`${side}.${name}`.toLowerCase()] = `${side}.${name}`;
}

/** A condition as a query step; nothing when the text is none. */
function step(word: string): string | undefined {
  const [, key, text] = /^([a-z_.]+)[:=](.+)$/i.exec(word) ?? [];
  if (!key || !text) return undefined;
  const value = text.replace(/^"(.*)"$/, "$1");
  const layer = key === "protocol" ? LAYERS[value] : undefined;
  if (layer) return `.Has("LayersPath", Regex(".*${layer}.*"))`;
  const name = PAST[key.toLowerCase()];
  if (!name || /[*,]/.test(value)) return undefined;
  if (key === "port" || key.endsWith(".pid")) return /^\d+$/.test(value) ? `.Has("${name}", ${value})` : undefined;
  if (key === "address" && value.includes("/")) return `.Has("${name}", Ipv4Range(${quoted(value)}))`;
  return `.Has("${name}", ${quoted(value)})`;
}

/** Query steps equal to a filter; an error names the part that does not work for the past. */
export function steps(expression: string): string {
  const words = expression.trim().split(/\s+/).filter(Boolean);
  let query = "";
  let i = 0;
  const next = (): string => {
    const word = words[i++];
    if (word === undefined) throw new Error("the filter ends too early");
    return word;
  };
  while (i < words.length) {
    const word = next();
    if (word === "and" || word === "&&") continue;
    const condition = step(word);
    if (condition) {
      query += condition;
      continue;
    }
    let side = "";
    let what = word;
    if (word === "src" || word === "dst") {
      side = word === "src" ? ".A" : ".B";
      what = next();
    }
    const layer = LAYERS[what];
    if (layer && !side) query += `.Has("LayersPath", Regex(".*${layer}.*"))`;
    else if (what === "host") query += `.Has("Network${side}", ${quoted(next())})`;
    else if (what === "net") query += `.Has("Network${side}", Ipv4Range(${quoted(next())}))`;
    else if (what === "port") {
      const port = Number(next());
      if (!Number.isInteger(port)) throw new Error("a port is a number here");
      query += `.Has("Transport${side}", ${port})`;
    } else {
      throw new Error(
        `\`${word}\` does not work for the past: tcp, udp, icmp, icmp6, arp, ip, ip6, host, net, port, src and dst can, ` +
          "address:, port:, protocol:, state:, interface:, a.process:, b.process: and the like, joined by `and`; the view Query has all",
      );
    }
  }
  return query;
}

/** Completions of the word at the end of a text. */
export function completions(text: string): [string, string][] {
  const last = /\S*$/.exec(text)?.[0] ?? "";
  const word = last.replace(/^-/, "");
  const [, key, before, value] = /^(\w+):((?:[^,]*,)*)([^,]*)$/.exec(word) ?? [];
  if (key !== undefined) {
    const found = (VALUES[key] ?? []).filter((known) => known.startsWith(value!) && known !== value);
    return found.map((known) => [`${key}:${before}${known}`, ""]);
  }
  if (!/^[a-z0-9]*$/.test(word)) return [];
  const keys = KEYS.filter(([name]) => name.startsWith(word));
  const words = last.startsWith("-") ? [] : WORDS.filter(([name]) => name.startsWith(word) && name !== word);
  return [...keys, ...words].slice(0, 10);
}

/** A text with its last word replaced. */
export function completed(text: string, word: string): string {
  const minus = /(^|\s)-\S*$/.test(text) ? "-" : "";
  const more = /[:>,]$/.test(word) ? "" : " ";
  return `${text.replace(/\S*$/, "")}${minus}${word}${more}`;
}
