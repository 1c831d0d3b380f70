//! Refuses requests that a page of another site makes a browser send. Without this check, a server
//! on loopback without passwords would be open to every page that a browser on this machine shows.

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header, uri::Authority};

use crate::paths::{LOGIN, PCAP, TOPOLOGY, is_form};

/// Refuses requests from other sites.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    /// Names of this server (`api.names`).
    pub names: Vec<String>,
    /// Whether the server uses TLS.
    pub tls: bool,
}

impl Guard {
    /// Why a request is refused.
    ///
    /// - A `Host` with an unknown name: a name of another site may point here (DNS rebinding); a
    ///   number or `localhost` cannot.
    /// - An `Origin` that is not this server: another site's page.
    /// - A `Sec-Fetch-Site` with the same meaning, which browsers send with GETs as well: images and
    ///   frames of other sites must not cause work. Following a link to our page is permitted.
    /// - A change without a content type that only programs send: forms and simple requests, which
    ///   browsers send to other sites without a preflight, cannot have it. A login may be a form: it
    ///   carries its own secrets.
    pub fn refusal(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Option<(StatusCode, &'static str)> {
        let mut hosts = headers.get_all(header::HOST).iter();
        if !hosts.all(|host| self.is_ours(host)) {
            return Some((
                StatusCode::FORBIDDEN,
                "the Host header is a name; ask an IP address or localhost, or set api.names",
            ));
        }
        let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
        let (page, socket): (&[u8], &[u8]) = match self.tls {
            true => (b"https://", b"wss://"),
            false => (b"http://", b"ws://"),
        };
        let ours = |origin: &HeaderValue| {
            let origin = origin.as_bytes();
            // Skydive's clients name the WebSocket itself, which no browser does.
            let named = origin
                .strip_prefix(socket)
                .and_then(|rest| rest.split(|b| *b == b'/').next());
            let origin = origin.strip_prefix(page).or(named);
            origin.is_some() && origin == host
        };
        if !headers.get_all(header::ORIGIN).iter().all(ours) {
            return Some((
                StatusCode::FORBIDDEN,
                "requests from pages of other sites are refused (Origin header)",
            ));
        }
        let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        if from_elsewhere(headers) && !(reads && is_followed_link(uri, headers)) {
            return Some((
                StatusCode::FORBIDDEN,
                "requests from pages of other sites are refused (Sec-Fetch-Site header)",
            ));
        }
        let form = uri.path() == LOGIN && is_form(headers);
        // A query changes nothing, and Skydive accepts any content type for it; another site's page cannot read the
        // answer, nor send our cookie.
        let query = *method == Method::POST && uri.path() == TOPOLOGY;
        if !reads && !form && !query && !is_json(headers) {
            return Some((
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "changes need the header Content-Type: application/json",
            ));
        }
        None
    }

    fn is_ours(&self, host: &HeaderValue) -> bool {
        let Ok(authority) = Authority::try_from(host.as_bytes()) else {
            return false;
        };
        let name = authority.host();
        let ours = |known: &String| known.eq_ignore_ascii_case(name);
        is_number_or_localhost(name) || self.names.iter().any(ours)
    }
}

fn is_number_or_localhost(name: &str) -> bool {
    let number = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || number.parse::<std::net::IpAddr>().is_ok()
}

/// Whether the browser reports that a page of another site sends this.
fn from_elsewhere(headers: &HeaderMap) -> bool {
    let mut sites = headers.get_all("sec-fetch-site").iter();
    sites.any(|site| site != "same-origin" && site != "none")
}

/// Whether someone follows a link to our page, which is the same for all and cheap.
fn is_followed_link(uri: &Uri, headers: &HeaderMap) -> bool {
    let says = |name: &str, what: &str| headers.get(name).is_some_and(|value| value == what);
    uri.path() == "/" && says("sec-fetch-mode", "navigate") && says("sec-fetch-dest", "document")
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let json = |value: &HeaderValue| {
        let essence = value.to_str().unwrap_or_default().split(';').next();
        let essence = essence.unwrap_or_default().trim().to_ascii_lowercase();
        // No form and no simple request can have that of lines or of capture files either.
        essence == "application/json"
            || essence == "application/x-ndjson"
            || essence == PCAP
            || (essence.starts_with("application/") && essence.ends_with("+json"))
    };
    types.next().is_some_and(json) && types.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(method: Method, headers: &[(&'static str, &str)]) -> u16 {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        let guard = Guard {
            names: vec!["skua.example".into()],
            tls: false,
        };
        let uri = Uri::from_static("/api/addresses");
        let refusal = guard.refusal(&method, &uri, &map);
        refusal.map_or(200, |(status, _)| status.as_u16())
    }

    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");
    const HERE: (&str, &str) = ("host", "127.0.0.1:8082");

    #[test]
    fn capture_files_may_be_sent() {
        let pcap = ("content-type", PCAP);
        assert_eq!(status(Method::POST, &[HERE, pcap]), 200);
        let other = ("content-type", "application/octet-stream");
        assert_eq!(status(Method::POST, &[HERE, other]), 415);
    }

    #[test]
    fn names_as_host_are_refused() {
        for host in [
            "127.0.0.1:8082",
            "localhost:9",
            "LOCALHOST",
            "[::1]:8082",
            "10.0.0.7",
            "skua.example",
            "SKUA.example:8082",
        ] {
            assert_eq!(status(Method::GET, &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example:8082",
            "x.skua.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "",
            "[::1",
        ] {
            assert_eq!(status(Method::GET, &[("host", host)]), 403, "{host}");
        }
        assert_eq!(
            status(Method::GET, &[HERE, ("host", "evil.example")]),
            403,
            "two of them"
        );
        // HTTP/1.0 has none, and browsers do not speak it.
        assert_eq!(status(Method::GET, &[]), 200);
    }

    #[test]
    fn other_origins_are_refused() {
        for origin in [
            "http://evil.example",
            "https://127.0.0.1:8082",
            "http://127.0.0.1:3000",
            "http://127.0.0.1:80820",
            "null",
        ] {
            let headers = [HERE, JSON, ("origin", origin)];
            assert_eq!(status(Method::PUT, &headers), 403, "{origin}");
        }
        let own = [HERE, JSON, ("origin", "http://127.0.0.1:8082")];
        assert_eq!(status(Method::PUT, &own), 200);
        assert_eq!(status(Method::PUT, &own[1..]), 403);
        let client = [HERE, ("origin", "ws://127.0.0.1:8082/ws/subscriber")];
        assert_eq!(status(Method::GET, &client), 200);
        let other = [HERE, ("origin", "ws://127.0.0.1:8083/ws/subscriber")];
        assert_eq!(status(Method::GET, &other), 403);
    }

    #[test]
    fn pages_of_other_sites_cannot_have_us_read_anything() {
        for site in ["cross-site", "same-site", "nonsense"] {
            let image = [HERE, ("sec-fetch-site", site), ("sec-fetch-dest", "image")];
            assert_eq!(status(Method::GET, &image), 403, "{site}");
            assert_eq!(status(Method::GET, &image[..2]), 403, "{site}");
        }
        for site in ["same-origin", "none"] {
            assert_eq!(status(Method::GET, &[HERE, ("sec-fetch-site", site)]), 200);
        }
        let link = [
            HERE,
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        let mut headers = HeaderMap::new();
        for (name, value) in link {
            headers.append(name, HeaderValue::from_static(value));
        }
        let guard = Guard::default();
        let refusal = |method, path| guard.refusal(&method, &Uri::from_static(path), &headers);
        assert_eq!(refusal(Method::GET, "/"), None);
        for path in ["/api/flows?filter=port+1", "/metrics", "/console/app.js"] {
            assert!(refusal(Method::GET, path).is_some(), "{path}");
        }
        assert!(refusal(Method::POST, "/").is_some());
    }

    #[test]
    fn changes_must_be_json() {
        for method in [Method::PUT, Method::POST, Method::DELETE, Method::PATCH] {
            assert_eq!(status(method.clone(), &[HERE, JSON]), 200);
            assert_eq!(status(method.clone(), &[HERE]), 415);
            for other in [
                "text/plain",
                "application/x-www-form-urlencoded",
                "text/plain; application/json",
            ] {
                let headers = [HERE, ("content-type", other)];
                assert_eq!(status(method.clone(), &headers), 415, "{other}");
            }
        }
        assert_eq!(status(Method::GET, &[HERE]), 200);
        let patch = [HERE, ("content-type", "application/json-patch+json")];
        assert_eq!(status(Method::PATCH, &patch), 200);
    }

    #[test]
    fn only_a_login_and_a_query_may_be_a_form() {
        let guard = Guard::default();
        let mut headers = HeaderMap::new();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(header::CONTENT_TYPE, form);
        let refusal = |path| guard.refusal(&Method::POST, &Uri::from_static(path), &headers);
        assert_eq!(refusal("/login"), None);
        assert_eq!(refusal("/api/topology"), None);
        for path in [
            "/api/topology/import",
            "/api/capture",
            "/login/",
            "/api/login",
        ] {
            assert!(refusal(path).is_some(), "{path}");
        }
        let origin = HeaderValue::from_static("http://evil.example");
        headers.insert(header::ORIGIN, origin);
        let foreign = Uri::from_static("/api/topology");
        let refusal = guard.refusal(&Method::POST, &foreign, &headers);
        assert_eq!(
            refusal.map(|(status, _)| status),
            Some(StatusCode::FORBIDDEN)
        );
    }

    #[test]
    fn over_tls_the_own_origin_is_https() {
        let guard = Guard {
            names: Vec::new(),
            tls: true,
        };
        for (origin, fine) in [
            ("https://127.0.0.1:8082", true),
            ("http://127.0.0.1:8082", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("127.0.0.1:8082"));
            headers.insert(header::ORIGIN, HeaderValue::from_static(origin));
            let refusal = guard.refusal(&Method::GET, &Uri::from_static("/"), &headers);
            assert_eq!(refusal.is_none(), fine, "{origin}");
        }
    }
}
