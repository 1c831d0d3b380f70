// The first view: how much there is, who has it, what does not work, what is lost, and what is new.
import { get } from "./api";
import { Stacked, type Slice } from "./charts/stack";
import { Sankey } from "./charts/sankey";
import { ago, brief, bytes, count, exact, plain, rate } from "./format";
import { chartBegin, endName, groupName, useHistory, type Point } from "./history";
import { useAnswer, useLines } from "./hooks";
import { Empty, Name } from "./parts";
import type { ServiceEdge as Call } from "./records";
import { level, failing } from "./services/drawing";
import { fold, type Link, portsOf } from "./services/fold";
import { at, go, link as address, param, serverNow, set } from "./state";

/** Rows of a list. */
const ROWS = 8;
/** Bands of the Sankey chart. */
const BANDS = "60";
/** What was first seen less than this ago is listed as new, ms. */
const NEW = 3600e3;

interface Talker {
  name: string;
  flows: number;
  bits: number;
  bytes: number;
}
interface Sum {
  name: string;
  flows: number;
  active: number;
  sent: { bytes: number };
  received: { bytes: number };
  rate: { bits_per_second: number };
}
interface Summary {
  seen: { packets: number };
  lost: Record<string, { packets: number; bytes: number }>;
}

/** Bits per second of slices of time. */
const rates = (points: Point[]): Slice[] =>
  points.map((point) => ({ start: Date.parse(point.start), ms: point.seconds * 1000, name: groupName(point), value: (point.bytes * 8) / point.seconds }));

export function HomeView() {
  const live = at.value === null;
  const query = new URLSearchParams({ limit: "400" });
  if (!live) query.set("at", String(at.value));
  const edges = useLines<Call>(`/api/services/graph?${query}`, live ? 5000 : null);
  const summary = useAnswer("home losses", (signal) => get<Summary>("/api/summary", signal).catch(() => null), 5000);
  const alerts = useAnswer("home alerts", async (signal) => Object.values(await get<Record<string, { Name?: string; State?: string; Expression?: string }>>("/api/alert", signal).catch(() => ({}))), 10_000);
  const rows = (edges.value.data?.rows ?? []).filter((row) => row.port !== 0);
  const { services, links } = fold(edges.value.error ? [] : rows, true);
  const bits = links.reduce((sum, one) => sum + (one.bits ?? 0), 0);
  const begun = links.reduce((sum, one) => sum + (one.begun ?? 0), 0);
  const failed = links.reduce((sum, one) => sum + (one.failing ?? 0), 0);
  const lost = Object.values(summary.value.data?.lost ?? {}).reduce((sum, one) => sum + one.packets, 0);
  const firing = (alerts.value.data ?? []).filter((one) => one.State === "firing");
  const ready = edges.value.data !== null || edges.value.error !== "";
  return (
    <div class="home">
      <ul class="tiles" aria-label="At a glance">
        <Tile title="Traffic" value={rate(bits)} more="last minute" />
        <Tile title="Services" value={exact(services.filter((one) => one.kind === "service").length)} more={`${exact(links.length)} links`} href={address("services")} />
        <Tile title="New connections" value={`${begun.toFixed(begun < 10 ? 1 : 0)}/s`} more="last minute" href={address("services")} />
        <Tile title="Failures" value={`${failed.toFixed(failed < 10 ? 1 : 0)}/s`} more={failed > 0 ? "refused or not answered" : "none"} bad={failed > 0} href={address("services", { colour: "failures" })} />
        <Tile title="Lost packets" value={count(lost)} more={summary.value.data ? `of ${count(summary.value.data.seen.packets)} seen` : ""} bad={lost > 0} />
        <Tile title="Alerts" value={exact(firing.length)} more={firing.length ? "firing" : "none fires"} bad={firing.length > 0} href={address("captures", { kind: "alerts" })} />
      </ul>
      {ready && rows.length === 0 && (
        <Empty title={live ? "Nothing has been seen yet." : "Nothing is known of that time."}>
          {live ? (
            <p>Traffic appears here within seconds of its first packet. Try <code>curl http://example.com</code> in a terminal, or look at the{" "}
              <a href={address("map")}>map</a> of this host's interfaces.</p>
          ) : (
            <button type="button" onClick={() => set({ at: "", from: "" })}>Back to now</button>
          )}
        </Empty>
      )}
      <div class="cards-home" hidden={ready && rows.length === 0}>
        <Traffic />
        <TroubleCard links={links} />
        <Talkers />
        <Losses summary={summary.value.data} />
        <News rows={rows} links={links} firing={firing} />
      </div>
    </div>
  );
}

