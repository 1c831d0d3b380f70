// What is known of a service, or of a link between two: rate, errors and duration over time, and who takes part.
import { lines } from "../api";
import { Chart } from "../charts/lines";
import { Stacked } from "../charts/stack";
import { brief, bytes, count, exact, plain, rate, span } from "../format";
import { chartBegin, useHistory, type Point } from "../history";
import { useAnswer } from "../hooks";
import { Aside, Copy, Name } from "../parts";
import type { Socket } from "../records";
import { at, link as address, serverNow, set } from "../state";
import { failing, level } from "./drawing";
import { type Link, portOf, portsOf, type Service } from "./fold";
import { showFlows } from "./flows";
import { Readable } from "../values";

/** Rows of a list in the panel. */
const ROWS = 12;

/** Rate, errors and duration of calls over time. */
export function Red({ points, label }: { points: Point[]; label: string }) {
  const from = chartBegin(points);
  const until = at.value ?? serverNow();
  const slices = (name: string, value: (point: Point) => number) =>
    points.map((point) => ({ start: Date.parse(point.start), ms: point.seconds * 1000, name, value: value(point) / point.seconds }));
  const calls = slices("connections", (point) => Math.max(0, point.connections - point.failed));
  const errors = slices("failed", (point) => point.failed);
  const timed = points.filter((point) => point.rtt);
  const perSecond = (value: number) => `${value >= 10 ? value.toFixed(0) : value.toFixed(value < 1 ? 2 : 1)}/s`;
  return (
    <section class="red">
      <h3>Rate: new connections per second, and failed ones</h3>
      <Stacked slices={[...calls, ...errors.filter((one) => one.value > 0)]} from={from} until={until} format={perSecond} label={`${label}: connections per second`} height={110} legend={false} />
      <h3>Errors: share of attempts that failed</h3>
      <Stacked slices={slices("failed", () => 0).map((one, i) => ({ ...one, value: points[i]!.failed / Math.max(1, points[i]!.connections) }))}
        from={from} until={until} format={(value) => `${(value * 100).toFixed(value < 0.1 ? 1 : 0)}%`} label={`${label}: errors`} height={84} legend={false} />
      <h3>Duration: round-trip times</h3>
      {timed.length > 1 ? (
        <Chart label={`${label}: round-trip times`} height={120} format={(us) => span(us * 1000)}
          times={timed.map((point) => Date.parse(point.start) / 1000)}
          series={[{ name: "p50", values: timed.map((point) => point.rtt!.p50_us) }, { name: "p95", values: timed.map((point) => point.rtt!.p95_us) }]} />
      ) : (
        <p class="quiet">No round-trip time was measured yet.</p>
      )}
    </section>
  );
}

