// The service graph: a map of who calls whom and, with the same rows, a table.
import { useSignal } from "@preact/signals";
import { exact } from "../format";
import { useLines } from "../hooks";
import { Empty, Trouble } from "../parts";
import type { ServiceEdge as Call } from "../records";
import { at, param, serverNow, set } from "../state";
import { fold, type Service } from "./fold";
import { Drawing, type Colour } from "./drawing";
import { LinkPanel, ServicePanel } from "./panel";
import { Table } from "./table";

/** Edges at most; the server sends those with the most bytes. */
const MOST = 400;

export function ServicesView() {
  const colour = param("colour", "health") as Colour;
  const filter = param("service");
  const as = param("as", "graph");
  const grouped = param("group", "1") === "1";
  const query = new URLSearchParams({ limit: String(MOST) });
  if (filter) query.set("service", filter);
  if (at.value !== null) query.set("at", String(at.value));
  const path = `/api/services/graph?${query}`;
  const answer = useLines<Call>(path, at.value === null ? 3000 : null);
  const hover = useSignal<string | null>(null);
  // The answer of another moment would be taken for this one.
  const all = answer.value.error && at.value !== null ? [] : (answer.value.data?.rows ?? []);
  // Traffic without a port (ping, neighbours, routing) is no service.
  const rows = all.filter((row) => row.port !== 0);
  const found = answer.value.data?.found ?? all.length;
  const now = at.value ?? serverNow();
  const { services, links } = fold(rows, grouped);
  const chosen = param("show");
  const link = links.find((one) => one.id === chosen);
  const service = services.find((one) => one.id === chosen);
  const choose = (id: string | null) => set({ show: id ?? "" });
  const open = (one: Service) => choose(one.id);
  const changed = (change: string) => links.filter((one) => one.change === change).length;
  return (
    <div class={link || service ? "split" : "whole"}>
      <div class="list">
        <div class="tools" role="toolbar" aria-label="Services">
          <input
            type="search"
            aria-label="Service"
            placeholder="Only this service"
            value={filter}
            list="service-names"
            onChange={(event) => set({ service: event.currentTarget.value, show: "" })}
          />
          <datalist id="service-names">
            {services.filter((one) => one.kind === "service").map((one) => <option key={one.id} value={one.name} />)}
          </datalist>
          <label>
            Colour by{" "}
            <select value={colour} onChange={(event) => set({ colour: event.currentTarget.value })}>
              <option value="health">health</option>
              <option value="rtt">round-trip time</option>
              <option value="retransmits">retransmits</option>
              <option value="failures">failures</option>
              <option value="age">new and vanished in the last hour</option>
            </select>
          </label>
          <label>
            Show as{" "}
            <select value={as} onChange={(event) => set({ as: event.currentTarget.value })}>
              <option value="graph">graph</option>
              <option value="table">table</option>
            </select>
          </label>
          <label class="check">
            <input type="checkbox" checked={grouped} onChange={(event) => set({ group: event.currentTarget.checked ? "" : "0", show: "" })} /> group addresses
          </label>
          <span class="quiet" role="status">
            {exact(services.length)} {services.length === 1 ? "service" : "services"}, {exact(rows.length)} {rows.length === 1 ? "edge" : "edges"}
            {found > all.length ? ` of ${exact(found)}, those with the most bytes` : ""}
            {all.length > rows.length ? ` and ${exact(all.length - rows.length)} without a port` : ""}
            {changed("new") ? ` · ${changed("new")} new in the last hour` : ""}
            {changed("vanished") ? ` · ${changed("vanished")} vanished` : ""}
          </span>
        </div>
        <Trouble text={answer.value.error} />
        {answer.value.data && !answer.value.error && rows.length === 0 && (
          <Empty title={filter ? `Nothing calls ${filter}, and it calls nothing.` : "No service has been called yet."}>
            {filter ? (
              <button type="button" onClick={() => set({ service: "" })}>Show all services</button>
            ) : (
              <p>As soon as a process of this host is connected to, or connects to another, both appear here. Make a call:{" "}
                <code>curl http://example.com</code>. Calls are summed up every 10 seconds.</p>
            )}
          </Empty>
        )}
        {rows.length > 0 &&
          (as === "table" ? (
            <Table links={links} now={now} colour={colour} choose={choose} chosen={chosen} />
          ) : (
            <Drawing services={services} links={links} colour={colour} choose={choose} chosen={chosen} hover={hover} />
          ))}
      </div>
      {link && <LinkPanel key={link.id} link={link} close={() => choose(null)} open={open} />}
      {service && <ServicePanel key={service.id} service={service} links={links} close={() => choose(null)} choose={choose} />}
    </div>
  );
}
