// What the tests, the pictures and the benchmark share: a `skua run`, traffic in the lab, a browser.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { symlinkSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";

/** How long anything may take, ms; machines are slow. */
export const PATIENCE = 60_000;
export const { FOLDER, LAB, SKUA } = process.env;
const children = new Set();

/** Who asks, when nothing else is said: a token that is no secret. */
export const TOKEN = "skua_tests-of-skua-all-have-this-token-0000000000";
const LINE = "tests admin - sha256:b70b6bf7eaa96940f13825b1dd9da5972ef85b482fd278a3b6599dc55c0414b3\n";
const ask = globalThis.fetch;
globalThis.fetch = (url, init = {}) =>
  ask(url, { ...init, headers: { authorization: `Bearer ${TOKEN}`, ...init.headers } });

function start(command, args, options = {}) {
  const child = spawn(command, args, { stdio: "ignore", ...options });
  children.add(child);
  child.on("exit", () => children.delete(child));
  return child;
}

/** Ends all that was started here. */
export function endAll() {
  for (const child of children) child.kill("SIGKILL");
}

/** Runs something on a machine of the lab. */
export const on = (machine, ...command) =>
  start("nsenter", [`--net=/run/netns/${LAB}-${machine}`, "--", ...command]);

/** Waits until something is so. */
export async function until(what, check) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const found = await check();
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited too long for ${what}`);
    await sleep(100);
  }
}

/** A command's output; an error when it fails. */
export async function output(command, args, options = {}) {
  // What reads nothing may have ended before anything is written.
  const input = options.input === undefined ? "ignore" : "pipe";
  const child = spawn(command, args, { stdio: [input, "pipe", "inherit"], ...options });
  let text = "";
  child.stdout.on("data", (part) => (text += part));
  child.stdin?.end(options.input);
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`${command} ${args.join(" ")} ended with ${code}`);
  return text;
}

export class Skua {
  constructor(port = 8082, variables = {}, options = []) {
    this.url = `http://127.0.0.1:${port}/`;
    this.port = port;
    this.socket = `${FOLDER}/skua-${port}.sock`;
    this.variables = variables;
    this.options = options;
  }

  async start() {
    writeFileSync(`${FOLDER}/known`, LINE, { mode: 0o600 });
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith("SKUA")));
    this.child = start(
      SKUA,
      ["run", "--all-netns", "--listen", `127.0.0.1:${this.port}`, "--scan-interval", "2s", ...this.options],
      {
        env: { ...env, SKUA_CONFIG: "/dev/null", SKUA_HISTORY_DIRECTORY: "", SKUA_API_TOKENS: `${FOLDER}/known`, SKUA_API_SOCKET: this.socket, ...this.variables },
        stdio: ["ignore", "ignore", "pipe"],
      },
    );
    const lines = createInterface({ input: this.child.stderr });
    const said = [];
    lines.on("line", (line) => {
      said.push(line);
      if (process.env.VERBOSE) console.error(`skua: ${line}`);
    });
    await until("skua run", async () => {
      if (this.child.exitCode !== null) throw new Error(`skua run ended: ${said.join("\n")}`);
      // 401 is an answer, too.
      return fetch(`${this.url}api`).then(() => true, () => false);
    });
  }

  async stop(signal = "SIGTERM") {
    if (this.child.exitCode !== null) return;
    const end = once(this.child, "exit");
    this.child.kill(signal);
    await end;
  }

  async get(path) {
    const response = await fetch(this.url + path);
    return response.json();
  }
}

/** Servers on db, and clients on web and far that go on. */
export async function traffic() {
  writeFileSync(`${FOLDER}/serve.py`, SERVERS);
  on("db", "python3", `${FOLDER}/serve.py`);
  await until("a server on db", async () => {
    const [code] = await once(on("web", "curl", "-s", "-o", "/dev/null", "http://10.99.1.3/small"), "exit");
    return code === 0;
  });
  on("web", "curl", "-s", "-o", "/dev/null", "--limit-rate", "3M", "http://10.99.1.3/endless");
  on("far", "curl", "-s", "-o", "/dev/null", "--limit-rate", "400k", "--interface", "10.99.3.2", "http://10.99.1.3/endless");
  on("web", "sh", "-c", "while :; do curl -s -o /dev/null http://10.99.1.3/small; curl -s -o /dev/null http://10.99.1.3:81/; sleep 0.5; done");
  on("host", "sh", "-c", "while :; do curl -s -o /dev/null http://10.99.1.3:8080/small; sleep 0.7; done");
  on("web", "python3", "-c", ASKS);
  on("host", "ping", "-q", "10.99.1.2");
}

