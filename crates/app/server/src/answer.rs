//! Answers in the shapes that all routes have.

use axum::{
    extract::Query,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};

/// Parameters of a request, or what is wrong with them.
pub type Parameters<T> = Result<Query<T>, axum::extract::rejection::QueryRejection>;

/// One line that says what is wrong with a request.
pub fn bad_request(text: impl std::fmt::Display) -> Response {
    (StatusCode::BAD_REQUEST, format!("{text}\n")).into_response()
}

/// One object.
pub fn json_answer(value: &serde_json::Value) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        format!("{value}\n"),
    )
        .into_response()
}
