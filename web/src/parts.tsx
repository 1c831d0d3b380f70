// Small parts that several views share.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { brief, plain } from "./format";
import { say } from "./state";

/** A name from outside. */
export function Name({ text, most = 60 }: { text: unknown; most?: number }) {
  const whole = plain(String(text ?? "").slice(0, 600));
  const shown = brief(text, most);
  return <bdi class="name" title={shown === whole ? undefined : whole}>{shown}</bdi>;
}

/** Column widths that do not depend on the content, px; columns of 0 share the rest. */
export function Columns({ widths }: { widths: number[] }) {
  return (
    <colgroup>
      {widths.map((width, at) => <col key={at} width={width || undefined} />)}
    </colgroup>
  );
}

export function Trouble({ text }: { text: string }) {
  return text ? (
    <pre class="trouble" role="alert">
      {plain(text)
        .split("␊")
        .join("\n")}
    </pre>
  ) : null;
}

/** What stands where nothing is: why, and what to do. */
export function Empty({ title, children }: { title: ComponentChildren; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** A part beside the view, closed with Escape. */
export function Aside({ title, close, children }: { title: ComponentChildren; close: () => void; children: ComponentChildren }) {
  const part = useRef<HTMLElement>(null);
  useEffect(() => {
    const key = (event: KeyboardEvent) => {
      if (event.key === "Escape" && !(event.target instanceof HTMLInputElement)) close();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
  return (
    <aside class="aside" ref={part} aria-label="Details">
      <header>
        <h2>{title}</h2>
        <button type="button" class="icon" aria-label="Close details" onClick={close}>
          ×
        </button>
      </header>
      <div class="aside-body">{children}</div>
    </aside>
  );
}

/** Copies an object as JSON. */
export function Copy({ value, label = "Copy as JSON" }: { value: unknown; label?: string }) {
  return (
    <button
      type="button"
      onClick={() => {
        navigator.clipboard
          ?.writeText(typeof value === "string" ? value : JSON.stringify(value, null, 1))
          .then(() => say("Copied"))
          .catch(() => say("The browser does not allow copying here", true)) ??
          say("Browsers allow copying only over HTTPS and on localhost", true);
      }}
    >
      {label}
    </button>
  );
}

/** Values by name, of any depth. */
export function Values({ of, path = "" }: { of: Record<string, unknown>; path?: string }) {
  return (
    <dl class="values">
      {Object.entries(of).map(([key, value]) => (
        <Entry key={key} name={key} value={value} path={`${path}.${key}`} />
      ))}
    </dl>
  );
}

const isPlain = (value: unknown) => value === null || typeof value !== "object";

function Entry({ name, value, path }: { name: string; value: unknown; path: string }) {
  if (isPlain(value)) {
    return (
      <div>
        <dt><Name text={name} most={40} /></dt>
        <dd><Name text={value} most={200} /></dd>
      </div>
    );
  }
  if (Array.isArray(value) && value.every(isPlain)) {
    return (
      <div>
        <dt><Name text={name} most={40} /></dt>
        <dd>{value.slice(0, 50).map((item, i) => <span key={i}>{i > 0 && ", "}<Name text={item} most={200} /></span>)}</dd>
      </div>
    );
  }
  const entries: [string, unknown][] = Array.isArray(value)
    ? value.slice(0, 100).map((item, i) => [String(i), item])
    : Object.entries(value as object).slice(0, 300);
  return (
    <div class="nested">
      <dt class="sr">{name}</dt>
      <dd>
        <details>
          <summary>
            <Name text={name} most={40} /> <span class="quiet">{entries.length}</span>
          </summary>
          <Values of={Object.fromEntries(entries)} path={path} />
        </details>
      </dd>
    </div>
  );
}

/** A window for something that has to be answered. */
export function Window({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    dialog.current?.showModal();
  }, []);
  return (
    <dialog ref={dialog} onClose={close} aria-label={title}>
      <header>
        <h2>{title}</h2>
        <button type="button" class="icon" aria-label="Close" onClick={() => dialog.current?.close()}>
          ×
        </button>
      </header>
      {children}
    </dialog>
  );
}
