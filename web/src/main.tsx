import { render } from "preact";
import { useEffect } from "preact/hooks";
import { logOut, whoAmI } from "./api";
import { FlowsView } from "./flows/view";
import { clock } from "./format";
import { HomeView } from "./home";
import { Login } from "./login";
import { ManageView } from "./manage";
import { follow } from "./mapdata";
import { MapView } from "./map/view";
import { QueryView } from "./query";
import { ServicesView } from "./services/view";
import { chosenTheme, connection, dark, go, unreachableSince, link, notices, param, route, setTheme, user, version, VIEWS, type View } from "./state";
import { plain } from "./format";
import { Timeline } from "./timeline";

/** Interval of asking for the user while the server does not answer, ms. */
const RETRY = 3000;

const SHOWN: Record<View, () => preact.JSX.Element> = {
  home: HomeView,
  map: MapView,
  flows: FlowsView,
  services: ServicesView,
  captures: ManageView,
  query: QueryView,
};

function Status() {
  const state = connection.value;
  const words = {
    connecting: "connecting",
    live: "live",
    polling: "polling (no WebSocket)",
    unreachable: "no answer",
  }[state];
  return (
    <span class={`connection ${state}`} role="status" aria-label={`Connection: ${words}`}>
      <span aria-hidden="true">●</span> {words}
    </span>
  );
}

function Head() {
  const view = route.value.view;
  const next = chosenTheme.value === "" ? (dark.value ? "light" : "dark") : chosenTheme.value === "dark" ? "light" : "dark";
  return (
    <header class="head">
      <a class="brand" href={link("home")}>
        <img src="console/icon.svg" alt="" width={22} height={22} /> Skua
      </a>
      <nav aria-label="Views">
        {VIEWS.map(([name, title]) => (
          <a
            key={name}
            href={link(name)}
            aria-current={view === name ? "page" : undefined}
            onClick={(event) => {
              if (event.ctrlKey || event.metaKey || event.shiftKey) return;
              event.preventDefault();
              go(name);
            }}
          >
            {title}
          </a>
        ))}
      </nav>
      <span class="spring" />
      <Status />
      {user.value?.name && (
        <span class="user">
          {plain(user.value.name)}
          {!user.value.admin && " (read)"}
          <button type="button" onClick={() => void logOut()}>Log out</button>
        </span>
      )}
      <button type="button" class="icon" aria-label={`Switch to the ${next} theme`} title={`Switch to the ${next} theme`} onClick={() => setTheme(next)}>
        <span aria-hidden="true">{dark.value ? "☀" : "☾"}</span>
      </button>
    </header>
  );
}

function Page() {
  const someone = user.value;
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const known = async (): Promise<void> => {
      try {
        await whoAmI();
      } catch {
        timer = setTimeout(() => void known(), RETRY);
      }
    };
    void known();
    const stop = follow();
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, []);
  useEffect(() => {
    const title = VIEWS.find(([name]) => name === route.value.view)?.[1] ?? "";
    document.title = `${title} – Skua`;
  }, [route.value.view]);
  if (someone === null) return <Login />;
  if (someone === undefined) {
    return (
      <main class="login">
        <p role="status">{connection.value === "unreachable" ? "The server does not answer. Trying again …" : "Connecting …"}</p>
      </main>
    );
  }
  const Shown = SHOWN[route.value.view];
  return (
    <div class="page">
      <Head />
      {connection.value === "unreachable" && (
        <p class="banner" role="alert">
          The server has not answered since {clock(unreachableSince.value ?? Date.now())}. The page shows its last answer; trying
          again …
        </p>
      )}
      <main key={route.value.view}>
        <h1 class="sr">{VIEWS.find(([name]) => name === route.value.view)?.[1]}</h1>
        <Shown />
      </main>
      <Timeline />
      <div class="notices" role="status" aria-live="polite">
        {notices.value.map((notice) => (
          <p key={notice.id} class={notice.bad ? "notice bad" : "notice"}>
            {plain(notice.text)}
          </p>
        ))}
      </div>
      <footer class="sr">Skua {version.value}{param("at") ? ", in the past" : ""}</footer>
    </div>
  );
}

render(<Page />, document.getElementById("page")!);
