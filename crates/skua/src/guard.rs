//! What the API refuses before it looks further: requests that a page of another site has a browser
//! send. Whoever listens on loopback without passwords is otherwise open to every page that a
//! browser on this machine shows.

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, uri::Authority},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

/// Lets through what does not come from another site.
pub async fn guard(request: Request, next: Next) -> Response {
    match refusal(request.method(), request.headers()) {
        Some((status, reason)) => (status, format!("{reason}\n")).into_response(),
        None => next.run(request).await,
    }
}

/// Why a request is refused.
///
/// - A `Host` that is a name: a name of another site may have been made to point here (DNS
///   rebinding), a number or `localhost` cannot.
/// - An `Origin` that is not this server: another site's page.
/// - A change without a JSON content type: forms and simple requests, which browsers send to other
///   sites without asking, cannot have it.
fn refusal(method: &Method, headers: &HeaderMap) -> Option<(StatusCode, &'static str)> {
    let mut hosts = headers.get_all(header::HOST).iter();
    if !hosts.all(is_number_or_localhost) {
        return Some((
            StatusCode::FORBIDDEN,
            "the Host header is a name; ask an IP address or localhost",
        ));
    }
    let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
    let ours = |origin: &HeaderValue| {
        let origin = origin.as_bytes().strip_prefix(b"http://");
        origin.is_some() && origin == host
    };
    if !headers.get_all(header::ORIGIN).iter().all(ours) {
        return Some((
            StatusCode::FORBIDDEN,
            "requests from pages of other sites are refused (Origin header)",
        ));
    }
    let reads = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
    if !reads && !is_json(headers) {
        return Some((
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "changes need the header Content-Type: application/json",
        ));
    }
    None
}

fn is_number_or_localhost(host: &HeaderValue) -> bool {
    let Ok(authority) = Authority::try_from(host.as_bytes()) else {
        return false;
    };
    let name = authority.host();
    let number = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost") || number.parse::<std::net::IpAddr>().is_ok()
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let json = |value: &HeaderValue| {
        let essence = value.to_str().unwrap_or_default().split(';').next();
        essence.is_some_and(|e| e.trim().eq_ignore_ascii_case("application/json"))
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
        refusal(&method, &map).map_or(200, |(status, _)| status.as_u16())
    }

    const JSON: (&str, &str) = ("content-type", "application/json; charset=utf-8");
    const HERE: (&str, &str) = ("host", "127.0.0.1:8082");

    #[test]
    fn names_as_host_are_refused() {
        for host in [
            "127.0.0.1:8082",
            "localhost:9",
            "LOCALHOST",
            "[::1]:8082",
            "10.0.0.7",
        ] {
            assert_eq!(status(Method::GET, &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example:8082",
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
    }
}
