// Questions to the lake in SQL, where the server has an engine.
import { useEffect } from "preact/hooks";
import { signal } from "@preact/signals";
import { lines } from "./api";
import { type Language, Questions } from "./ask";
import { sinceAndUntil, Since } from "./lake";
import { param } from "./state";

const WORDS: [string, string][] = [
  "select", "from", "where", "group by all", "order by", "limit", "desc", "count(*)", "sum(", "avg(", "min(", "max(",
  "quantile_cont(", "date_trunc('minute', ", "case when", "then", "else", "end", "and", "or", "not", "in (", "like", "is null",
  "having", "join", "with", "distinct",
].map((word) => [word, "SQL"]);
const TABLES = ["flows", "services"];
const EXAMPLES = [
  "select service, sum(ab_bytes_once + ba_bytes_once) bytes from flows group by all order by bytes desc limit 20",
  "select date_trunc('minute', time) t, count(*) n from flows group by all order by t",
  "describe flows",
];

/** Columns of the tables, once the server has sent them. */
const columns = signal<[string, string][]>([]);

async function learn(abort: AbortSignal): Promise<void> {
  const known = new Map<string, string>();
  for (const table of TABLES) {
    const query = new URLSearchParams({ statement: `describe ${table}` });
    const { rows } = await lines<{ column_name: string; column_type: string }>(`/api/sql?${query}`, abort);
    for (const row of rows) known.set(row.column_name, row.column_type.toLowerCase());
  }
  columns.value = [...TABLES.map((table): [string, string] => [table, "table"]), ...known];
}

const SQL: Language = {
  id: "sql",
  label: "Query in SQL",
  begin: EXAMPLES[0]!,
  history: "skua-sql",
  examples: EXAMPLES,
  views: ["table", "chart", "json"],
  offer: (before) => {
    const word = /[a-z_0-9]*$/i.exec(before)![0].toLowerCase();
    if (!word) return [];
    return [...columns.value, ...WORDS].filter(([name]) => name.startsWith(word) && name !== word).slice(0, 10);
  },
  take: (before, chosen) => before.replace(/[a-z_0-9]*$/i, "") + chosen,
  ask: async (statement, abort) => {
    const query = new URLSearchParams({ statement, ...sinceAndUntil() });
    return (await lines(`/api/sql?${query}`, abort)).rows;
  },
};

export function SqlView() {
  useEffect(() => {
    const abort = new AbortController();
    // Without an engine, the answer to the first query has the message.
    learn(abort.signal).catch(() => {});
    return () => abort.abort();
  }, []);
  return (
    <>
      <div class="tools" role="toolbar" aria-label="Time of the query">
        <Since />
        <span class="quiet">1,000 rows at most</span>
      </div>
      <Questions key="sql" language={SQL} more={param("since", "1h")} />
    </>
  );
}