function Tile({ title, value, more, bad = false, href }: { title: string; value: string; more: string; bad?: boolean; href?: string }) {
  const inner = (
    <>
      <span class="quiet">{title}</span>
      <b class={bad ? "bad" : ""}>{value}</b>
      <span class="quiet small-text">{more}</span>
    </>
  );
  return <li>{href ? <a class="tile" href={href}>{inner}</a> : <span class="tile">{inner}</span>}</li>;
}

function Traffic() {
  const as = param("traffic", "time");
  const by = param("by", "server");
  const history = useHistory(as === "time" ? { by, top: "7" } : { by: "edge", whole: "true", top: BANDS });
  const points = history.value.data ?? [];
  const until = at.value ?? serverNow();
  const seconds = points.length ? points[0]!.seconds : 1;
  // The answer to the other question may still be here.
  const fits = as === "time" ? points.every((one) => one.port === undefined) : points.every((one) => one.port !== undefined || one.others);
  return (
    <section class="card-home wide-card traffic" aria-label="Traffic">
      <header>
        <h2>Traffic {as === "time" ? `by ${by === "server" ? "service" : "client"}` : "from whom to whom"}</h2>
        <span class="buttons">
          {as === "time" && (
            <span class="tabs" role="group" aria-label="By">
              {[["server", "called"], ["client", "calling"]].map(([one, name]) => (
                <button key={one} type="button" aria-pressed={by === one} onClick={() => set({ by: one! })}>{name}</button>
              ))}
            </span>
          )}
          <span class="tabs" role="group" aria-label="Show traffic">
            {[["time", "over time"], ["sankey", "who to whom"]].map(([one, name]) => (
              <button key={one} type="button" aria-pressed={as === one} onClick={() => set({ traffic: one! })}>{name}</button>
            ))}
          </span>
        </span>
      </header>
      {!fits || !history.value.data ? (
        <p class="quiet">Loading …</p>
      ) : points.length === 0 ? (
        <p class="quiet">No service was called in this time.</p>
      ) : as === "time" ? (
        <Stacked slices={rates(points)} from={chartBegin(points)} until={until} format={rate} label={`Traffic by ${by}`} height={220}
          choose={(name) => go("services", { service: name })} />
      ) : (
        <Sankey label="Traffic from whom to whom" heads={["client", "server", "port"]} format={(value) => rate((value * 8) / seconds)}
          bands={points.filter((one) => !one.others && one.port !== 0).map((one) => ({ path: [endName(one.client), endName(one.server), `:${one.port}`], value: one.bytes }))}
          choose={(from) => go("services", { service: from.startsWith(":") ? "" : from })} />
      )}
    </section>
  );
}

function TroubleCard({ links }: { links: Link[] }) {
  const bad = links
    .map((link) => ({ link, worst: level(link, "health"), share: failing(link) }))
    .filter((one) => one.worst > 1)
    .sort((a, b) => b.worst - a.worst || b.share - a.share)
    .slice(0, ROWS);
  return (
    <section class="card-home" aria-label="Services with trouble">
      <h2>Services with trouble</h2>
      {bad.length === 0 && <p class="quiet good-news"><span aria-hidden="true">✓</span> No link fails or sends again more than 1%.</p>}
      <ul class="list-home">
        {bad.map(({ link, share, worst }) => (
          <li key={link.id}>
            <a href={address("services", { show: link.id })}>
              <span class={`mark level-${worst}`} aria-hidden="true" />
              <span class="grow">{brief(link.client.name, 20)} → <b>{brief(link.server.name, 22)}</b> {brief(portsOf(link, 2), 14)}</span>
              <span class="bad">{share > 0.01 ? `${(share * 100).toFixed(0)}% fail` : `${((link.retransmitted / Math.max(1, link.packets)) * 100).toFixed(1)}% resent`}</span>
            </a>
          </li>
        ))}
      </ul>
    </section>
  );
}

function Bars({ all, choose, amount }: { all: Talker[]; choose: (one: Talker) => string; amount: (one: Talker) => string }) {
  const most = Math.max(1, ...all.map((one) => one.bits || one.bytes));
  return (
    <ul class="list-home">
      {all.map((one) => (
        <li key={one.name}>
          <a href={choose(one)} class="bar-row" style={{ "--share": `${(100 * (one.bits || one.bytes)) / most}%` }}>
            <span class="grow"><Name text={one.name} most={30} /></span>
            {one.flows > 0 && <span class="quiet">{exact(one.flows)} {one.flows === 1 ? "flow" : "flows"}</span>}
            <span class="number">{amount(one)}</span>
          </a>
        </li>
      ))}
    </ul>
  );
}

