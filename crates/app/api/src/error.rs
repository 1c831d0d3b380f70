//! Status and code of each error of the crates that routes use.

use std::fmt::Display;

use skua_control::{
    ResourceError, alert::AlertError, capture::CaptureError, elements::ElementError,
    injection::InjectionError, tap::TapError,
};
use skua_lake::LakeError;
use skua_probe::ProbeError;
use skua_runtime::steer::SteerError;
use skua_server::error::{ApiError, ErrorCode};
use skua_topology::GraphError;

/// An error that an answer can end with.
pub trait Coded: Display {
    /// What kind of error it is.
    fn code(&self) -> ErrorCode;
}

/// An error as an answer.
pub fn refused(error: impl Coded) -> ApiError {
    ApiError::new(error.code(), &error)
}

impl Coded for ResourceError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Duplicate { .. } => ErrorCode::Conflict,
            Self::Unknown { .. } => ErrorCode::NotFound,
            Self::TooMany(_) => ErrorCode::TooMany,
            Self::File { .. } => ErrorCode::Internal,
        }
    }
}

impl Coded for AlertError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Wrong(_) => ErrorCode::BadRequest,
            Self::Resource(error) => error.code(),
        }
    }
}

impl Coded for CaptureError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Wrong(_) => ErrorCode::BadRequest,
            Self::Resource(error) => error.code(),
        }
    }
}

impl Coded for ElementError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Resource(error) => error.code(),
            Self::NotByUser(_) => ErrorCode::Forbidden,
            Self::Graph(GraphError::NodeExists(_) | GraphError::EdgeExists(_)) => {
                ErrorCode::Conflict
            }
            Self::Graph(GraphError::Full(..)) => ErrorCode::TooMany,
            Self::Wrong(_) | Self::Graph(_) => ErrorCode::BadRequest,
        }
    }
}

impl Coded for InjectionError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Wrong(_) => ErrorCode::BadRequest,
            Self::Forbidden => ErrorCode::Forbidden,
            Self::TooMany(_) => ErrorCode::TooMany,
            Self::Unknown(_) => ErrorCode::NotFound,
        }
    }
}

impl Coded for SteerError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Wrong(_) | Self::Failed(_) => ErrorCode::BadRequest,
            Self::Forbidden => ErrorCode::Forbidden,
            Self::TooMany(_) => ErrorCode::TooMany,
            Self::Elsewhere | Self::Unknown(_) => ErrorCode::NotFound,
        }
    }
}

impl Coded for TapError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Resource(error) => error.code(),
            Self::Forbidden => ErrorCode::Forbidden,
            Self::Declared | Self::Watched => ErrorCode::Conflict,
            Self::Wrong(_) | Self::Elsewhere | Self::NoStream => ErrorCode::BadRequest,
        }
    }
}

/// The caller's mistake, but for what the kernel refuses.
impl Coded for ProbeError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::Kernel(_) => ErrorCode::Internal,
            _ => ErrorCode::BadRequest,
        }
    }
}

/// The caller's mistake, or the lake's.
impl Coded for LakeError {
    fn code(&self) -> ErrorCode {
        match self {
            Self::TooMuch(_) | Self::Question(_) => ErrorCode::BadRequest,
            _ => ErrorCode::Internal,
        }
    }
}
