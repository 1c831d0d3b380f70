//! Descriptions of the configuration for people and programs, generated from the declarations of
//! its keys.

use serde_json::{Map, Value, json};

use crate::{Config, keys};

/// The default of a key.
fn default_of<'a>(defaults: &'a Value, path: &str) -> &'a Value {
    let place = path.split('.').fold(defaults, |value, part| &value[part]);
    debug_assert!(!place.is_null(), "{path}");
    place
}

fn defaults() -> Value {
    serde_json::to_value(Config::default()).unwrap_or_default()
}

/// For `skua config --help`.
pub fn explain() -> String {
    let defaults = defaults();
    let mut text = String::from(
        "Keys of the file (YAML; unknown keys are refused). Each can also be given as a variable \
         in capitals with _ for ., like SKUA_FLOW_MAX_ENTRIES; flags come last.\n",
    );
    for key in keys() {
        let value = default_of(&defaults, &key.path);
        text += &format!("\n  {}\n      {} [default: {value}]", key.path, key.meaning);
    }
    text
}

/// A file with every key at its default, and what it means.
pub fn sample() -> String {
    let defaults = defaults();
    let mut text = String::from(
        "# Configuration of Skua: /etc/skua.yaml, or the file that --config or SKUA_CONFIG names.\n\
         #\n\
         # Every key is here with its default, so an empty file means the same. Unknown keys are refused.\n\
         # Each key can also be given as a variable in capitals, with SKUA_ before it and _ for the dots:\n\
         # SKUA_FLOW_MAX_ENTRIES=1000000. Variables stand over this file, flags over both.\n\
         # `skua config --config FILE` checks a file and prints what is in force.\n\n",
    );
    let mut open: Vec<String> = Vec::new();
    for key in keys() {
        let mut parts: Vec<&str> = key.path.split('.').collect();
        let name = parts.pop().unwrap_or_default();
        let same = open.iter().zip(&parts).take_while(|(a, b)| a == b).count();
        if parts.is_empty() && !open.is_empty() {
            text.push('\n');
        }
        open.truncate(same);
        for part in &parts[same..] {
            if open.is_empty() {
                text.push('\n');
            }
            text += &format!("{}{part}:\n", "  ".repeat(open.len()));
            open.push((*part).to_owned());
        }
        let indent = "  ".repeat(open.len());
        let mut line = format!("{indent}#");
        for word in key.meaning.split(' ') {
            if line.len() + 1 + word.len() > 100 {
                text += &format!("{line}\n");
                line = format!("{indent}#");
            }
            line = format!("{line} {word}");
        }
        let value = default_of(&defaults, &key.path);
        text += &format!("{line}\n{indent}{name}: {value}\n");
    }
    text
}

/// `docs/configuration.md`.
pub fn documentation() -> String {
    let defaults = defaults();
    let mut text = String::from(
        "# Configuration\n\n\
         This page is made from the declarations of the keys in the code: `UPDATE_DOCS=1 cargo test -p skua-cli docs`\n\
         writes it anew, with [packaging/skua.yaml](../packaging/skua.yaml), a file with every key at its default, and\n\
         [skua.schema.json](skua.schema.json), a JSON Schema of that file for editors (`skua config --schema`).\n\n\
         Defaults, over them the file, over that variables, over all flags: [guide](guide.md#configuration).\n",
    );
    let mut section = String::new();
    for key in keys() {
        let (of, _) = key.path.split_once('.').unwrap_or(("", &key.path));
        if of != section || !text.contains("|---") {
            section = of.to_owned();
            let title = if of.is_empty() { "(top)" } else { of };
            text += &format!("\n## {title}\n\n| key | default | flag | |\n|---|---|---|---|\n");
        }
        let flag = match key.flag {
            "" => String::new(),
            flag => format!("`{flag}`"),
        };
        let default = default_of(&defaults, &key.path);
        text += &format!(
            "| `{}` | `{default}` | {flag} | {} |\n",
            key.path, key.meaning
        );
    }
    text
}

/// A JSON Schema (2020-12) of the file.
pub fn schema() -> Value {
    let defaults = defaults();
    let mut root = object();
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["title"] = json!("The configuration of Skua");
    for key in keys() {
        let mut parts: Vec<&str> = key.path.split('.').collect();
        let name = parts.pop().unwrap_or_default();
        let mut place = &mut root;
        for part in parts {
            let known = &mut place["properties"][part];
            if known.is_null() {
                *known = object();
            }
            place = &mut place["properties"][part];
        }
        let default = default_of(&defaults, &key.path);
        let mut described = Map::new();
        described.insert("description".into(), key.meaning.into());
        let kind = match key.path.as_str() {
            // One address need not be a list.
            "api.listen" => json!(["array", "string"]),
            _ => kind_of(default),
        };
        described.insert("type".into(), kind);
        described.insert("default".into(), default.clone());
        place["properties"][name] = described.into();
    }
    root
}

fn object() -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": {}})
}

/// What may be written for a key with this default.
fn kind_of(default: &Value) -> Value {
    match default {
        Value::Bool(_) => json!("boolean"),
        Value::Number(_) => json!("integer"),
        Value::Array(_) => json!("array"),
        Value::Object(_) => json!("object"),
        // Sizes may be numbers of bytes.
        Value::String(text) if text.ends_with("iB") => json!(["string", "integer"]),
        _ => json!("string"),
    }
}
