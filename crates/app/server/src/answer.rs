//! Answers in the shapes that all routes have.

use std::marker::PhantomData;

use crate::{
    error::{ApiError, JSON},
    work::blocking,
};
use axum::{
    body::Bytes,
    extract::{FromRequest, Query, Request, rejection::QueryRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Serialize, de::DeserializeOwned};
use skua_config::plain::in_plain_words;

/// Bodies up to this size are parsed on the async thread; longer ones on a blocking thread.
const SHORT: usize = 64 << 10;

/// Parameters of a request, or the error in them.
pub type Parameters<T> = Result<Query<T>, QueryRejection>;

/// An answer of one object, written where it was made.
pub struct Answer<T> {
    status: StatusCode,
    text: String,
    what: PhantomData<fn() -> T>,
}

impl<T: Serialize> Answer<T> {
    /// With status 200.
    pub fn of(value: &T) -> Self {
        // Only maps with keys that are no text can fail; answers have none.
        let mut text = serde_json::to_string(value).unwrap_or_default();
        text.push('\n');
        Self {
            status: StatusCode::OK,
            text,
            what: PhantomData,
        }
    }
}

impl<T> IntoResponse for Answer<T> {
    fn into_response(self) -> Response {
        (self.status, [(header::CONTENT_TYPE, JSON)], self.text).into_response()
    }
}

impl<T> Answer<T> {
    /// With status 202.
    pub fn accepted(mut self) -> Self {
        self.status = StatusCode::ACCEPTED;
        self
    }

    /// With status 201: it was not there before.
    pub fn created(mut self) -> Self {
        self.status = StatusCode::CREATED;
        self
    }
}

/// The object of a request.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned + Send + 'static, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let bytes = Bytes::from_request(request, state).await?;
        if bytes.len() <= SHORT {
            return object(&bytes).map(Self);
        }
        blocking(move || object(&bytes).map(Self)).await
    }
}

/// Reads the object of a request.
pub fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|error| ApiError::bad_request(in_plain_words(&error.to_string())))
}
