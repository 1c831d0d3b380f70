// Captures, taps, detectors and alerts: list, status, create and delete.
import { signal, useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { change, get, packets, quoted, save } from "./api";
import { bytes, exact, moment, plain } from "./format";
import { useAnswer } from "./hooks";
import { Copy, Empty, Name, Trouble, Values, Window } from "./parts";
import { at, connection, isAdmin, link, param, say, set } from "./state";

type Thing = Record<string, unknown>;

interface Field {
  name: string;
  label: string;
  kind?: "text" | "number" | "choice" | "lines" | "check";
  choices?: string[];
  hint?: string;
  required?: boolean;
  value?: string;
}

interface Kind {
  key: string;
  title: string;
  one: string;
  /** What it is for, where there is none yet. */
  use: string;
  path: string;
  columns: [string, (thing: Thing, status: Map<string, Thing>) => ComponentChildren, "number"?][];
  fields: Field[];
  body: (values: Record<string, string>) => unknown;
}

const text = (thing: Thing, key: string) => <Name text={thing[key] ?? ""} most={60} />;
const num = (value: unknown) => (typeof value === "number" ? exact(value) : "");
/** Packets of an amount, which has bytes, too. */
const packetsOf = (value: unknown) => num((value as Thing | undefined)?.Packets);
const idOf = (thing: Thing) => String(thing.UUID ?? "");

/** A state that is seen by more than its colour. */
function State({ state, why }: { state: string; why?: string }) {
  const good = ["active", "quiet"].includes(state);
  const bad = ["firing", "failed", "refused", "error"].includes(state);
  return (
    <span class={`state ${good ? "good" : bad ? "bad" : ""}`}>
      <span aria-hidden="true">{good ? "●" : bad ? "▲" : "○"}</span> {plain(state)}
      {why && <span class="why"> {plain(why)}</span>}
    </span>
  );
}

/** Sums by cause, as a line. */
function causes(lost: unknown): ComponentChildren {
  if (typeof lost !== "object" || lost === null) return "";
  const parts = Object.entries(lost).flatMap(([cause, sum]) => {
    const amount = sum as Thing | null;
    const number = typeof sum === "number" ? sum : Number(amount?.packets ?? amount?.Packets ?? 0);
    return number > 0 ? [`${exact(number)} ${cause}`] : [];
  });
  return parts.length ? <span class="bad">{plain(parts.join(", "))}</span> : "none";
}

const pick = (values: Record<string, string>, names: string[], numbers: string[] = []): Thing => {
  const body: Thing = {};
  for (const name of names) if (values[name]) body[name] = values[name];
  for (const name of numbers) if (values[name]) body[name] = Number(values[name]);
  return body;
};
const list = (value: string | undefined) => (value ?? "").split(/[\s,]+/).filter(Boolean);

const CAPTURE_TYPES = ["ebpf", "afpacket", "pcap", "pcapsocket", "sflow", "netflow", "ovsmirror", "ovssflow", "ovsnetflow", "dpdk"];

const KINDS: Kind[] = [
  {
    key: "captures",
    title: "Captures",
    one: "capture",
    use: "A capture counts flows on the nodes that a query finds, and keeps the first packets of each on request: open them as pcapng, or watch them live.",
    path: "/api/capture",
    columns: [
      ["Name", (thing) => text(thing, "Name")],
      ["Nodes found by", (thing) => <code>{text(thing, "GremlinQuery")}</code>],
      ["Type", (thing) => text(thing, "Type")],
      ["Filter", (thing) => <code>{text(thing, "BPFFilter")}</code>],
      [
        "On",
        (thing) => {
          const nodes = (thing.Nodes as Thing[] | undefined) ?? [];
          if (!nodes.length) return <State state="waiting" why={String(thing.Error ?? thing.Unfit ?? "no node yet")} />;
          return (
            <ul class="plain">
              {nodes.slice(0, 5).map((node) => (
                <li key={String(node.TID)}>
                  <Name text={node.Name} most={24} /> <State state={String(node.State)} why={node.Error as string} />
                </li>
              ))}
              {nodes.length > 5 && <li class="quiet">and {nodes.length - 5} more</li>}
            </ul>
          );
        },
      ],
      ["Packets", (thing, status) => num((status.get(idOf(thing))?.in_flows as Thing | undefined)?.packets), "number"],
      ["Lost", (thing, status) => causes(status.get(idOf(thing))?.lost)],
      ["Since", (thing) => (typeof thing.CreateTime === "number" ? moment(thing.CreateTime) : "")],
    ],
    fields: [
      { name: "GremlinQuery", label: "Nodes (query)", required: true, hint: "It goes on to nodes that appear later.", value: 'G.V().Has("Name", "eth0")' },
      { name: "Name", label: "Name" },
      { name: "Type", label: "Type", kind: "choice", choices: CAPTURE_TYPES },
      { name: "BPFFilter", label: "Filter (pcap expression)" },
      { name: "RawPacketLimit", label: "First packets of each flow to keep", kind: "number", hint: "up to 10; -1: only for live watching" },
      { name: "SamplingRate", label: "Sampling: one packet in", kind: "number" },
      { name: "ttl", label: "Ends after", hint: "like 10m" },
    ],
    body: (values) => pick(values, ["GremlinQuery", "Name", "Type", "BPFFilter"], ["RawPacketLimit", "SamplingRate"]),
  },
  {
    key: "taps",
    title: "Taps",
    one: "tap",
    use: "A tap copies chosen packets of interfaces to a monitor: another interface, a VXLAN tunnel or a stream.",
    path: "/api/tap",
    columns: [
      ["Name", (thing) => text(thing, "Name")],
      ["State", (thing) => <State state={String(thing.State ?? "")} why={thing.Error as string} />],
      ["From", (thing) => <Name text={[...((thing.From as string[]) ?? []), thing.GremlinQuery ?? ""].filter(Boolean).join(", ")} />],
      ["To", (thing) => <Name text={((thing.To as string[]) ?? []).join(", ")} />],
      ["Match", (thing) => <code>{text(thing, "Match")}</code>],
      ["Matched", (thing) => packetsOf(thing.Matched), "number"],
      ["Copied", (thing) => packetsOf(thing.Copied), "number"],
      ["Not copied", (thing) => causes(thing.Dropped)],
    ],
    fields: [
      { name: "Name", label: "Name", required: true },
      { name: "From", label: "From interfaces", kind: "lines", hint: "eth0, eth0@NAMESPACE", required: true },
      { name: "To", label: "To monitors", kind: "lines", hint: "mon0, mon0@NAMESPACE, vxlan://ADDRESS/VNI", required: true },
      { name: "Direction", label: "Direction", kind: "choice", choices: ["both", "in", "out"] },
      { name: "Match", label: "Match (pcap expression)" },
      { name: "Cut", label: "Bytes to copy of each packet", kind: "number", hint: "0: all" },
      { name: "PacketRate", label: "Packets per second at most", kind: "number" },
      { name: "ttl", label: "Ends after", hint: "like 10m" },
    ],
    body: (values) => ({
      ...pick(values, ["Name", "Direction", "Match"], ["Cut", "PacketRate"]),
      From: list(values.From),
      To: list(values.To),
    }),
  },
  {
    key: "steer",
    title: "Steering",
    one: "detector",
    use: "A detector watches values in packets for jumps in the kernel, and reports, marks or redirects when one comes.",
    path: "/api/steer",
    columns: [
      ["Name", (thing) => text(thing, "Name")],
      ["Interface", (thing) => text(thing, "Interface")],
      ["Action", (thing) => `${plain(thing.Action)}${thing.DryRun ? " (dry run)" : ""}`],
      ["State", (thing) => <State state={String(thing.State ?? "")} why={thing.Reason as string} />],
      ["Counts", (thing) => <Counts of={thing} />],
      ["Since", (thing) => (typeof thing.CreatedAt === "number" ? moment(thing.CreatedAt) : "")],
    ],
    fields: [
      {
        name: "file",
        label: "Detector (JSON, keys as in docs/steer.md)",
        kind: "lines",
        required: true,
        value: '{\n "name": "jumps",\n "preset": "ewma-64",\n "interface": "eth0",\n "match": "udp dst port 9000",\n "action": {"report": true}\n}',
      },
    ],
    body: (values) => JSON.parse(values.file ?? "") as unknown,
  },
  {
    key: "alerts",
    title: "Alerts",
    one: "alert",
    use: "An alert asks a query again and again, and fires when its answer crosses a threshold: by a web hook, or into a file.",
    path: "/api/alert",
    columns: [
      ["Name", (thing) => text(thing, "Name")],
      ["State", (thing) => <State state={String(thing.State ?? "")} why={(thing.Error ?? thing.ActionError) as string} />],
      ["Query", (thing) => <code>{text(thing, "Expression")}</code>],
      ["Fires when", (thing) => (thing.Threshold === null || thing.Threshold === undefined ? "not 0" : `${plain(thing.Operator ?? ">")} ${plain(thing.Threshold)}`)],
      ["Value", (thing) => num(thing.Value), "number"],
      ["Action", (thing) => text(thing, "Action")],
    ],
    fields: [
      { name: "Name", label: "Name" },
      { name: "Expression", label: "Query", required: true, value: 'G.V().Has("State", "DOWN").Count()' },
      { name: "Operator", label: "Compared with", kind: "choice", choices: [">", ">=", "<", "<=", "==", "!="] },
      { name: "Threshold", label: "Threshold", kind: "number", hint: "empty: any value but 0 fires" },
      { name: "Hold", label: "Must hold for", hint: "like 30s" },
      { name: "Trigger", label: "When to query", hint: "graph, or duration:10s" },
      { name: "Action", label: "Action", hint: "https://…, file:///…" },
    ],
    body: (values) => pick(values, ["Name", "Expression", "Hold", "Trigger", "Action", ...(values.Threshold ? ["Operator"] : [])], ["Threshold"]),
  },
];

function Counts({ of }: { of: Thing }) {
  const counts = (of.Counts ?? of.Packets) as Thing | undefined;
  const own = Object.entries(counts ?? of).filter(([, value]) => typeof value === "number" && value > 0 && value < 1e15);
  return <>{own.filter(([key]) => key !== "CreatedAt").slice(0, 5).map(([key, value]) => `${key} ${exact(value as number)}`).join(", ")}</>;
}

interface Status {
  captures: (Thing & { uuid: string })[];
}

function things(answer: unknown): Thing[] {
  if (Array.isArray(answer)) return answer as Thing[];
  return answer && typeof answer === "object" ? (Object.values(answer) as Thing[]) : [];
}

export function ManageView() {
  const chosen = param("kind", "captures");
  const kind = KINDS.find((one) => one.key === chosen) ?? KINDS[0]!;
  return (
    <div class="list manage">
      <div class="tools" role="toolbar" aria-label="What is shown">
        <span class="tabs" role="group" aria-label="Kind">
          {KINDS.map((one) => (
            <button key={one.key} type="button" aria-pressed={one === kind} onClick={() => set({ kind: one.key, new: "", bpf: "", packets: "" })}>
              {one.title}
            </button>
          ))}
        </span>
        {isAdmin.value ? (
          <button type="button" class="primary" onClick={() => set({ new: "1" })}>
            New {kind.one}
          </button>
        ) : (
          <span class="quiet">The role read may not change anything.</span>
        )}
        {at.value !== null && <span class="quiet">This page shows the present: new ones act now.</span>}
      </div>
      <Listed key={kind.key} kind={kind} />
      {param("new") && isAdmin.value && <Form kind={kind} />}
    </div>
  );
}

/** Counts what was made and ended here: lists are asked for again at once. */
const changes = signal(0);

function Listed({ kind }: { kind: Kind }) {
  const answer = useAnswer(
    `${kind.key} ${changes.value}`,
    async (signal) => {
      const [all, status] = await Promise.all([
        get<unknown>(kind.path, signal),
        kind.key === "captures" ? get<Status>("/api/status", signal) : null,
      ]);
      return { all: things(all), status: new Map((status?.captures ?? []).map((one) => [one.uuid, one as Thing])) };
    },
    2000,
  );
  const open = useSignal<string | null>(null);
  const ending = useSignal<Thing | null>(null);
  const end = async (thing: Thing): Promise<void> => {
    ending.value = null;
    try {
      await change("DELETE", `${kind.path}/${encodeURIComponent(idOf(thing))}`);
      say(`The ${kind.one} has ended`);
      changes.value += 1;
    } catch (error) {
      say((error as Error).message, true);
    }
  };
  const all = answer.value.data?.all ?? [];
  const status = answer.value.data?.status ?? new Map<string, Thing>();
  return (
    <>
      <Trouble text={answer.value.error} />
      <div class={connection.value === "unreachable" ? "scroll old" : "scroll"} tabIndex={0} role="region" aria-label={kind.title}>
        {answer.value.data && all.length === 0 && (
          <Empty title={`There is no ${kind.one}.`}>
            <p>{kind.use}</p>
            {isAdmin.value && <button type="button" class="primary" onClick={() => set({ new: "1" })}>Make one</button>}
          </Empty>
        )}
        {all.length > 0 && (
          <table class="grid">
            <thead>
              <tr>
                {kind.columns.map(([name, , align]) => <th key={name} scope="col" class={align ?? ""}>{name}</th>)}
                <th scope="col"><span class="sr">Actions</span></th>
              </tr>
            </thead>
            <tbody>
              {all.map((thing) => (
                <>
                  <tr key={idOf(thing)}>
                    {kind.columns.map(([name, show, align]) => <td key={name} class={align ?? ""}>{show(thing, status)}</td>)}
                    <td class="buttons">
                      <button type="button" aria-expanded={open.value === idOf(thing)} onClick={() => (open.value = open.value === idOf(thing) ? null : idOf(thing))}>
                        Details
                      </button>
                      {kind.key === "captures" && <CaptureLinks thing={thing} />}
                      {isAdmin.value && (
                        <button type="button" class="danger" onClick={() => (ending.value = thing)}>
                          End
                        </button>
                      )}
                    </td>
                  </tr>
                  {open.value === idOf(thing) && (
                    <tr>
                      <td colSpan={kind.columns.length + 1}>
                        <Copy value={thing} />
                        <Values of={{ ...thing, ...(status.get(idOf(thing)) ? { Status: status.get(idOf(thing)) } : {}) }} />
                      </td>
                    </tr>
                  )}
                </>
              ))}
            </tbody>
          </table>
        )}
      </div>
      {ending.value && (
        <Window title={`End this ${kind.one}?`} close={() => (ending.value = null)}>
          <p><Name text={ending.value.Name || ending.value.GremlinQuery || ending.value.Expression || idOf(ending.value)} /></p>
          <p class="buttons">
            <button type="button" class="danger" onClick={() => void end(ending.value!)}>End it</button>
            <button type="button" onClick={() => (ending.value = null)}>Keep it</button>
          </p>
        </Window>
      )}
    </>
  );
}

function CaptureLinks({ thing }: { thing: Thing }) {
  const query = `G.Flows().Has("CaptureID", ${quoted(idOf(thing))})`;
  return (
    <>
      <a class="button" href={link("query", { q: `${query}.Sort(DESC, "Last").Limit(100)` })}>Flows</a>
      {thing.RawPacketLimit ? (
        <button
          type="button"
          onClick={() =>
            packets(`${query}.RawPackets()`).then(
              (file) => {
                save(file, "capture.pcapng");
                say(`${bytes(file.size)} of packets`);
              },
              (error: Error) => say(error.message, true),
            )
          }
        >
          pcapng
        </button>
      ) : null}
    </>
  );
}

function Form({ kind }: { kind: Kind }) {
  const error = useSignal("");
  const busy = useSignal(false);
  const close = () => set({ new: "", bpf: "", packets: "" });
  // Values that another view has filled in.
  const given: Record<string, string> = {};
  if (param("new") !== "1" && kind.key === "captures") given.GremlinQuery = param("new");
  if (param("bpf")) given.BPFFilter = param("bpf");
  if (param("packets")) given.RawPacketLimit = param("packets");
  const submit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    const data = new FormData(event.currentTarget as HTMLFormElement);
    const values: Record<string, string> = {};
    for (const [name, value] of data) if (typeof value === "string") values[name] = value.trim();
    busy.value = true;
    try {
      await change("POST", kind.path, kind.body(values), values.ttl ? { "x-resource-ttl": values.ttl } : {});
      say(`The ${kind.one} has been made`);
      changes.value += 1;
      close();
    } catch (problem) {
      error.value = (problem as Error).message;
    } finally {
      busy.value = false;
    }
  };
  return (
    <Window title={`New ${kind.one}`} close={close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        {kind.fields.map((field) => (
          <label key={field.name}>
            {field.label}
            {field.kind === "choice" ? (
              <select name={field.name}>
                {field.choices!.map((one) => <option key={one}>{one}</option>)}
              </select>
            ) : field.kind === "lines" ? (
              <textarea name={field.name} rows={field.value ? 9 : 2} required={field.required ?? false}>
                {given[field.name] ?? field.value ?? ""}
              </textarea>
            ) : (
              <input
                name={field.name}
                type={field.kind === "number" ? "number" : "text"}
                required={field.required ?? false}
                defaultValue={given[field.name] ?? field.value ?? ""}
              />
            )}
            {field.hint && <small>{field.hint}</small>}
          </label>
        ))}
        <Trouble text={error.value} />
        <p class="buttons">
          <button type="submit" class="primary" disabled={busy.value}>Make it</button>
          <button type="button" onClick={close}>Cancel</button>
        </p>
      </form>
    </Window>
  );
}
