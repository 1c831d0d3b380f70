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

/** The time of day, in the reader's zone. */
export function clock(ms: number, fractions = false): string {
  const date = new Date(ms);
  const text = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return fractions ? `${text}.${String(date.getMilliseconds()).padStart(3, "0")}` : text;
}

/** Day and time, in the reader's zone. */
export function moment(ms: number): string {
  const date = new Date(ms);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(ms)}`;
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