/**
 * A chain of services that go on calling each other: curl on host → gateway on web → orders on db → postgres on far, all but the first
 * under names of their own; and one call in six is of a port where nobody listens.
 */
export async function chain() {
  writeFileSync(`${FOLDER}/serve-chain.py`, CHAIN);
  const python = (await output("python3", ["-c", "import os, sys; print(os.path.realpath(sys.executable))"])).trim();
  const serve = (machine, name, ...rest) => {
    symlinkSync(python, `${FOLDER}/${name}`);
    on(machine, `${FOLDER}/${name}`, `${FOLDER}/serve-chain.py`, ...rest);
  };
  serve("far", "postgres", "5432");
  serve("db", "orders", "9000", "10.99.3.2:5432");
  serve("web", "gateway", "8000", "10.99.1.3:9000", "10.99.1.3:9001");
  await until("an answer of the chain", async () => {
    const [code] = await once(on("host", "curl", "-sf", "-o", "/dev/null", "http://10.99.1.2:8000/"), "exit");
    return code === 0;
  });
  on("host", "sh", "-c", "while :; do curl -s -o /dev/null http://10.99.1.2:8000/; sleep 0.3; done");
}

const CHAIN = `
import socket, sys, threading
port, *upstream = sys.argv[1:]
calls = 0
def call(address):
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), 3) as up:
        up.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
        while up.recv(65536):
            pass
def answer(client):
    global calls
    calls += 1
    with client:
        client.recv(4096)
        for n, address in enumerate(upstream):
            if n and calls % 6:
                continue
            try:
                call(address)
            except OSError:
                pass
        client.sendall(b"HTTP/1.0 200 OK\\r\\nContent-Length: 4000\\r\\n\\r\\n" + bytes(4000))
listener = socket.create_server(("", int(port)))
while True:
    client, _ = listener.accept()
    threading.Thread(target=answer, args=(client,), daemon=True).start()
`;

const SERVERS = `
import socket, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        try:
            while True:
                self.wfile.write(bytes(20000))
                if self.path != "/endless":
                    break
        except OSError:
            pass
    def log_message(self, *_):
        pass
def names():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("10.99.1.3", 53))
    while True:
        query, client = s.recvfrom(512)
        s.sendto(query + bytes(80), client)
threading.Thread(target=names, daemon=True).start()
threading.Thread(target=ThreadingHTTPServer(("", 8080), Handler).serve_forever, daemon=True).start()
ThreadingHTTPServer(("", 80), Handler).serve_forever()
`;
const ASKS = `
import socket, time
while True:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(1)
    s.connect(("10.99.1.3", 53))
    for _ in range(4):
        try:
            s.send(bytes(33))
            s.recv(512)
        except OSError:
            pass
        time.sleep(0.3)
`;

export const launch = () =>
  chromium.launch({
    executablePath: process.env.CHROMIUM,
    args: ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--force-color-profile=srgb"],
  });

/** A page that notes what it complains of, and whom it asks; logged in, unless that is not wanted. */
export async function open(browser, { stranger = false, ...options } = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  const cookie = { name: "authtok", value: TOKEN, domain: "127.0.0.1", path: "/", httpOnly: true, sameSite: "Strict" };
  if (!stranger) await context.addCookies([cookie]);
  const page = await context.newPage();
  page.setDefaultTimeout(PATIENCE);
  page.complaints = [];
  page.strangers = [];
  page.on("console", (message) => {
    if (message.type() === "error" || message.type() === "warning") page.complaints.push(`${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => page.complaints.push(String(error.stack ?? error)));
  page.on("request", (request) => {
    const { hostname, protocol } = new URL(request.url());
    if (hostname !== "127.0.0.1" && protocol !== "blob:" && protocol !== "data:") page.strangers.push(request.url());
  });
  return page;
}
