//! Permissions of callers.

use skua_server::auth::{
    Role,
    tokens::{self, Token, Tokens},
    users::{self, User, Users},
};

use crate::tests::*;

struct Guarded {
    running: Running,
    users: Scratch,
    tokens: Scratch,
    admin: String,
}

fn user(name: &str, role: Role, password: &str) -> User {
    User {
        name: name.into(),
        role,
        proof: users::hash(password).unwrap(),
    }
}

fn token(name: &str, role: Role, text: &str) -> Token {
    Token {
        name: name.into(),
        role,
        end: None,
        hash: tokens::hash(text),
    }
}

impl Guarded {
    fn start() -> Self {
        let people = Users(vec![
            user("alice", Role::Admin, "open sesame"),
            user("bob", Role::Read, "geheim"),
        ]);
        let users = secret("users", &people.text());
        let admin = tokens::new_token().unwrap();
        let list = Tokens(vec![token("deploy", Role::Admin, &admin)]);
        let tokens = secret("tokens", &list.text());
        let api = format!(", users: {}, tokens: {}", users.display(), tokens.display());
        Self {
            running: Running::start(&api, Limits::default(), Router::new()),
            users,
            tokens,
            admin,
        }
    }

    fn status(&self, head: &str) -> u16 {
        self.running.ask(head, "").status
    }

    fn log_in(&self, name: &str, password: &str) -> Reply {
        let body = format!("username={name}&password={}", password.replace(' ', "+"));
        let form = "Content-Type: application/x-www-form-urlencoded";
        self.running.ask(&format!("POST /login\r\n{form}"), &body)
    }
}

fn basic(name: &str, password: &str) -> String {
    use base64::Engine as _;
    let pair = format!("{name}:{password}");
    let text = base64::engine::general_purpose::STANDARD.encode(pair);
    format!("Authorization: Basic {text}")
}

const JSON: &str = "Content-Type: application/json";

#[test]
fn nothing_is_shown_to_strangers() {
    let guarded = Guarded::start();
    for path in [
        "/",
        "/api",
        "/api/flows",
        "/api/openapi.json",
        "/ws/subscriber",
        "/x",
    ] {
        let reply = guarded.running.get(path);
        assert_eq!(reply.status, 401, "{path}");
        assert!(
            reply
                .header("www-authenticate")
                .unwrap()
                .starts_with("Basic ")
        );
    }
    assert_eq!(guarded.status("GET /login"), 401);
    let change = format!("PUT /api/addresses\r\n{JSON}");
    assert_eq!(guarded.running.ask(&change, "{}").status, 401);
}

#[test]
fn metrics_are_open_to_this_host_or_as_configured() {
    let status = |more: &str| {
        let file = secret("tokens", "");
        let api = format!(", tokens: {}{more}", file.display());
        let running = Running::start(&api, Limits::default(), Router::new());
        assert_eq!(running.get("/metrics/").status, 401);
        assert_eq!(
            running
                .ask(&format!("POST /metrics\r\n{JSON}"), "{}")
                .status,
            401
        );
        running.get("/metrics").status
    };
    assert_eq!(status(""), 200);
    assert_eq!(status(", metrics: loopback"), 200);
    assert_eq!(status(", metrics: open"), 200);
    assert_eq!(status(", metrics: login"), 401);
}

