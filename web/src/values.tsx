// A record as people read it: times in the reader's zone, spans and amounts with units, protocols and states by name. What the server
// sent is one key away (j).
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { bytes, exact, moment, plain, rate, span } from "./format";
import { Copy, Name, Values } from "./parts";

type Tree = Record<string, unknown>;

const PROTOCOLS: Record<number, string> = { 1: "ICMP", 2: "IGMP", 6: "TCP", 17: "UDP", 47: "GRE", 50: "ESP", 58: "ICMPv6", 89: "OSPF", 132: "SCTP" };
const ETHERTYPES: Record<number, string> = { 0x0800: "IPv4", 0x0806: "ARP", 0x86dd: "IPv6", 0x8847: "MPLS", 0x88cc: "LLDP", 0x8100: "VLAN" };
const FLAGS: Record<string, string> = { F: "FIN", S: "SYN", R: "RST", P: "PSH", A: "ACK", U: "URG", E: "ECE", C: "CWR" };
/** Words of records, as sentences have them. */
const WORDS: Record<string, string> = {
  tcp_fin: "closed by both (FIN)",
  tcp_rst: "reset (RST)",
  timeout: "no packet for a while",
  refused: "refused",
  timed_out: "no answer",
  syn_sent: "SYN sent, no answer yet",
  established: "established",
  closing: "closing",
  closed: "closed",
  time_wait: "closed, waiting for stragglers",
  close_wait: "the other side has closed",
};
/** Titles of fields whose own name says too little. */
const TITLES: Record<string, string> = {
  ab: "A to B",
  ba: "B to A",
  a: "A",
  b: "B",
  id: "ID",
  netns: "network namespace",
  ifindex: "interface index",
  community_id: "Community ID",
  pid: "PID",
  asn: "autonomous system",
  port_name: "name of the port",
  tcp: "TCP",
  rtt: "round-trip time",
  handshake_rtt: "handshake round trip",
  server_rtt: "round trip to the server",
  client_rtt: "round trip to the client",
  srtt: "smoothed round trip",
  rttvar: "its variation",
  min_rtt: "least round trip",
  cwnd: "congestion window",
  mss: "maximum segment size",
  last: "last packet",
};
const NS = /^(duration|age|rtt|(handshake|server|client)_rtt)$/;
const US = /^(srtt|rttvar|min_rtt|.*_us)$/;

const title = (key: string) => TITLES[key] ?? plain(key.replace(/_us$/, "").replace(/^(ab|ba)_/, (side) => `${side === "ab_" ? "A to B" : "B to A"}: `).replaceAll("_", " "));

/** A value of a field as people read it. */
export function readable(key: string, value: unknown): string {
  if (typeof value === "number") {
    if (key === "bytes") return `${bytes(value)}${value >= 1000 ? ` (${exact(value)})` : ""}`;
    if (key === "bits_per_second") return rate(value);
    if (/_per_second$/.test(key)) return `${value.toFixed(value < 10 ? 2 : 0)}/s`;
    if (US.test(key)) return span(value * 1000);
    if (NS.test(key)) return span(value);
    if (key === "protocol") return PROTOCOLS[value] ?? `IP protocol ${value}`;
    if (key === "ethertype") return `${ETHERTYPES[value] ?? "EtherType"} (0x${value.toString(16).padStart(4, "0")})`;
    if (/^(port|pid|ifindex|netns|id|code|type|errno|asn)$/.test(key)) return String(value);
    return Number.isInteger(value) ? exact(value) : String(value);
  }
  if (typeof value === "string") {
    if (/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/.test(value)) return moment(Date.parse(value));
    if (/_flags$/.test(key) && /^[FSRPAUEC.]+$/.test(value)) return [...value].map((one) => FLAGS[one] ?? one).join(" ");
    if (key === "state" || key === "end") return WORDS[value.toLowerCase().replaceAll("-", "_")] ?? plain(value.toLowerCase().replaceAll("_", " "));
    if (key === "protocol") return plain(value.toUpperCase());
    if (key === "opened_by") return plain(value.toUpperCase());
  }
  if (Array.isArray(value)) return value.map((one) => readable(key, one)).join(", ");
  return plain(value);
}

const isTree = (value: unknown): value is Tree => typeof value === "object" && value !== null && !Array.isArray(value);

function Rows({ of }: { of: Tree }) {
  const simple = Object.entries(of).filter(([, value]) => !isTree(value) && value !== null);
  return (
    <dl class="values">
      {simple.map(([key, value]) => (
        <div key={key}>
          <dt>{title(key)}</dt>
          <dd><Name text={readable(key, value)} most={200} /></dd>
        </div>
      ))}
    </dl>
  );
}

/** A record: simple fields first, then each part under its title. */
export function Readable({ of, also = {} }: { of: Tree; also?: Tree }) {
  const raw = useSignal(false);
  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      if (event.key !== "j" || event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) return;
      raw.value = !raw.value;
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
  const parts = Object.entries(of).filter((entry): entry is [string, Tree] => isTree(entry[1]) && Object.keys(entry[1]).length > 0);
  return (
    <>
      <p class="buttons raw-switch">
        <button type="button" aria-pressed={raw.value} aria-keyshortcuts="j" title="Key j" onClick={() => (raw.value = !raw.value)}>Raw JSON</button>
        <Copy value={{ ...of, ...also }} />
      </p>
      {raw.value ? (
        <pre class="json raw" tabIndex={0}>{JSON.stringify({ ...of, ...also }, null, 1).split("\n").map((line) => plain(line)).join("\n")}</pre>
      ) : (
        <>
          <Rows of={of} />
          {parts.map(([key, part]) => {
            const inner = Object.entries(part).filter(([, value]) => isTree(value));
            return (
              <section key={key}>
                <h3>{title(key)}</h3>
                <Rows of={part} />
                {inner.length > 0 && <Values of={Object.fromEntries(inner)} />}
              </section>
            );
          })}
        </>
      )}
    </>
  );
}
