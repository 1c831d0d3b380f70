// The service graph as a table.
import { ago, bytes, count, rate, span } from "../format";
import { Columns, Name } from "../parts";
import { type Link, portsOf, protocolOf } from "./fold";
import { type Colour, level, resent } from "./drawing";

/** Widths of the columns, px; 0: an equal share of the rest. */
const WIDTHS = [0, 0, 120, 96, 88, 88, 88, 72, 76, 76, 80, 110];

export function Table({ links, colour, now, chosen, choose }: {
  links: Link[];
  colour: Colour;
  now: number;
  chosen: string;
  choose: (id: string) => void;
}) {
  const sorted = [...links].sort((a, b) => b.bytes - a.bytes);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Dependencies">
      <table class="grid fixed">
        <Columns widths={WIDTHS} />
        <thead>
          <tr>
            <th scope="col">Client</th>
            <th scope="col">Server</th>
            <th scope="col">Ports</th>
            <th scope="col" class="number">Rate</th>
            <th scope="col" class="number">Bytes</th>
            <th scope="col" class="number">New per s</th>
            <th scope="col" class="number">Connections</th>
            <th scope="col" class="number">Failed</th>
            <th scope="col" class="number">RTT p50</th>
            <th scope="col" class="number">p95</th>
            <th scope="col" class="number">Retrans.</th>
            <th scope="col">Last</th>
          </tr>
        </thead>
        <tbody>
          {sorted.map((link) => {
            const last = Math.max(...link.calls.map((call) => Date.parse(call.last)));
            return (
              <tr key={link.id} class={`level-${level(link, colour)}`} aria-selected={chosen === link.id} onClick={() => choose(link.id)}>
                <td>
                  <button type="button" class="row" onClick={() => choose(link.id)}><Name text={link.client.name} most={40} /></button>
                </td>
                <td><Name text={link.server.name} most={40} /></td>
                <td title={[...new Set(link.calls.map(protocolOf))].join(", ")}>{portsOf(link)}</td>
                <td class="number">{link.bits === null ? "" : rate(link.bits)}</td>
                <td class="number">{bytes(link.bytes)}</td>
                <td class="number">{link.begun === null ? "" : link.begun.toFixed(1)}</td>
                <td class="number">{count(link.connections)}</td>
                <td class={link.failed ? "number bad" : "number"}>{count(link.failed)}</td>
                <td class="number">{link.p50 ? span(link.p50 * 1000) : ""}</td>
                <td class="number">{link.p95 ? span(link.p95 * 1000) : ""}</td>
                <td class="number">{resent(link) ? `${(resent(link) * 100).toFixed(2)}%` : ""}</td>
                <td>{ago(last, now)}{link.change ? ` · ${link.change}` : ""}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