#[test]
fn users_of_this_host_use_the_socket_and_get_links_there() {
    use std::io::{Read as _, Write as _};
    let path = scratch("sock");
    let file = secret("tokens", "");
    let api = format!(", tokens: {}, socket: {}", file.display(), path.display());
    let running = Running::start(&api, Limits::default(), Router::new());
    let ask = |head: &str, body: &str| {
        let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
        stream
            .write_all(running.request(head, body).as_bytes())
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    };
    assert_eq!(running.get("/api").status, 401, "over TCP");
    let (status, about) = ask("GET /api", "");
    assert_eq!(status, 200, "{about}");
    let about: Value = serde_json::from_str(&about).unwrap();
    assert_eq!(about["Caller"]["Role"], "admin");
    // Clients over TCP get no link, and a link logs in once.
    let console = format!("POST /api/console\r\n{JSON}");
    assert_eq!(running.ask(&console, "{}").status, 401);
    let (status, made) = ask(&console, "{}");
    assert_eq!(status, 200, "{made}");
    let made: Value = serde_json::from_str(&made).unwrap();
    let link = made["Url"].as_str().unwrap();
    let (page, code) = link.split_once("/#login=").unwrap();
    assert_eq!(page, format!("http://{}", running.address));
    let login = format!("POST /login\r\n{JSON}");
    let body = serde_json::json!({"code": code}).to_string();
    let session = running.ask(&login, &body);
    assert_eq!(session.status, 200, "{session:?}");
    assert_eq!(session.json()["Role"], "admin");
    let cookie = format!(
        "Cookie: authtok={}",
        session.json()["Token"].as_str().unwrap()
    );
    assert_eq!(
        running.ask(&format!("GET /api\r\n{cookie}"), "").status,
        200
    );
    assert_eq!(
        running.ask(&format!("{console}\r\n{cookie}"), "{}").status,
        403
    );
    assert_eq!(running.ask(&login, &body).status, 401, "used");
}

#[test]
fn supervisors_need_no_login_and_learn_nothing_else() {
    let guarded = Guarded::start();
    let reply = guarded.running.get("/health");
    assert_eq!((reply.status, &*reply.body), (200, "{\"status\":\"ok\"}\n"));
    for path in ["/health/", "/health/x", "/healthy", "/API/health"] {
        assert_eq!(guarded.running.get(path).status, 401, "{path}");
    }
    let change = format!("POST /health\r\n{JSON}");
    assert_eq!(guarded.running.ask(&change, "{}").status, 401);
    let evil = guarded.status("GET /health\r\nHost: evil.example");
    assert_eq!(evil, 403);
}