function Talkers() {
  const live = at.value === null;
  const now = useLines<Sum>(`/api/flows?by=process&sort=rate&limit=${ROWS}`, live ? 3000 : null);
  // Who has called, where no flows are at hand.
  const past = useHistory({ by: "client", whole: "true", top: String(ROWS) });
  const current = live && !now.value.error;
  const all: Talker[] = current
    ? (now.value.data?.rows ?? []).map((row) => ({ name: row.name || "(unknown)", flows: row.active, bits: row.rate.bits_per_second, bytes: row.sent.bytes + row.received.bytes }))
    : (past.value.data ?? []).filter((one) => !one.others).map((one) => ({ name: endName(one.client), flows: 0, bits: 0, bytes: one.bytes }));
  return (
    <section class="card-home" aria-label="Top talkers">
      <h2>Top talkers</h2>
      {all.length === 0 && <p class="quiet">Nobody has sent anything.</p>}
      <Bars all={all} amount={(one) => (current ? rate(one.bits) : bytes(one.bytes))}
        choose={(one) => (current ? address("flows", { by: "process", sort: "rate" }) : address("services", { service: one.name }))} />
    </section>
  );
}

function Losses({ summary }: { summary: Summary | null }) {
  const lost = Object.entries(summary?.lost ?? {}).filter(([, sum]) => sum.packets > 0).sort((a, b) => b[1].packets - a[1].packets);
  const seen = Math.max(1, summary?.seen.packets ?? 1);
  return (
    <section class="card-home" aria-label="Losses">
      <h2>Losses</h2>
      {summary === null && <p class="quiet">This process watches no host; agents report their losses themselves.</p>}
      {summary && lost.length === 0 && <p class="quiet good-news"><span aria-hidden="true">✓</span> Each of {exact(summary.seen.packets)} packets is in a flow.</p>}
      <ul class="list-home">
        {lost.slice(0, ROWS).map(([cause, sum]) => (
          <li key={cause}>
            <span class="row-home">
              <span class="grow">{plain(cause.replaceAll("_", " "))}</span>
              <span class="bad">{exact(sum.packets)}</span>
              <span class="quiet">{((100 * sum.packets) / seen).toFixed(2)}%</span>
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

function News({ rows, links, firing }: { rows: Call[]; links: Link[]; firing: { Name?: string; Expression?: string }[] }) {
  const now = at.value ?? serverNow();
  const first = (link: Link) => Math.min(...link.calls.map((call) => Date.parse(call.first)));
  const fresh = links.filter((link) => now - first(link) < NEW && link.change !== "vanished").sort((a, b) => first(b) - first(a));
  const gone = links.filter((link) => link.change === "vanished");
  const since = rows.length ? Math.min(...rows.map((row) => Date.parse(row.first))) : now;
  return (
    <section class="card-home" aria-label="What is new">
      <h2>What is new</h2>
      <ul class="list-home">
        {firing.slice(0, 3).map((one, i) => (
          <li key={i}><a href={address("captures", { kind: "alerts" })}><span class="bad">▲ alert</span> <span class="grow"><Name text={one.Name || one.Expression} most={40} /></span></a></li>
        ))}
        {gone.slice(0, 3).map((link) => (
          <li key={link.id}><a href={address("services", { show: link.id })}><span class="tag">gone</span> <span class="grow">{brief(link.client.name, 20)} → {brief(link.server.name, 20)} {brief(portsOf(link, 2), 12)}</span></a></li>
        ))}
        {fresh.slice(0, ROWS - Math.min(3, gone.length) - Math.min(3, firing.length)).map((link) => (
          <li key={link.id}>
            <a href={address("services", { show: link.id })}>
              <span class="tag">{link.change === "new" ? "new" : "first"}</span>
              <span class="grow">{brief(link.client.name, 20)} → {brief(link.server.name, 20)} {brief(portsOf(link, 2), 12)}</span>
              <span class="quiet">{ago(first(link), now)}</span>
            </a>
          </li>
        ))}
      </ul>
      {fresh.length + gone.length + firing.length === 0 && <p class="quiet">Nothing new for an hour.</p>}
      {now - since < 600e3 && rows.length > 0 && <p class="quiet small-text">Skua has watched for {ago(since, now).replace(" ago", "")}; links are called new after ten minutes.</p>}
    </section>
  );
}
