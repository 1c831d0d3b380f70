// Requests to the server that the page came from.
import { connection, features, user, version } from "./state";

/** The server does not answer. */
export class Unreachable extends Error {}
/** The server refuses; the message is its line of text. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    text: string,
  ) {
    super(text);
  }
}

/** Longest time for an answer, ms. */
const PATIENCE = 15000;

async function request(path: string, init: RequestInit = {}): Promise<Response> {
  const signals = [AbortSignal.timeout(PATIENCE), ...(init.signal ? [init.signal] : [])];
  let response;
  try {
    response = await fetch(path, { ...init, signal: AbortSignal.any(signals) });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    connection.value = "unreachable";
    throw new Unreachable("the server does not answer");
  }
  if (response.status === 401) user.value = null;
  if (!response.ok) {
    const text = (await response.text()).trim();
    throw new Refused(response.status, text || `status ${response.status}`);
  }
  return response;
}

/** An object. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await request(path, { signal: signal ?? null });
  return (await response.json()) as T;
}

/** Lines of objects, and how many there would be without a limit. */
export async function lines<T>(path: string, signal?: AbortSignal): Promise<{ rows: T[]; found: number | null }> {
  const response = await request(path, { signal: signal ?? null });
  const text = await response.text();
  const rows = text.split("\n").flatMap((line) => (line ? [JSON.parse(line) as T] : []));
  const found = response.headers.get("x-skua-found");
  return { rows, found: found === null ? null : Number(found) };
}

/** Sends a change; returns the answer, if it has a body. */
export async function change(
  method: "POST" | "PUT" | "DELETE" | "PATCH",
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<unknown> {
  const response = await request(path, {
    method,
    headers: { "content-type": "application/json", ...headers },
    body: body === undefined ? null : JSON.stringify(body),
  });
  const text = await response.text();
  return text ? (JSON.parse(text) as unknown) : null;
}

/** The result of a query; an empty one is an empty list. */
export async function ask<T = unknown>(query: string, signal?: AbortSignal): Promise<T[]> {
  const response = await request("/api/topology", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ GremlinQuery: query }),
    signal: signal ?? null,
  });
  if (response.status === 204) return [];
  const found: unknown = await response.json();
  return (Array.isArray(found) ? found : [found]) as T[];
}

/** A file that a query makes. */
export async function packets(query: string): Promise<Blob> {
  const response = await request("/api/topology", {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/x-pcapng" },
    body: JSON.stringify({ GremlinQuery: query }),
  });
  return response.blob();
}

interface About {
  Version: string;
  Caller: { Name: string; Role: string } | null;
  Features?: string[];
}

/** The code in a link that `skua console` prints. */
const LINK = /^#login=([\w-]+)$/;

/** Logs in with the code of such a link, once; then it is no longer in the address. */
async function followLink(): Promise<void> {
  const code = LINK.exec(location.hash)?.[1];
  if (!code) return;
  try {
    await change("POST", "/login", { code });
  } catch (error) {
    // A refused code does not end a session; without a session the page shows the login.
    if (!(error instanceof Refused)) throw error;
  }
  history.replaceState(null, "", "#/home");
}
addEventListener("hashchange", () => {
  if (LINK.test(location.hash)) whoAmI().catch(() => undefined);
});

/** Asks the server for the user of this session. */
export async function whoAmI(): Promise<void> {
  await followLink();
  try {
    const about = await get<About>("/api");
    version.value = about.Version;
    features.value = about.Features ?? [];
    user.value = { name: about.Caller?.Name ?? null, admin: about.Caller ? about.Caller.Role === "admin" : true };
  } catch (error) {
    if (error instanceof Refused && error.status === 401) user.value = null;
    else throw error;
  }
}

/** Logs in with a password or a token; the server keeps it in a cookie that scripts do not see. */
export async function logIn(secret: { username: string; password: string } | { token: string }): Promise<void> {
  await change("POST", "/login", secret);
  await whoAmI();
}

export async function logOut(): Promise<void> {
  await change("POST", "/logout", {});
  user.value = null;
}

/** A text in a query, between quotes. */
export const quoted = (text: string) => `"${text.replace(/[\\"]/g, (sign) => (sign === '"' ? '\\"' : sign))}"`;

/** Has the browser save something. */
export function save(content: Blob | string, name: string, type = "application/json"): void {
  const url = URL.createObjectURL(typeof content === "string" ? new Blob([content], { type }) : content);
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.download = name;
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}
