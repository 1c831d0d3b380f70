// Numbers, times and foreign texts as people read them.

const UNITS = ["", "k", "M", "G", "T", "P"];

/** A number with a decimal prefix: 1234567 is "1.23 M". */
function scaled(value: number, unit: string): string {
  let step = 0;
  let rest = value;
  while (Math.abs(rest) >= 999.5 && step < UNITS.length - 1) {
    rest /= 1000;
    step += 1;
  }
  const digits = step === 0 ? (Number.isInteger(rest) ? 0 : 1) : rest < 10 ? 2 : rest < 100 ? 1 : 0;
  return `${rest.toFixed(digits)} ${UNITS[step]}${unit}`.trimEnd();
}

/** Bytes. */
export const bytes = (value: number) => scaled(value, "B");
/** Bits per second. */
export const rate = (value: number) => (value > 0 ? scaled(value, "bit/s") : "–");
/** A count of things. */
export const count = (value: number) => scaled(value, "").trim();
/** All digits, in groups. */
export const exact = (value: number) => value.toLocaleString("en-US");

/** A span given in ns. */
export function span(ns: number): string {
  if (ns < 1e3) return `${ns.toFixed(0)} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(0)} µs`;
  if (ns < 1e9) return `${(ns / 1e6).toFixed(ns < 1e7 ? 1 : 0)} ms`;
  const seconds = ns / 1e9;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

const two = (value: number) => String(value).padStart(2, "0");

/** Whether the reader's clock has 12 hours. */
export const TWELVE = new Intl.DateTimeFormat(undefined, { hour: "numeric" }).resolvedOptions().hour12 ?? false;

/** The time of day, in the reader's zone and by the reader's clock. */
export function clock(ms: number, fine: "minutes" | "seconds" | "fractions" = "seconds"): string {
  const date = new Date(ms);
  const hour = date.getHours();
  const parts = [TWELVE ? String(hour % 12 || 12) : two(hour), two(date.getMinutes())];
  if (fine !== "minutes") parts.push(two(date.getSeconds()));
  const fraction = fine === "fractions" ? `.${String(date.getMilliseconds()).padStart(3, "0")}` : "";
  return `${parts.join(":")}${fraction}${TWELVE ? (hour < 12 ? " AM" : " PM") : ""}`;
}

/** Day and time, in the reader's zone; short without the year and the seconds. */
export function moment(ms: number, short = false): string {
  const date = new Date(ms);
  const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return short ? `${day} ${clock(ms, "minutes")}` : `${date.getFullYear()}-${day} ${clock(ms)}`;
}

/** A moment as people write it: a time of today, with or without a day before it, or so long ago; null if it is none. */
export function parseMoment(text: string, now: number): number | null {
  const past = /^-?\s*(\d+(?:\.\d+)?)\s*(s|m|min|h|d)(?:\s+ago)?$/i.exec(text.trim());
  if (past) {
    const unit = { s: 1e3, m: 60e3, min: 60e3, h: 3600e3, d: 86400e3 }[past[2]!.toLowerCase()]!;
    return now - Number(past[1]) * unit;
  }
  const found = /^(?:(?:(\d{4})-)?(\d{1,2})-(\d{1,2})[ T]+)?(\d{1,2}):(\d{2})(?::(\d{2}))?\s*([ap]m)?$/i.exec(text.trim());
  if (!found) return null;
  const date = new Date(now);
  if (found[2]) date.setFullYear(Number(found[1] ?? date.getFullYear()), Number(found[2]) - 1, Number(found[3]));
  let hour = Number(found[4]);
  if (found[7]) hour = (hour % 12) + (/p/i.test(found[7]) ? 12 : 0);
  if (hour > 23 || Number(found[5]) > 59 || Number(found[6] ?? 0) > 59) return null;
  date.setHours(hour, Number(found[5]), Number(found[6] ?? 0), 0);
  return date.getTime();
}

/** How long ago something was. */
export function ago(ms: number, now: number): string {
  const past = Math.max(0, now - ms);
  return past < 1500 ? "now" : `${span(Math.floor(past / 1000) * 1e9)} ago`;
}

// Control characters, marks that change the writing direction, and characters without width.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/g;

/** A text from outside, with invisible characters made visible. The page inserts it as text, never as HTML. */
export function plain(text: unknown): string {
  return String(text ?? "").replace(HIDDEN, (sign) => {
    const code = sign.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** As {@link plain}, cut to this many characters. */
export function brief(text: unknown, most: number): string {
  const all = plain(String(text ?? "").slice(0, most * 2));
  const signs = [...all];
  return signs.length > most ? `${signs.slice(0, most - 1).join("")}…` : all;
}

/** Address and port; IPv6 in brackets. */
export function endpoint(address: string, port?: number): string {
  if (port === undefined || port === 0) return address;
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}
