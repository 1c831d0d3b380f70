// What scripts of workflows can use: the API's resources, and queries that are written as calls. `host` is what
// Skua gives: request(method, path, body), sleep(ms), log(text), uuid5(space, name).
(function (host) {
  "use strict";

  // A parameter of a step, as the query language writes it.
  function written(parameter) {
    return typeof parameter === "string" ? JSON.stringify(parameter) : String(parameter);
  }
  function call(name, parameters) {
    return name + "(" + parameters.map(written).join(", ") + ")";
  }

  class Predicate {
    constructor(name, parameters) {
      this.text = call(name, parameters);
    }
    toString() {
      return this.text;
    }
  }
  const predicates = {};
  for (const name of ["NE", "GT", "LT", "GTE", "LTE", "IPV4RANGE", "REGEX", "WITHIN", "WITHOUT", "INSIDE", "OUTSIDE", "BETWEEN"]) {
    predicates[name] = (...parameters) => new Predicate(name, parameters);
  }
  for (const name of ["FOREVER", "NOW", "ASC", "DESC"]) {
    predicates[name] = new Predicate(name, []);
    predicates[name].text = name;
  }
  predicates.Metadata = (...parameters) => new Predicate("Metadata", parameters);

  // Answers to these steps are a list with one object.
  const OBJECTS = ["G", "At", "Context", "SubGraph", "Subgraph", "Metrics", "Aggregates", "RawPackets", "BPF", "Sockets", "Path", "ACLs", "NextHop",
    "Group", "MoreThan"];
  // These keep the kind of what they follow.
  const KEEPING = ["Has", "HasEither", "HasKey", "HasNot", "Dedup", "Sort", "Limit", "Range"];

  // A query: each method in capitals is its next step.
  function query(text, kind) {
    const own = {
      toString: () => text,
      result: () => {
        const found = client.gremlin.query(text);
        return OBJECTS.includes(kind) && Array.isArray(found) ? found[0] || {} : found;
      },
    };
    return new Proxy(own, {
      get(target, name) {
        if (typeof name !== "string" || name in target || !/^[A-Z]\w*$/.test(name)) return target[name];
        return (...parameters) => query(text + "." + call(name, parameters), KEEPING.includes(name) ? kind : name);
      },
    });
  }

  class Resources {
    constructor(name) {
      this.path = "/api/" + name;
    }
    create(object) {
      return Object.assign(Object.create(Object.getPrototypeOf(object)), client.request(this.path, "POST", JSON.stringify(object)));
    }
    list() {
      return client.request(this.path, "GET", "");
    }
    get(id) {
      return client.request(this.path + "/" + encodeURIComponent(id), "GET", "");
    }
    delete(id) {
      return client.request(this.path + "/" + encodeURIComponent(id), "DELETE", "");
    }
  }

  const client = {
    request(path, method, body) {
      const answer = host.request(method, path, body || "");
      return answer === "" ? null : JSON.parse(answer);
    },
    gremlin: {
      query: (text) => client.request("/api/topology", "POST", JSON.stringify({ GremlinQuery: String(text) })) || [],
      G: () => query("G", "G"),
    },
    G: query("G", "G"),
    alerts: new Resources("alert"),
    captures: new Resources("capture"),
    edgeRules: new Resources("edgerule"),
    edges: new Resources("edge"),
    nodeRules: new Resources("noderule"),
    nodes: new Resources("node"),
    packetInjections: new Resources("injectpacket"),
  };

  const api = { Client: function () { return client; }, ...predicates };
  for (const name of ["Alert", "Capture", "EdgeRule", "GraphEdge", "GraphNode", "NodeRule", "PacketInjection"]) {
    api[name] = { [name]: class {} }[name];
  }
  api.Graph = class Graph {
    constructor(nodes, edges) {
      this.nodes = nodes || {};
      this.edges = edges || {};
    }
  };

  // An identifier that follows from a name; no other kind has a use here.
  class UUID {
    constructor(version, space, name) {
      if (version !== 5) throw new RangeError("UUID: only version 5");
      this.text = host.uuid5(String(space), String(name));
    }
    toString() {
      return this.text;
    }
    format() {
      return this.text;
    }
  }

  const log = (...values) =>
    host.log(values.map((value) => (typeof value === "object" ? JSON.stringify(value) : String(value))).join(" "));
  const console = { log, info: log, warn: log, error: log, debug: log };
  const { Client, ...names } = api;
  Object.assign(globalThis, names, { api, client, console, UUID, sleep: (ms) => host.sleep(Number(ms)) });
});
