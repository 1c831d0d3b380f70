import { ask, packets, save } from "./api";
import { type Language, Questions } from "./ask";
import { LakeView } from "./lake";
import { SqlView } from "./sql";
import { at, features, param, say, set } from "./state";

/** Steps of the language, with explanations. */
const STEPS: [string, string][] = [
  ["V()", "all nodes"],
  ["E()", "all edges"],
  ["Flows()", "flows, also those of nodes"],
  ["At('-5m')", "as it was"],
  ["Has(\"Name\", \"eth0\")", "only those with a value"],
  ["HasEither()", "one of several values"],
  ["HasKey(\"\")", "the key is there"],
  ["HasNot(\"\")", "the key is not there"],
  ["Dedup()", "the first of each"],
  ["Limit(10)", "the first ones"],
  ["Range(0, 10)", "from, up to before"],
  ["Sort(DESC, \"\")", "by a key"],
  ["Out()", "children"],
  ["In()", "parents"],
  ["Both()", "children and parents"],
  ["OutE()", "edges to children"],
  ["InE()", "edges from parents"],
  ["BothE()", "all edges"],
  ["Descendants(3)", "with their descendants"],
  ["Ascendants(3)", "with their ancestors"],
  ["Neighbors(\"RelationType\", \"layer2\", 2)", "with their neighbors"],
  ["ShortestPathTo(Metadata(\"Name\", \"eth0\"))", "the shortest path to a node"],
  ["SubGraph()", "only these"],
  ["Count()", "how many"],
  ["Values(\"Name\")", "values of a key"],
  ["ValueMap(\"Name\", \"MTU\")", "values of several keys"],
  ["Keys()", "all keys"],
  ["Sum(\"Metric.ABBytes\")", "sum of a key"],
  ["Metrics()", "counters"],
  ["Aggregates(10)", "counters in slices of seconds"],
  ["Hops()", "where flows were captured"],
  ["Path()", "where a conversation was seen, in order"],
  ["Nodes()", "nodes of flows"],
  ["RawPackets()", "packets that were kept"],
  ["BPF(\"tcp port 80\")", "packets that match"],
  ["Sockets()", "sockets with their processes"],
  ["ACLs()", "ACLs of OVN that let flows pass, or not"],
  ["Group()", "by a key"],
  ["NextHop(\"8.8.8.8\")", "where routes lead"],
];
const KEYS: [string, string][] = [
  "Name", "Type", "State", "@Host", "Host", "IPV4", "IPV6", "MAC", "MTU", "IfIndex", "Driver", "TID", "Captures.State", "Speed",
  "Network", "Network.A", "Network.B", "Transport", "Transport.B", "LayersPath", "Application", "CommunityID", "TrackingID",
  "Metric.ABBytes", "Metric.BABytes", "Metric.ABPackets", "LastUpdateMetric.ABBytes", "FinishType", "Process", "Container",
  "RelationType", "Start", "Last", "TCPMetric.State",
].map((key) => [key, "key"]);
const EXAMPLES = [
  'G.V().Has("Type", "bridge").Out()',
  'G.V().Has("State", "DOWN").ValueMap("Name", "@Host", "Type")',
  'G.Flows().Sort(DESC, "Metric.ABBytes").Limit(20)',
  'G.V().Has("Type", "host").Metrics()',
];
function offer(before: string): [string, string][] {
  const key = /"([A-Za-z.@]*)$/.exec(before);
  if (key && (before.match(/"/g)?.length ?? 0) % 2 === 1) {
    const word = key[1]!.toLowerCase();
    return KEYS.filter(([name]) => name.toLowerCase().startsWith(word)).slice(0, 8);
  }
  const step = /\.([A-Za-z]*)$/.exec(before);
  if (!step) return before === "" ? [["G", "the graph"]] : [];
  const word = step[1]!.toLowerCase();
  return STEPS.filter(([name]) => name.toLowerCase().startsWith(word)).slice(0, 8);
}

function take(before: string, chosen: string): string {
  const key = /"([A-Za-z.@]*)$/.exec(before);
  if (key && (before.match(/"/g)?.length ?? 0) % 2 === 1) return `${before.slice(0, key.index + 1)}${chosen}"`;
  return before.replace(/[A-Za-z]*$/, "") + chosen;
}

/** At the selected moment, unless the query has a moment of its own. */
function placed(query: string): string {
  if (at.value === null || /^G\.(At|Context)\(/i.test(query)) return query;
  return query.replace(/^G\b/, `G.At(${at.value})`);
}

const GREMLIN: Language = {
  id: "query",
  label: "Query in Gremlin",
  begin: 'G.V().Has("Type", "netns")',
  history: "skua-queries",
  examples: EXAMPLES,
  views: ["table", "graph", "chart", "json"],
  offer,
  take,
  ask: (query, signal) => ask(placed(query), signal),
};

/** Ways to ask, with their purposes. */
const KINDS: [string, string, string][] = [
  ["", "Gremlin", "graph and flows, now and in the past"],
  ["lake", "Lake", "past flows and services, summed up"],
  ["sql", "SQL", "past flows and services, in SQL"],
];

export function QueryView() {
  const of = param("of");
  return (
    <div class="list query">
      <div class="tools">
        <span class="tabs" role="group" aria-label="Language">
          {KINDS.filter(([kind]) => kind !== "sql" || features.value.includes("sql")).map(([kind, name]) => (
            <button key={kind} type="button" aria-pressed={of === kind} onClick={() => set({ of: kind, q: "" })}>{name}</button>
          ))}
        </span>
        <span class="quiet">{KINDS.find(([kind]) => kind === of)?.[2]}</span>
      </div>
      {of === "lake" ? <LakeView /> : of === "sql" ? <SqlView /> : <GremlinView />}
    </div>
  );
}

function GremlinView() {
  const query = param("q");
  return (
    <Questions key="gremlin" language={GREMLIN}>
      {/Flows\(/.test(query) && (
        <button
          type="button"
          onClick={() => {
            const asked = /RawPackets\(/.test(query) ? query : `${query}.RawPackets()`;
            packets(placed(asked)).then(
              (file) => save(file, "packets.pcapng"),
              (problem: Error) => say(problem.message, true),
            );
          }}
        >
          pcapng
        </button>
      )}
    </Questions>
  );
}
