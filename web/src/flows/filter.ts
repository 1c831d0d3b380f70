// The filter box: completion of pcap expressions, and the part of that language that also works for the
// past.
import { quoted } from "../api";

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

/** Query steps equal to an expression; an error names the part that does not work for the past. */
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
          "joined by `and`; the view Query has all",
      );
    }
  }
  return query;
}

/** Completions of the word at the end of a text. */
export function completions(text: string): [string, string][] {
  const word = /[a-z0-9]*$/.exec(text)?.[0] ?? "";
  if (word === "" && text !== "" && !text.endsWith(" ")) return [];
  return WORDS.filter(([name]) => name.startsWith(word) && name !== word).slice(0, 8);
}

/** A text with its last word replaced. */
export const completed = (text: string, word: string) => `${text.replace(/[a-z0-9]*$/, "")}${word} `;