function Peers({ title, links, end, choose, none }: {
  title: string;
  links: Link[];
  end: "client" | "server";
  choose: (id: string) => void;
  none: string;
}) {
  return (
    <section>
      <h3>{title}</h3>
      {links.length === 0 && <p class="quiet">{none}</p>}
      {links.length > 0 && (
        <table class="small">
          <thead class="sr"><tr><th>Name</th><th>Ports</th><th>Rate</th><th>Failed</th><th>p95</th></tr></thead>
          <tbody>
            {links.slice(0, ROWS).map((link) => (
              <tr key={link.id}>
                <td><button type="button" class="plain" onClick={() => choose(link[end].id)}>{brief(link[end].name, 24)}</button></td>
                <td>{brief(portsOf(link, 2), 14)}</td>
                <td class="number">{link.bits === null ? bytes(link.bytes) : rate(link.bits)}</td>
                <td class={failing(link) > 0 ? "number bad" : "number"}>{failing(link) > 0 ? `${(failing(link) * 100).toFixed(1)}%` : ""}</td>
                <td class="number"><button type="button" class="plain" aria-label={`The link, 95% below ${span((link.p95 ?? 0) * 1000)}`} onClick={() => choose(link.id)}>{link.p95 ? span(link.p95 * 1000) : "link"}</button></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {links.length > ROWS && <p class="quiet">and {exact(links.length - ROWS)} more</p>}
    </section>
  );
}

interface Process {
  name: string;
  pid: number | undefined;
  user: string | undefined;
  where: Set<string>;
  netns: number;
  sockets: number;
}

/** The processes of a service, by their sockets. */
async function processes(name: string, signal: AbortSignal): Promise<Process[]> {
  const kinds = ["container", "unit", "process"].flatMap((kind) => [`${kind}=${encodeURIComponent(name)}`, `${kind}=${encodeURIComponent(name)}&listen=true`]);
  const all = await Promise.all(kinds.map((kind) => lines<Socket>(`/api/sockets?${kind}&closed=true&limit=500`, signal).catch(() => ({ rows: [] as Socket[] }))));
  const found = new Map<string, Process>();
  const seen = new Set<string>();
  for (const socket of all.flatMap((one) => one.rows)) {
    const id = `${socket.netns} ${socket.id}`;
    if (seen.has(id)) continue;
    seen.add(id);
    const key = `${socket.netns} ${socket.pid ?? socket.process}`;
    const process = found.get(key) ?? { name: socket.process ?? "?", pid: socket.pid, user: socket.user, where: new Set(), netns: socket.netns, sockets: 0 };
    process.sockets += 1;
    if (!/^(0\.0\.0\.0|::)$/.test(socket.local.address)) process.where.add(socket.local.address);
    found.set(key, process);
  }
  return [...found.values()].sort((a, b) => b.sockets - a.sockets);
}

function Processes({ name }: { name: string }) {
  const answer = useAnswer(`processes ${name} ${at.value}`, (signal) => (at.value === null ? processes(name, signal) : Promise.resolve([])), at.value === null ? 10_000 : null);
  const all = answer.value.data ?? [];
  const hosts = new Map<string, number>();
  for (const process of all) for (const where of process.where) hosts.set(where, (hosts.get(where) ?? 0) + 1);
  return (
    <>
      <section>
        <h3>Processes</h3>
        {at.value !== null && <p class="quiet">Processes are known only of the present.</p>}
        {at.value === null && answer.value.data && !all.length && <p class="quiet">No socket of it is open on this host: it has ended, or runs elsewhere.</p>}
        {all.length > 0 && (
          <table class="small">
            <thead class="sr"><tr><th>Process</th><th>PID</th><th>User</th><th>Sockets</th></tr></thead>
            <tbody>
              {all.slice(0, ROWS).map((one) => (
                <tr key={`${one.netns} ${one.pid} ${one.name}`}>
                  <td><Name text={one.name} most={24} /></td>
                  <td class="number">{one.pid ?? ""}</td>
                  <td>{plain(one.user ?? "")}</td>
                  <td class="number">{exact(one.sockets)} {one.sockets === 1 ? "socket" : "sockets"}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        {all.length > ROWS && <p class="quiet">and {exact(all.length - ROWS)} more, mostly short-lived</p>}
      </section>
      {hosts.size > 0 && (
        <section>
          <h3>Where it runs</h3>
          <p class="chips">
            {[...hosts.keys()].slice(0, ROWS).map((where) => <a key={where} class="chip" href={address("map", { find: where })}>{plain(where)}</a>)}
          </p>
        </section>
      )}
    </>
  );
}

export function ServicePanel({ service, links, close, choose }: {
  service: Service;
  links: Link[];
  close: () => void;
  choose: (id: string) => void;
}) {
  const callers = links.filter((link) => link.server.id === service.id).sort((a, b) => b.bytes - a.bytes);
  const callees = links.filter((link) => link.client.id === service.id).sort((a, b) => b.bytes - a.bytes);
  const single = service.kind === "service" || service.members.size === 1;
  const side = callers.length ? "server" : "client";
  const slow = [...callers, ...callees].filter((link) => link.p95 !== null).sort((a, b) => b.p95! - a.p95!).slice(0, 5);
  return (
    <Aside title={<Name text={service.name} most={60} />} close={close}>
      <p class="quiet">
        {service.kind === "service" ? "service" : service.kind === "network" ? `network with ${service.members.size} addresses that have no name` : service.kind === "outside" ? "outside of your networks" : "address without a known name"}
        {" · "}called by {callers.length}, calls {callees.length}
      </p>
      <p class="buttons">
        {service.kind === "service" && <button type="button" onClick={() => set({ service: service.name, show: service.id })}>Only this service</button>}
        {single && <a class="button" href={address("map", { find: service.kind === "service" ? service.name : [...service.members][0] ?? "" })}>On the map</a>}
      </p>
      {single && <Graphs name={service.kind === "service" ? service.name : [...service.members][0] ?? service.name} side={side} />}
      <Peers title="Callers" links={callers} end="client" choose={choose} none="Nobody calls it." />
      <Peers title="Callees" links={callees} end="server" choose={choose} none="It calls nobody." />
      {slow.length > 0 && (
        <section>
          <h3>Slowest peers</h3>
          <table class="small">
            <tbody>
              {slow.map((link) => {
                const peer = link.client.id === service.id ? link.server : link.client;
                return (
                  <tr key={link.id}>
                    <td><button type="button" class="plain" onClick={() => choose(link.id)}>{brief(peer.name, 30)}</button></td>
                    <td class="number">p50 {span((link.p50 ?? 0) * 1000)}</td>
                    <td class="number">p95 {span(link.p95! * 1000)}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </section>
      )}
      {service.kind === "service" && <Processes name={service.name} />}
      {service.kind !== "service" && service.members.size > 0 && (
        <section>
          <h3>Addresses</h3>
          <p class="chips">{[...service.members].slice(0, 60).map((one) => <a key={one} class="chip" href={address("map", { find: one })}>{plain(one)}</a>)}</p>
        </section>
      )}
    </Aside>
  );
}

function Graphs({ name, side, more = {} }: { name: string; side: "client" | "server"; more?: Record<string, string> }) {
  const history = useHistory({ [side]: name, ...more });
  const points = history.value.data ?? [];
  if (!history.value.data) return <p class="quiet red">Loading …</p>;
  return (
    <>
      <p class="quiet">{side === "server" ? "Calls to it" : "Calls that it makes"}</p>
      <Red points={points} label={name} />
    </>
  );
}

/** One name or address of an end; nothing for a group. */
const nameOf = (service: Service) => (service.kind === "service" ? service.name : service.members.size === 1 ? [...service.members][0]! : "");

export function LinkPanel({ link, close, open }: { link: Link; close: () => void; open: (service: Service) => void }) {
  const [client, server] = [nameOf(link.client), nameOf(link.server)];
  return (
    <Aside title="Dependency" close={close}>
      <p class="ends">
        <button type="button" class="plain" onClick={() => open(link.client)}>{brief(link.client.name, 40)}</button> →{" "}
        <button type="button" class="plain" onClick={() => open(link.server)}>{brief(link.server.name, 40)}</button> {portsOf(link)}
      </p>
      <p class="buttons">
        <button type="button" onClick={() => void showFlows(link)}>Flows</button>
        {link.client.kind === "service" && <a class="button" href={address("map", { find: link.client.name })}>Client on map</a>}
        {link.server.kind === "service" && <a class="button" href={address("map", { find: link.server.name })}>Server on map</a>}
        <Copy value={link.calls} />
      </p>
      <table class="small">
        <thead>
          <tr><th>Port</th><th class="number">Rate</th><th class="number">Conns</th><th class="number">Failed</th><th class="number">p50</th><th class="number">p95</th></tr>
        </thead>
        <tbody>
          {link.calls.slice(0, 40).map((call) => (
            <tr key={`${call.client.address} ${call.server.address} ${call.protocol} ${call.port}`}>
              <td>{portOf(call)}</td>
              <td class="number">{call.rate?.bits_per_second === undefined ? "" : rate(call.rate.bits_per_second)}</td>
              <td class="number">{count(call.connections)}</td>
              <td class="number">{count(call.failures.refused + call.failures.timed_out)}</td>
              <td class="number">{call.rtt?.p50_us ? span(call.rtt.p50_us * 1000) : ""}</td>
              <td class="number">{call.rtt?.p95_us ? span(call.rtt.p95_us * 1000) : ""}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {client && server && <LinkGraphs client={client} server={server} />}
      <p class={`quiet level-${level(link, "health")}`}>
        {bytes(link.bytes)} and {exact(link.connections)} connections in all, {exact(link.failed)} failed, {exact(link.retransmitted)} segments sent again
      </p>
      {link.calls.slice(0, 8).map((call, i) => (
        <details key={i} class="more">
          <summary>{portOf(call)}: all numbers</summary>
          <Readable of={call as unknown as Record<string, unknown>} />
        </details>
      ))}
    </Aside>
  );
}

function LinkGraphs({ client, server }: { client: string; server: string }) {
  const history = useHistory({ client, server });
  if (!history.value.data) return <p class="quiet red">Loading …</p>;
  return <Red points={history.value.data} label={`${client} to ${server}`} />;
}
