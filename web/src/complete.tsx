// A text field with completion (WAI-ARIA combobox with a list).
import { useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

interface Props {
  /** The initial value, also after a change of this or of `turn`; typed text does not change it. */
  value: string;
  turn?: number;
  label: string;
  placeholder?: string;
  rows?: number;
  id: string;
  /** Possible completions, each with an explanation. */
  offer: (before: string) => [string, string][];
  /** The text with an offer taken. */
  take: (before: string, chosen: string) => string;
  /** Called on Enter; with several rows on Control and Enter. */
  done: (text: string) => void;
  change?: (text: string) => void;
}

export function Complete({ value, turn, label, placeholder, rows, id, offer, take, done, change }: Props) {
  const text = useSignal(value);
  const open = useSignal(false);
  const active = useSignal(-1);
  const field = useRef<HTMLInputElement & HTMLTextAreaElement>(null);
  // Before the user can type: an effect after the next frame would undo what was typed until then.
  useLayoutEffect(() => {
    text.value = value;
  }, [value, turn]);
  const caret = () => field.current?.selectionStart ?? text.value.length;
  const offers = open.value ? offer(text.value.slice(0, caret())) : [];
  const put = (next: string) => {
    text.value = next;
    change?.(next);
  };
  const choose = (chosen: string) => {
    const place = caret();
    const before = take(text.value.slice(0, place), chosen);
    put(before + text.value.slice(place));
    active.value = -1;
    // At once: later the user's next characters would be in the wrong position.
    if (field.current) {
      field.current.value = text.value;
      field.current.focus();
      field.current.setSelectionRange(before.length, before.length);
    }
  };
  const key = (event: JSX.TargetedKeyboardEvent<HTMLElement>) => {
    if (open.value && offers.length && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      const step = event.key === "ArrowDown" ? 1 : -1;
      active.value = (active.value + step + offers.length + 1) % (offers.length + 1);
      if (active.value === offers.length) active.value = -1;
      event.preventDefault();
    } else if (event.key === "Tab" && !event.shiftKey && open.value && active.value >= 0) {
      choose(offers[active.value]![0]);
      event.preventDefault();
    } else if (event.key === "Enter" && active.value >= 0 && offers[active.value]) {
      choose(offers[active.value]![0]);
      event.preventDefault();
    } else if (event.key === "Enter" && (!rows || event.ctrlKey || event.metaKey)) {
      open.value = false;
      done(text.value.trim());
      event.preventDefault();
    } else if (event.key === "Escape" && open.value) {
      open.value = false;
      active.value = -1;
      event.stopPropagation();
    }
  };
  const common = {
    ref: field,
    id,
    value: text.value,
    placeholder,
    role: "combobox" as const,
    "aria-label": label,
    "aria-expanded": offers.length > 0,
    "aria-controls": `${id}-list`,
    "aria-autocomplete": "list" as const,
    "aria-activedescendant": active.value >= 0 ? `${id}-${active.value}` : undefined,
    autocomplete: "off",
    spellcheck: false,
    onInput: (event: JSX.TargetedInputEvent<HTMLInputElement & HTMLTextAreaElement>) => {
      put(event.currentTarget.value);
      open.value = true;
      active.value = -1;
    },
    onKeyDown: key,
    onBlur: () => setTimeout(() => (open.value = false), 150),
  };
  return (
    <div class="complete">
      {rows ? <textarea {...common} rows={rows} /> : <input {...common} type="text" />}
      <ul id={`${id}-list`} role="listbox" aria-label={`${label}: suggestions`} hidden={offers.length === 0}>
        {offers.map(([name, meaning], i) => (
          <li
            key={name}
            id={`${id}-${i}`}
            role="option"
            aria-selected={i === active.value}
            onMouseDown={(event) => {
              event.preventDefault();
              choose(name);
            }}
          >
            <code>{name}</code> <span class="quiet">{meaning}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
