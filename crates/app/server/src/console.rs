//! The web page at `/`, from the binary. It loads nothing from other servers, and other pages cannot
//! frame it.

use axum::{
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, Method, header},
    response::{IntoResponse as _, Response},
};
use skua_console::{Asset, INDEX};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::error::ApiError;

/// Where the page's files are.
const FOLDER: &str = "/console/";

/// Content policy: scripts, styles and data of this server only, nothing inline, no forms that the
/// browser submits.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

/// The paths of this module; programs get a list of routes at `/`, browsers the page.
pub fn routes(welcome: &'static str) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(welcome_page))
        .routes(routes!(console_file))
        .with_state(welcome)
}

/// All routes, as text; the web page when HTML is accepted
#[utoipa::path(get, path = "/", operation_id = "welcome", tag = "server", responses(
    (status = 200, description = "The routes, or the page", content((String = "text/plain"), (String = "text/html"))),
))]
async fn welcome_page(State(welcome): State<&'static str>, headers: HeaderMap) -> Response {
    index(welcome, &headers)
}

/// Whether a request is for the page itself, which has no secrets and asks for the login itself.
pub fn is_page(method: &Method, path: &str, headers: &HeaderMap) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
        && (path.starts_with(FOLDER) || (path == "/" && is_browser(headers)))
}

/// Whether a script of the page sends the request. For those the browser must not open its own window
/// for passwords.
pub fn is_script(headers: &HeaderMap) -> bool {
    headers
        .get("sec-fetch-dest")
        .is_some_and(|destination| destination == "empty")
}

fn has(headers: &HeaderMap, name: header::HeaderName, part: &str) -> bool {
    let mut values = headers.get_all(name).iter();
    values.any(|value| value.to_str().is_ok_and(|value| value.contains(part)))
}

fn is_browser(headers: &HeaderMap) -> bool {
    has(headers, header::ACCEPT, "text/html")
}

fn index(welcome: &'static str, headers: &HeaderMap) -> Response {
    let page = skua_console::asset(INDEX).filter(|_| is_browser(headers));
    if let Some(page) = page {
        return answer(page, "no-cache");
    }
    match skua_console::missing() {
        Some(why) => format!(
            "{welcome}\nThe web page is not in this binary: {why}. `make build` makes it (with Node, \
             which packaging/needs installs).\n"
        )
        .into_response(),
        None => welcome.into_response(),
    }
}

/// A file of the web page, packed with gzip; open to all
#[utoipa::path(get, path = "/console/{file}", tag = "server", security(()), params(("file" = String, Path, description = "Its name")), responses(
    (status = 200, description = "The file", content((String = "text/javascript"), (String = "text/css"), (String = "image/svg+xml"), (String = "text/html"))),
))]
async fn console_file(Path(name): Path<String>) -> Result<Response, ApiError> {
    match skua_console::asset(&name) {
        // Names of what changes change with it.
        Some(asset) if name.contains('-') => {
            Ok(answer(asset, "public, max-age=31536000, immutable"))
        }
        Some(asset) => Ok(answer(asset, "no-cache")),
        None => Err(ApiError::not_found("the page has no such file")),
    }
}

fn answer(asset: Asset, cache: &'static str) -> Response {
    let mut response = asset.gzip.into_response();
    for (name, value) in [
        (header::CONTENT_TYPE, asset.media_type()),
        (header::CONTENT_ENCODING, "gzip"),
        (header::CACHE_CONTROL, cache),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::VARY, "accept"),
    ] {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    for (name, value) in [
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(entries: &[(&'static str, &'static str)]) -> HeaderMap {
        entries
            .iter()
            .map(|(name, value)| {
                let name = header::HeaderName::from_static(name);
                (name, HeaderValue::from_static(value))
            })
            .collect()
    }

    #[test]
    fn only_the_page_is_open_to_all() {
        let browser = headers(&[("accept", "text/html,application/xhtml+xml,*/*;q=0.8")]);
        assert!(is_page(&Method::GET, "/", &browser));
        assert!(is_page(&Method::GET, "/console/app-1.js", &headers(&[])));
        assert!(!is_page(&Method::POST, "/", &browser));
        assert!(!is_page(&Method::GET, "/", &headers(&[])));
        assert!(!is_page(&Method::GET, "/api/flows", &browser));
        assert!(!is_page(&Method::GET, "/console", &browser));
    }

    #[test]
    fn programs_get_the_list_of_routes() {
        let response = index("routes", &headers(&[("accept", "*/*")]));
        let kind = response.headers().get(header::CONTENT_TYPE).unwrap();
        assert_eq!(kind, "text/plain; charset=utf-8");
    }
}
