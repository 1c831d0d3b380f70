// The picture of the service graph.
import { useComputed, useSignal, type Signal } from "@preact/signals";
import { brief, bytes, count, exact, plain, rate, span } from "../format";
import { useSize } from "../charts/width";
import { connection } from "../state";
import { portsOf, type Link, type Service } from "./fold";
import { HIGH, lay, WIDE, type Place } from "./layers";

export type Colour = "health" | "rtt" | "retransmits" | "failures" | "age";

/** Links whose texts are always shown; of more only those of what is pointed at. */
const TEXTS = 40;

export const resent = (link: Link) => link.retransmitted / Math.max(1, link.packets);
/** The share of attempts that fail: of the last minute, else of all. */
export const failing = (link: Link) =>
  link.failing !== null && link.begun !== null && link.begun + link.failing > 0
    ? link.failing / Math.max(link.begun, link.failing)
    : link.failed / Math.max(1, link.connections);

const steps = (value: number, limits: [number, number, number]) => limits.filter((limit) => value >= limit).length;

/** 0 (fine) to 3 (bad). */
export function level(link: Link, colour: Colour): number {
  switch (colour) {
    case "rtt":
      return steps(link.p95 ?? 0, [5_000, 50_000, 200_000]);
    case "retransmits":
      return steps(resent(link), [0.001, 0.01, 0.05]);
    case "failures":
      return steps(failing(link), [0.0001, 0.05, 0.5]);
    case "age":
      return link.change === "vanished" ? 3 : link.change === "new" ? 1 : 0;
    case "health":
      if (failing(link) >= 0.1 || resent(link) >= 0.1) return 3;
      return failing(link) >= 0.01 || resent(link) >= 0.02 ? 2 : 0;
  }
}

/** What colours mean: the words of the levels. */
const MEANINGS: Record<Colour, [string, string, string, string]> = {
  health: ["fine", "", "1% fail, or 2% resent", "10% of either"],
  rtt: ["p95 below 5 ms", "5 ms", "50 ms", "200 ms or more"],
  retransmits: ["below 0.1%", "0.1%", "1%", "5% or more"],
  failures: ["none", "some", "5%", "half or more"],
  age: ["known for long", "new", "", "vanished"],
};

const perSecond = (value: number) => `${value >= 10 ? count(Math.round(value)) : value.toFixed(value < 0.1 ? 2 : 1)}/s`;

/** The numbers of a link, as they stand on it. */
export function numbers(link: Link): string {
  const parts = [link.begun === null ? `${count(link.connections)} conns` : link.begun > 0 ? perSecond(link.begun) : link.bits ? rate(link.bits) : "idle"];
  if (link.p95 !== null) parts.push(`${span((link.p50 ?? 0) * 1000)} / ${span(link.p95 * 1000)}`);
  return parts.join(" · ");
}

/** And how many fail. */
function failures(link: Link): string {
  const share = failing(link);
  return share > 0 ? `${share >= 0.1 ? Math.round(share * 100) : (share * 100).toFixed(1)}% fail` : "";
}

export function describe(link: Link): string {
  const ports = portsOf(link, 99);
  const parts = [`${link.client.name} calls ${link.server.name}${ports.startsWith(":") ? "" : " "}${ports}: ${bytes(link.bytes)}, ${exact(link.connections)} connections`];
  if (link.bits !== null) parts.push(`${rate(link.bits)} and ${perSecond(link.begun ?? 0)} now`);
  if (link.p95) parts.push(`95% of round trips below ${span(link.p95 * 1000)}`);
  if (link.failed) parts.push(`${exact(link.failed)} failed`);
  if (link.change) parts.push(`${link.change} in the last hour`);
  return plain(parts.join(", "));
}

interface Shown {
  services: Service[];
  links: Link[];
  colour: Colour;
  chosen: string;
  choose: (id: string) => void;
  hover: Signal<string | null>;
}

const onKey = (work: () => void) => (event: KeyboardEvent) => {
  if (event.key === "Enter" || event.key === " ") {
    work();
    event.preventDefault();
  }
};

