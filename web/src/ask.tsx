// A field for queries in a language, with completion and history, and the result.
import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { save } from "./api";
import { Complete } from "./complete";
import { exact } from "./format";
import { Copy, Empty, Trouble } from "./parts";
import { Result } from "./result";
import { at, param, remember, set } from "./state";

/** Properties of a language. */
export interface Language {
  id: string;
  label: string;
  /** The initial query. */
  begin: string;
  /** Key of the earlier queries in the browser's storage. */
  history: string;
  examples: string[];
  /** How a result can be shown. */
  views: string[];
  offer: (before: string) => [string, string][];
  take: (before: string, chosen: string) => string;
  ask: (question: string, signal: AbortSignal) => Promise<unknown[]>;
}

/** Number of queries in the history. */
const REMEMBERED = 30;

function recall(key: string): string[] {
  try {
    const all: unknown = JSON.parse(localStorage.getItem(key) ?? "[]");
    return Array.isArray(all) ? all.filter((one) => typeof one === "string") : [];
  } catch {
    return [];
  }
}

/** A field for queries; `more` has further settings of a query, `children` further actions for a result. */
export function Questions({ language, more, children }: { language: Language; more?: string; children?: ComponentChildren }) {
  const query = param("q");
  const text = useSignal(query || language.begin);
  const given = useSignal({ text: text.value, turn: 0 });
  const give = (next: string) => {
    text.value = next;
    given.value = { text: next, turn: given.peek().turn + 1 };
  };
  const past = useSignal(recall(language.history));
  const answer = useSignal<{ found: unknown[]; took: number } | null>(null);
  const error = useSignal("");
  const busy = useSignal(false);
  const as = param("as", "table");
  const running = useRef<AbortController | null>(null);

  const run = async (asked: string): Promise<void> => {
    running.current?.abort();
    const abort = new AbortController();
    running.current = abort;
    busy.value = true;
    const begin = performance.now();
    try {
      const found = await language.ask(asked, abort.signal);
      answer.value = { found, took: performance.now() - begin };
      error.value = "";
      past.value = [asked, ...past.value.filter((one) => one !== asked)].slice(0, REMEMBERED);
      remember(language.history, JSON.stringify(past.value));
    } catch (problem) {
      if (abort.signal.aborted) return;
      error.value = (problem as Error).message;
    } finally {
      if (running.current === abort) busy.value = false;
    }
  };
  // Before the user types on, see Complete.
  useLayoutEffect(() => {
    if (query) {
      if (query !== text.peek()) give(query);
      void run(query);
    } else {
      answer.value = null;
      error.value = "";
    }
    return () => running.current?.abort();
  }, [query, at.value, more]);
  const go = (asked: string) => {
    if (asked === query) void run(asked);
    else set({ q: asked });
  };
  const found = answer.value?.found ?? [];
  return (
    <>
      <div class="ask">
        <Complete
          id={language.id}
          label={language.label}
          rows={3}
          value={given.value.text}
          turn={given.value.turn}
          offer={language.offer}
          take={language.take}
          change={(next) => (text.value = next)}
          done={go}
        />
        <div class="buttons">
          <button type="button" class="primary" disabled={busy.value} onClick={() => go(text.value.trim())}>
            Run
          </button>
          <span class="quiet">Ctrl+Enter</span>
          <label>
            <span class="sr">Earlier queries</span>
            <select
              value=""
              onChange={(event) => {
                if (event.currentTarget.value) give(event.currentTarget.value);
                event.currentTarget.value = "";
              }}
            >
              <option value="">History and examples</option>
              {past.value.length > 0 && (
                <optgroup label="History">
                  {past.value.map((one) => <option key={one} value={one}>{one.slice(0, 90)}</option>)}
                </optgroup>
              )}
              <optgroup label="Examples">
                {language.examples.map((one) => <option key={one} value={one}>{one}</option>)}
              </optgroup>
            </select>
          </label>
          <span class="tabs" role="group" aria-label="Show the answer as">
            {language.views.map((one) => (
              <button key={one} type="button" aria-pressed={as === one} onClick={() => set({ as: one })}>
                {one === "json" ? "JSON" : one}
              </button>
            ))}
          </span>
          {answer.value && (
            <>
              <span class="quiet" role="status">
                {exact(found.length)} {found.length === 1 ? "result" : "results"} in {answer.value.took.toFixed(0)} ms
              </span>
              <button type="button" onClick={() => save(JSON.stringify(found, null, 1), "answer.json")}>Save</button>
              <Copy value={found} />
              {children}
            </>
          )}
        </div>
      </div>
      <Trouble text={error.value} />
      {!answer.value && !error.value && !busy.value && (
        <Empty title="Ask a question, or begin with one of these:">
          <ul class="examples">
            {language.examples.map((one) => <li key={one}><button type="button" class="plain" onClick={() => { give(one); go(one); }}><code>{one}</code></button></li>)}
          </ul>
        </Empty>
      )}
      {answer.value && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Answer">
          {found.length === 0 ? <Empty title="Nothing was found."><p>The query is right, but nothing matches it{at.value === null ? "" : " at the moment that the time line shows"}. Names and types are exact: <code>G.V().Values("Type").Dedup()</code> lists what there is.</p></Empty> : <Result found={found} as={as} />}
        </div>
      )}
    </>
  );
}
