// State of the page: location (in the URL), user, and whether the server answers.
import { computed, effect, signal } from "@preact/signals";

export type View = "home" | "map" | "flows" | "services" | "captures" | "query";
export const VIEWS: [View, string][] = [
  ["home", "Home"],
  ["map", "Map"],
  ["flows", "Flows"],
  ["services", "Services"],
  ["captures", "Capture & act"],
  ["query", "Query"],
];

export type Params = Record<string, string>;
export interface Route {
  view: View;
  params: Params;
}

function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const view = VIEWS.find(([name]) => name === path)?.[0] ?? "home";
  return { view, params: Object.fromEntries(new URLSearchParams(query)) };
}

function address(route: Route): string {
  const entries = Object.entries(route.params).filter(([, value]) => value !== "");
  const query = new URLSearchParams(entries).toString();
  return `#/${route.view}${query ? `?${query}` : ""}`;
}

/** Where the page is. Everything that a colleague needs to see the same is in it. */
export const route = signal<Route>(parse(location.hash));
addEventListener("hashchange", () => {
  route.value = parse(location.hash);
});

/** The moment and the range of time, which stay when the view changes. */
function time(): Params {
  const { at, from } = route.value.params;
  return { ...(at ? { at } : {}), ...(from ? { from } : {}) };
}

/** Opens a view; the time stays. */
export function go(view: View, params: Params = {}): void {
  const next = { view, params: { ...time(), ...params } };
  history.pushState(null, "", address(next));
  route.value = next;
}

/** The address of a view at the same time. */
export function link(view: View, params: Params = {}): string {
  return address({ view, params: { ...time(), ...params } });
}

/** Changes parts of the address; empty ones are removed. */
export function set(params: Params): void {
  const all = { ...route.value.params, ...params };
  for (const [name, value] of Object.entries(all)) if (value === "") delete all[name];
  const next = { view: route.value.view, params: all };
  history.replaceState(null, "", address(next));
  route.value = next;
}

/** One part of the address. */
export const param = (name: string, otherwise = "") => route.value.params[name] ?? otherwise;

/** The selected moment, ms since the Unix epoch; null for now. */
export const at = computed<number | null>(() => {
  const value = Number(route.value.params.at);
  return route.value.params.at && Number.isFinite(value) ? value : null;
});

export interface User {
  name: string | null;
  admin: boolean;
}
/** The user; undefined until known, null if a login is needed. */
export const user = signal<User | null | undefined>(undefined);
export const isAdmin = computed(() => user.value?.admin ?? false);
export const version = signal("");
/** Optional parts of the program. */
export const features = signal<string[]>([]);

export type Link = "connecting" | "live" | "polling" | "unreachable";
/** The connection to the server. */
export const connection = signal<Link>("connecting");
/** Since when nothing answers, by our clock. */
export const unreachableSince = signal<number | null>(null);
effect(() => {
  if (connection.value !== "unreachable") unreachableSince.value = null;
  else if (unreachableSince.peek() === null) unreachableSince.value = Date.now();
});

/** How far the server's clock is ahead of ours, ms. */
export const skew = signal(0);
/** Now, by the server's clock. */
export const serverNow = () => Date.now() + skew.value;
/** Begin of the history, ms since the Unix epoch. */
export const begins = signal<number | null>(null);

/** A message to the user, shown for a while. */
export const notices = signal<{ id: number; text: string; bad: boolean }[]>([]);
let lastNotice = 0;
export function say(text: string, bad = false): void {
  const id = ++lastNotice;
  notices.value = [...notices.value.slice(-3), { id, text, bad }];
  setTimeout(
    () => {
      notices.value = notices.value.filter((notice) => notice.id !== id);
    },
    bad ? 12000 : 5000,
  );
}

const stored = (() => {
  try {
    return localStorage.getItem("skua-theme");
  } catch {
    return null;
  }
})();
const system = matchMedia("(prefers-color-scheme: dark)");
const systemDark = signal(system.matches);
system.addEventListener("change", (event) => {
  systemDark.value = event.matches;
});
/** The selected theme; empty for the system's. */
export const chosenTheme = signal(stored === "dark" || stored === "light" ? stored : "");
export const dark = computed(() => (chosenTheme.value ? chosenTheme.value === "dark" : systemDark.value));
effect(() => {
  document.documentElement.dataset.theme = dark.value ? "dark" : "light";
});
export function setTheme(theme: string): void {
  chosenTheme.value = theme;
  remember("skua-theme", theme);
}

/** Keeps a text in the browser, where that is allowed. */
export function remember(key: string, text: string): void {
  try {
    localStorage.setItem(key, text);
  } catch {
    // A browser without storage loses nothing else.
  }
}
