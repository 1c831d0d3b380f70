//! `/api/flows` of the lake, and `/api/sql`.

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use skua_archive::lake::{DAMAGED, NO_LAKE, damaged, question::Asked, written};
use skua_config::lake::LakeSettings;
use skua_lake::{Lake, Location};
use skua_server::{blocking, error::ApiError};

use crate::{error::refused, sql::SqlParameters};

/// Answers questions about a lake.
#[derive(Clone)]
pub struct LakeAnswers(Option<Location>);

/// Parameters that only the lake has.
const OWN: [&str; 3] = ["until", "top", "table"];

/// Whether parameters are a question about the lake: a time like `1h` or a date, where else there is a
/// number, or what only the lake has.
pub fn is_asked(parameters: &[(String, String)]) -> bool {
    parameters.iter().any(|(name, value)| {
        OWN.contains(&name.as_str()) || (name == "since" && value.parse::<u64>().is_err())
    })
}

/// The question, and whether the answer is to be CSV.
fn asked(parameters: Vec<(String, String)>) -> Result<(Asked, bool), ApiError> {
    let wrong = |text: std::fmt::Arguments<'_>| ApiError::bad_request(text);
    let (mut asked, mut csv) = (Asked::default(), false);
    for (name, value) in parameters {
        match name.as_str() {
            "since" => asked.since = Some(value),
            "until" => asked.until = Some(value),
            "by" => asked.by = Some(value),
            "filter" => asked.filter = Some(value),
            "where" => asked.conditions.push(value),
            "sort" => asked.sort = Some(value),
            "table" => asked.table = Some(value),
            "top" | "limit" => match value.parse() {
                Ok(top) => asked.top = Some(top),
                Err(_) => return Err(wrong(format_args!("{name}={value} is not a number"))),
            },
            "format" => match value.as_str() {
                "json" => csv = false,
                "csv" => csv = true,
                other => {
                    return Err(wrong(format_args!(
                        "unknown format \"{other}\": json or csv"
                    )));
                }
            },
            other => {
                return Err(wrong(format_args!(
                    "the lake cannot be queried by \"{other}\""
                )));
            }
        }
    }
    Ok((asked, csv))
}

impl LakeAnswers {
    /// A client of the configured lake.
    pub fn new(settings: &LakeSettings) -> Self {
        // The configuration was checked before.
        Self(settings.location().unwrap_or_default())
    }

    /// Answers a question in SQL.
    pub async fn sql(&self, asked: SqlParameters) -> Result<Response, ApiError> {
        crate::sql::answer(self.location()?, asked).await
    }

    fn location(&self) -> Result<Location, ApiError> {
        self.0.clone().ok_or_else(|| ApiError::not_found(NO_LAKE))
    }

    /// Answers.
    pub async fn answer(&self, parameters: Vec<(String, String)>) -> Result<Response, ApiError> {
        let location = self.location()?;
        let (asked, csv) = asked(parameters)?;
        blocking(move || {
            let question = asked
                .question()
                .map_err(|error| ApiError::bad_request(skua_output::one_line(&error)))?;
            let answer = Lake::open(&location)
                .and_then(|lake| lake.ask(&question))
                .map_err(refused)?;
            let kind = if csv {
                "text/csv"
            } else {
                "application/x-ndjson"
            };
            let lines = written(&answer, csv).unwrap_or_default();
            let mut response = ([(header::CONTENT_TYPE, kind)], lines).into_response();
            if let Some(damaged) = damaged(&answer) {
                let fit = |c: char| {
                    if c.is_ascii_graphic() || c == ' ' {
                        c
                    } else {
                        '?'
                    }
                };
                let text: String = damaged.chars().map(fit).collect();
                if let Ok(value) = HeaderValue::from_str(&text) {
                    response.headers_mut().insert(DAMAGED, value);
                }
            }
            Ok(response)
        })
        .await
    }
}
