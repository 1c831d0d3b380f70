// From a link of the service graph to its conversations.
import { lines } from "../api";
import type { Flow } from "../records";
import { at, go, say } from "../state";
import type { Link, Service } from "./fold";

/** Conversations in which addresses of a service are looked for, and addresses in a filter. */
const LOOKED = 500;
const HOSTS = 8;

type Side = Flow["a"];
/** Whether a side is of a service: a container, a unit or a process. */
export const isOf = (side: Side, name: string) => side.container === name || side.unit === name || side.process === name;

const anyOf = (all: string[]) => (all.length > 1 ? `(${all.join(" or ")})` : all[0]!);

/** The filter of a link: protocol, port, client and server. */
export async function filterOf(link: Link): Promise<string> {
  const ports = [...new Set(link.calls.map((call) => {
    const protocol = call.protocol === 6 ? "tcp " : call.protocol === 17 ? "udp " : call.protocol === 132 ? "sctp " : "";
    return `${protocol}port ${call.port}`;
  }))];
  const places = ports.slice(0, HOSTS);
  const wanted = [link.client, link.server];
  const hosts = wanted.map((end) => new Set(end.members));
  if (wanted.some((end) => end.kind === "service") && at.value === null) {
    const query = new URLSearchParams({ filter: anyOf(places), limit: String(LOOKED), sort: "last" });
    const { rows } = await lines<Flow>(`/api/flows?${query}`);
    const called = new Set(link.calls.map((call) => call.port));
    const fits = (side: Side, end: Service) => (end.kind === "service" ? isOf(side, end.name) : end.members.has(side.address));
    for (const { a, b } of rows) {
      const [client, server] = called.has(b.port ?? 0) ? [a, b] : [b, a];
      // One end may be known by the other host alone.
      const [isClient, isServer] = [fits(client, link.client), fits(server, link.server)];
      if (isClient && isServer) {
        hosts[0]!.add(client.address);
        hosts[1]!.add(server.address);
      }
    }
  }
  const ends = hosts.filter((all) => all.size).map((all) => anyOf([...all].slice(0, HOSTS).map((address) => `host ${address}`)));
  return [anyOf(places), ...ends].join(" and ");
}

/** Opens the flows of a link. */
export async function showFlows(link: Link): Promise<void> {
  try {
    go("flows", { filter: await filterOf(link) });
  } catch (error) {
    say((error as Error).message, true);
  }
}