export function Drawing({ services, links, colour, chosen, choose, hover }: Shown) {
  const [place, room] = useSize({ width: 900, height: 500 });
  // Numbers change all the time; the layout depends only on which service calls which, and on the room.
  const keys = useSignal("");
  keys.value = `${room.width} ${room.height}\n${services.map((one) => one.id).sort().join("\n")}\n${links.map((one) => one.id).sort().join("\n")}`;
  const current = useSignal({ services, links });
  current.value = { services, links };
  const placed = useComputed(() => {
    keys.value;
    const { services, links } = current.peek();
    return lay(services, links, { width: room.width, height: room.height });
  }).value;
  const byId = new Map(links.map((link) => [link.id, link]));
  const most = Math.max(1, ...links.map((link) => link.bits ?? link.bytes));
  const pointed = hover.value ?? chosen;
  const near = (link: Link) => !pointed || link.id === pointed || link.client.id === pointed || link.server.id === pointed;
  const someNear = links.some((link) => pointed && near(link));
  return (
    <div class={`service-map ${connection.value === "unreachable" ? "old" : ""}`}>
      <div class="scroll" ref={place}>
        <svg
          class="services"
          width={placed.width}
          height={placed.height}
          viewBox={`0 0 ${placed.width} ${placed.height}`}
          role="group"
          aria-label={`${placed.places.length} services, ${placed.ways.length} dependencies`}
        >
          <defs>
            <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="9" markerHeight="9" markerUnits="userSpaceOnUse" orient="auto">
              <path d="M0 0L8 4L0 8z" class="arrow" />
            </marker>
          </defs>
          {placed.ways.map(({ link: old, path }) => {
            const link = byId.get(old.id) ?? old;
            const wide = 1.2 + 6 * Math.sqrt((link.bits ?? link.bytes) / most);
            const faint = someNear && !near(link);
            return (
              <g
                key={link.id}
                class={`edge level-${level(link, colour)} ${link.change ?? ""} ${chosen === link.id ? "chosen" : ""} ${faint ? "faint" : ""}`}
                role="button"
                tabindex={0}
                aria-label={describe(link)}
                onClick={() => choose(link.id)}
                onKeyDown={onKey(() => choose(link.id))}
                onMouseEnter={() => (hover.value = link.id)}
                onMouseLeave={() => (hover.value = null)}
              >
                <title>{describe(link)}</title>
                <path d={path} class="hit" />
                <path d={path} stroke-width={wide} marker-end="url(#arrow)" />
              </g>
            );
          })}
          {placed.places.map((one) => (
            <Node key={one.service.id} place={one} links={links} colour={colour} chosen={chosen === one.service.id}
              faint={someNear && !links.some((link) => near(link) && (link.client.id === one.service.id || link.server.id === one.service.id))}
              choose={choose} hover={hover} />
          ))}
          {placed.ways.map(({ link: old, x, y }) => {
            const link = byId.get(old.id) ?? old;
            if (!(links.length <= TEXTS ? !someNear || near(link) : someNear && near(link))) return null;
            const bad = failures(link);
            return (
              <text key={link.id} class="edge-text" x={x} y={y - 3} text-anchor="middle" aria-hidden="true">
                <tspan class="ports">{brief(portsOf(link), 22)}</tspan>
                <tspan x={x} dy={13}>{numbers(link)}</tspan>
                {bad && <tspan class="fails"> {bad}</tspan>}
              </text>
            );
          })}
        </svg>
      </div>
      <Legend colour={colour} />
    </div>
  );
}

function Node({ place, links, colour, chosen, faint, choose, hover }: {
  place: Place;
  links: Link[];
  colour: Colour;
  chosen: boolean;
  faint: boolean;
  choose: (id: string) => void;
  hover: Signal<string | null>;
}) {
  const { service, x, y } = place;
  const called = links.filter((link) => link.server.id === service.id);
  const worst = Math.max(0, ...called.map((link) => level(link, colour)));
  const begun = called.reduce((sum, link) => sum + (link.begun ?? 0), 0);
  const bits = links.filter((link) => link.server.id === service.id || link.client.id === service.id).reduce((sum, link) => sum + (link.bits ?? 0), 0);
  const what =
    service.kind === "network" || (service.kind === "outside" && service.members.size > 1)
      ? `${service.members.size} addresses`
      : service.kind === "address" ? "address" : service.kind === "outside" ? "internet" : called.length ? "service" : "client";
  const shown = brief(service.name, 20);
  const now = begun > 0 ? `${perSecond(begun)} in` : bits > 0 ? rate(bits) : "";
  const sub = [what, now].filter(Boolean).join(" · ");
  return (
    <g
      class={`service ${service.kind === "service" ? "local" : service.kind} level-${worst} ${chosen ? "chosen" : ""} ${faint ? "faint" : ""}`}
      transform={`translate(${x - WIDE / 2} ${y - HIGH / 2})`}
      role="button"
      tabindex={0}
      onClick={() => choose(service.id)}
      onKeyDown={onKey(() => choose(service.id))}
      onMouseEnter={() => (hover.value = service.id)}
      onMouseLeave={() => (hover.value = null)}
    >
      {shown !== service.name && <title>{plain(service.name)}</title>}
      <rect width={WIDE} height={HIGH} rx={8} />
      <circle cx={16} cy={HIGH / 2} r={4.5} />
      <text class="title" x={30} y={18}>{shown}</text>
      <text class="sub" x={30} y={34}>{sub}</text>
    </g>
  );
}

function Legend({ colour }: { colour: Colour }) {
  return (
    <p class="service-legend" aria-label="Legend">
      {MEANINGS[colour].map((meaning, i) => meaning && (
        <span key={meaning} class={`edge level-${i}`}>
          <svg width={22} height={8} aria-hidden="true"><path d="M1 4H21" stroke-width={3} /></svg> {meaning}
        </span>
      ))}
      <span class="quiet">width: traffic</span>
      <span class="quiet">dashed: vanished</span>
      <span class="quiet">text: port, new connections per second, round trip p50 / p95</span>
    </p>
  );
}