#[test]
fn each_role_may_do_its_part() {
    let guarded = Guarded::start();
    let admin = format!("Authorization: Bearer {}", guarded.admin);
    let header = format!("X-Auth-Token: {}", guarded.admin);
    let (alice, bob) = (basic("alice", "open sesame"), basic("bob", "geheim"));
    for who in [&admin, &header, &alice, &bob] {
        assert_eq!(
            guarded.status(&format!("GET /api/summary\r\n{who}")),
            200,
            "{who}"
        );
        let ask = format!("POST /api/topology\r\n{JSON}\r\n{who}");
        let query = r#"{"GremlinQuery": "G.V().Count()"}"#;
        assert_eq!(guarded.running.ask(&ask, query).status, 200, "{who}");
        let change = format!("POST /api/addresses\r\n{JSON}\r\n{who}");
        let status = guarded
            .running
            .ask(&change, r#"{"exclude": ["10.0.0.1"]}"#)
            .status;
        assert_eq!(status, if *who == bob { 403 } else { 200 }, "{who}");
    }
    let about = guarded
        .running
        .ask(&format!("GET /api\r\n{bob}"), "")
        .json();
    assert_eq!(
        about["Caller"],
        serde_json::json!({"Name": "bob", "Role": "read"})
    );
    for wrong in [
        basic("alice", "geheim"),
        "Authorization: Bearer skua_x".into(),
        "X-Auth-Token: ".into(),
        "Authorization: Basic x".into(),
    ] {
        assert_eq!(
            guarded.status(&format!("GET /api\r\n{wrong}")),
            401,
            "{wrong}"
        );
    }
}

#[test]
fn a_login_gives_a_token_as_cookie_and_in_the_body() {
    let guarded = Guarded::start();
    let reply = guarded.log_in("bob", "geheim");
    assert_eq!(reply.status, 200, "{reply:?}");
    let body = reply.json();
    let token = body["Token"].as_str().unwrap();
    assert_eq!(body["Role"], "read");
    let cookie = reply.header("set-cookie").unwrap();
    assert!(
        cookie.starts_with(&format!("authtok={token}; ")),
        "{cookie}"
    );
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let cookie = format!("Cookie: a=b; authtok={token}");
    assert_eq!(guarded.status(&format!("GET /api/flows\r\n{cookie}")), 200);
    assert_eq!(
        guarded.status(&format!("GET /api/flows\r\nX-Auth-Token: {token}")),
        200
    );
    assert_eq!(
        guarded.status(&format!("GET /api/flows\r\nAuthorization: Bearer {token}")),
        200
    );
    // What a page of another site has a browser send.
    let ask = format!("POST /api/topology\r\n{JSON}\r\n{cookie}");
    for foreign in [
        "Origin: http://evil.example",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ] {
        let status = guarded
            .running
            .ask(&format!("{ask}\r\n{foreign}"), "{}")
            .status;
        assert_eq!(status, 403, "{foreign}");
    }
    let own = format!(
        "{ask}\r\nOrigin: http://{}\r\nSec-Fetch-Site: same-origin",
        guarded.running.address
    );
    let query = r#"{"GremlinQuery": "G.V().Count()"}"#;
    assert_eq!(guarded.running.ask(&own, query).status, 200);
    let json = format!("POST /login\r\n{JSON}");
    let login = r#"{"username": "alice", "password": "open sesame"}"#;
    assert_eq!(guarded.running.ask(&json, login).status, 200);
    for (body, status) in [
        (r#"{"username": "alice", "password": "wrong"}"#, 401),
        (r#"{"username": "alice"}"#, 400),
        ("", 400),
        ("[1", 400),
    ] {
        let reply = guarded.running.ask(&json, body);
        assert_eq!(reply.status, status, "{body} {reply:?}");
        assert!(!reply.body.contains("alice"));
    }
}

#[test]
fn a_client_that_tries_passwords_has_to_wait_and_no_other() {
    let guarded = Guarded::start();
    let mut tries = (0..20).map(|n| guarded.log_in("alice", &n.to_string()));
    let waits = tries.find(|reply| reply.status != 401).unwrap();
    assert_eq!(waits.status, 429);
    assert!(waits.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    assert_eq!(guarded.log_in("alice", "open sesame").status, 429);
    // From another address, and with a password proven before, the login succeeds.
    let elsewhere = guarded.running.connect_from([127, 0, 0, 9]);
    let who = basic("alice", "open sesame");
    let head = format!("GET /api\r\n{who}");
    assert_eq!(guarded.running.ask_over(elsewhere, &head, "").status, 200);
    assert_eq!(guarded.status(&format!("GET /api\r\n{who}")), 200);
    let token = format!("GET /api\r\nX-Auth-Token: {}", guarded.admin);
    assert_eq!(guarded.status(&token), 200);
}

#[test]
fn wrong_tokens_do_not_block_passwords_of_others_at_the_same_address() {
    let guarded = Guarded::start();
    for n in 0..20 {
        let wrong = format!("GET /api\r\nAuthorization: Bearer skua_{n}");
        assert_eq!(guarded.status(&wrong), 401, "{n}");
        let login = format!("POST /login\r\n{JSON}");
        let body = format!(r#"{{"token": "skua_{n}"}}"#);
        assert_eq!(guarded.running.ask(&login, &body).status, 401, "{n}");
        assert_eq!(guarded.status("GET /api\r\nAuthorization: x"), 401, "{n}");
    }
    assert_eq!(guarded.log_in("alice", "open sesame").status, 200);
}

#[test]
fn a_login_by_token_is_a_session_of_its_own() {
    let guarded = Guarded::start();
    let login = |token: &str| {
        let body = format!(r#"{{"token": "{token}"}}"#);
        let reply = guarded
            .running
            .ask(&format!("POST /login\r\n{JSON}"), &body);
        assert_eq!(reply.status, 200, "{reply:?}");
        let cookie = reply.header("set-cookie").unwrap();
        let given = reply.json()["Token"].as_str().unwrap().to_owned();
        assert!(
            cookie.starts_with(&format!("authtok={given}; ")),
            "{cookie}"
        );
        assert!(
            !reply.body.contains(token) && !cookie.contains(token),
            "{reply:?}"
        );
        given
    };
    let with = |token: &str| guarded.status(&format!("GET /api\r\nX-Auth-Token: {token}"));
    let (first, second) = (login(&guarded.admin), login(&guarded.admin));
    let third = login(&second);
    assert_eq!([&first, &second, &third].map(|t| with(t)), [200, 200, 200]);
    let out = format!("POST /logout\r\n{JSON}\r\nCookie: authtok={first}");
    assert_eq!(guarded.running.ask(&out, "{}").status, 204);
    assert_eq!(with(&first), 401, "after the log-out");
    assert_eq!(
        [&guarded.admin, &second, &third].map(|t| with(t)),
        [200, 200, 200]
    );
    // A revoked token ends its sessions.
    std::fs::write(&guarded.tokens, Tokens::default().text()).unwrap();
    wait_for("end of the token", || {
        (with(&guarded.admin) == 401).then_some(())
    });
    assert_eq!([&second, &third].map(|t| with(t)), [401, 401]);
}

#[test]
fn an_agent_reports_its_own_host_and_queries_nothing() {
    let guarded = Guarded::start();
    let text = tokens::new_token().unwrap();
    let list = Tokens(vec![token("web1", Role::Agent, &text)]);
    std::fs::write(&guarded.tokens, list.text()).unwrap();
    let who = format!("Authorization: Bearer {text}");
    wait_for("the token", || {
        (guarded.status(&format!("GET /api\r\n{who}")) == 403).then_some(())
    });
    for path in ["/api/flows", "/ws/subscriber", "/api/agents"] {
        assert_eq!(
            guarded.status(&format!("GET {path}\r\n{who}")),
            403,
            "{path}"
        );
    }
    let ask = format!("POST /api/topology\r\n{JSON}\r\n{who}");
    assert_eq!(guarded.running.ask(&ask, "{}").status, 403);
    let says = |host: &str| {
        use tokio_tungstenite::tungstenite::{Message, client, client::IntoClientRequest as _};
        let url = format!("ws://{}/ws/agent", guarded.running.address);
        let mut request = url.into_client_request().unwrap();
        let bearer = format!("Bearer {text}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        let (mut socket, _) = client(request, guarded.running.connect()).unwrap();
        let hello = serde_json::json!({"Hello": {
            "protocol": skua_fleet::protocol::PROTOCOL,
            "version": "1",
            "host": host,
            "instance": uuid::Uuid::new_v4(),
            "challenge": uuid::Uuid::new_v4(),
        }});
        socket
            .send(Message::Text(hello.to_string().into()))
            .unwrap();
        let first = socket.read().unwrap().into_text().unwrap().to_string();
        (first, socket)
    };
    let (refused, _) = says("web2");
    assert!(
        refused.contains("Refused") && refused.contains("web1"),
        "{refused}"
    );
    let (welcome, mut socket) = says("web1");
    assert!(welcome.contains("Welcome"), "{welcome}");
    // A revoked token ends its connections.
    std::fs::write(&guarded.tokens, "").unwrap();
    let last = loop {
        let text = socket.read().unwrap().into_text();
        match text.unwrap_or_default().to_string() {
            text if text.contains("Refused") => break text,
            _ => {}
        }
    };
    assert!(last.contains("of web1 is no longer valid"), "{last}");
}

#[test]
fn changes_of_the_files_are_taken_over() {
    let guarded = Guarded::start();
    let with = |token: &str| guarded.status(&format!("GET /api\r\nX-Auth-Token: {token}"));
    let session = guarded.log_in("bob", "geheim").json()["Token"].clone();
    let session = session.as_str().unwrap();
    assert_eq!((with(&guarded.admin), with(session)), (200, 200));
    let fresh = tokens::new_token().unwrap();
    let list = Tokens(vec![token("other", Role::Read, &fresh)]);
    std::fs::write(&guarded.tokens, list.text()).unwrap();
    wait_for("new token", || (with(&fresh) == 200).then_some(()));
    assert_eq!((with(&guarded.admin), with(session)), (401, 200));
    // Without the user its session ends, and a damaged file changes nothing.
    std::fs::write(
        &guarded.users,
        Users(vec![user("alice", Role::Read, "x")]).text(),
    )
    .unwrap();
    wait_for("end of the session", || {
        (with(session) == 401).then_some(())
    });
    std::fs::write(&guarded.tokens, "nonsense").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    assert_eq!(with(&fresh), 200);
}

#[test]
fn files_that_are_wrong_are_named_at_the_start() {
    use std::os::unix::fs::PermissionsExt as _;
    let file = secret("users", "alice admin hunter2\n");
    let refused = |file: &Path| {
        let mut config = Config::default();
        config.api.listen = vec!["127.0.0.1:0".parse().unwrap()];
        config.api.socket.clear();
        config.api.users = file.to_str().unwrap().into();
        let error = Server::bind(&config, "").err().unwrap();
        format!("{error:#}")
    };
    let text = refused(&file);
    assert!(
        text.contains("api.users") && text.contains("line 1"),
        "{text}"
    );
    assert!(!text.contains("hunter2"), "{text}");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let text = refused(&file);
    assert!(text.contains("chmod 600"), "{text}");
    let text = refused(Path::new("/nowhere/at/all"));
    assert!(text.contains("cannot read /nowhere/at/all"), "{text}");
}

#[test]
fn a_page_is_open_and_logs_in_with_a_token_and_out() {
    let guarded = Guarded::start();
    // The content of `/` depends on whether the page was built; access does not.
    for head in [
        "HEAD /\r\nAccept: text/html",
        "HEAD /console/icon.svg",
        "HEAD /console/..%2fetc%2fpasswd",
    ] {
        assert!([200, 404].contains(&guarded.status(head)), "{head}");
    }
    assert_eq!(guarded.status("POST /console/icon.svg"), 415);
    // A browser would show a window of its own.
    let script = guarded.running.ask("GET /api\r\nSec-Fetch-Dest: empty", "");
    assert_eq!(script.status, 401);
    assert!(!script.header("www-authenticate").unwrap().contains("Basic"));

    let login = format!("POST /login\r\n{JSON}\r\nSec-Fetch-Dest: empty");
    let wrong = guarded.running.ask(&login, r#"{"token": "skua_no"}"#);
    assert_eq!(wrong.status, 401);
    assert!(!wrong.header("www-authenticate").unwrap().contains("Basic"));
    let body = format!(r#"{{"token": "{}"}}"#, guarded.admin);
    let reply = guarded.running.ask(&login, &body);
    assert_eq!(
        (reply.status, &reply.json()["Role"]),
        (200, &"admin".into())
    );
    let cookie = reply.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"));

    let session = guarded.log_in("bob", "geheim").json()["Token"].clone();
    let cookie = format!("Cookie: authtok={}", session.as_str().unwrap());
    let ask = format!("GET /api\r\n{cookie}");
    assert_eq!(guarded.status(&ask), 200);
    let out = format!("POST /logout\r\n{JSON}\r\n{cookie}");
    let reply = guarded.running.ask(&out, "{}");
    assert_eq!(reply.status, 204);
    assert!(reply.header("set-cookie").unwrap().contains("Max-Age=0"));
    assert_eq!(guarded.status(&ask), 401);
}
