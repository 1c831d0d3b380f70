//! Workflows of users, as they are kept; `skua-workflow` runs them.

use crate::resource::Resource;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

/// A workflow, in Skydive's shape: a function in JavaScript with what people need to call it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct Workflow {
    /// Identifier.
    #[serde(rename = "UUID", deserialize_with = "crate::skydive::id")]
    pub uuid: Uuid,
    /// Name; no other workflow has it.
    pub name: String,
    /// For people.
    pub title: String,
    /// For people.
    pub r#abstract: String,
    /// For people.
    pub description: String,
    /// What the function is called with, in this order.
    #[serde(deserialize_with = "crate::skydive::or_null")]
    pub parameters: Vec<Parameter>,
    /// The function.
    pub source: String,
}

/// A parameter of a workflow.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct Parameter {
    /// Name, for people.
    pub name: String,
    /// For people.
    pub description: String,
    /// `string`, `integer`, `number`, `boolean`, `choice`, `node`, …
    pub r#type: String,
    /// Its value when none is given.
    pub default: Value,
    /// Values of a choice.
    #[serde(deserialize_with = "crate::skydive::or_null")]
    pub values: Vec<Choice>,
}

/// A value that a parameter may have.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "PascalCase", deny_unknown_fields, default)]
pub struct Choice {
    /// The value.
    pub value: String,
    /// For people.
    pub description: String,
}

impl Resource for Workflow {
    const KIND: &'static str = "workflow";

    fn id(&self) -> Uuid {
        self.uuid
    }

    fn set_id(&mut self, id: Uuid) {
        self.uuid = id;
    }

    fn is_same(&self, other: &Self) -> bool {
        self.name == other.name
    }
}
