//! JSON patches (RFC 6902) whose results are bounded: `copy` doubles what it copies, so a few dozen of
//! them would make more than any memory holds.

use json_patch::{Patch, PatchOperation};
use serde_json::Value;

/// Operations of a patch at most.
const OPERATIONS: usize = 1_000;

/// What a patch may add, copy and move in all; each value counts some 32 bytes besides its text.
const BYTES: usize = 1 << 20;

/// Depth of the result at most, as of documents that are read.
const DEPTH: usize = 128;

/// Applies a patch; the error says what is wrong. After an error the value is of no use.
pub fn apply(value: &mut Value, patch: &Patch) -> Result<(), String> {
    if patch.len() > OPERATIONS {
        let count = patch.len();
        return Err(format!(
            "the patch has {count} operations, at most {OPERATIONS}: send several"
        ));
    }
    let mut left = BYTES;
    for operation in patch.iter() {
        let (put, to) = match operation {
            PatchOperation::Add(add) => (Some(&add.value), add.path.count()),
            PatchOperation::Replace(replace) => (Some(&replace.value), replace.path.count()),
            PatchOperation::Copy(copy) => (copy.from.resolve(value).ok(), copy.path.count()),
            PatchOperation::Move(from) => (from.from.resolve(value).ok(), from.path.count()),
            PatchOperation::Remove(_) | PatchOperation::Test(_) => (None, 0),
        };
        if let Some(put) = put {
            let (bytes, depth) = measure(put);
            left = left.checked_sub(bytes).ok_or_else(|| {
                format!(
                    "the patch adds, copies and moves more than {BYTES} bytes (of text, and 32 for \
                     each value): send less"
                )
            })?;
            if depth + to > DEPTH {
                return Err(format!(
                    "the patch makes a value that is deeper than {DEPTH} levels"
                ));
            }
        }
        json_patch::patch(value, std::slice::from_ref(operation))
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Bytes and depth of a value.
fn measure(value: &Value) -> (usize, usize) {
    let (mut bytes, mut depth) = (32, 1);
    let mut add = |key: usize, part: &Value| {
        let (inner, levels) = measure(part);
        bytes += key + inner;
        depth = depth.max(1 + levels);
    };
    match value {
        Value::String(text) => bytes += text.len(),
        Value::Array(parts) => parts.iter().for_each(|part| add(0, part)),
        Value::Object(parts) => parts.iter().for_each(|(key, part)| add(key.len(), part)),
        _ => {}
    }
    (bytes, depth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn patch(value: Value) -> Patch {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn copies_that_double_an_object_each_time_are_refused() {
        let copies: Vec<Value> = (0..40)
            .map(|n| json!({"op": "copy", "from": "/a", "path": format!("/a/{n}")}))
            .collect();
        let mut value = json!({"a": {"text": "some text"}});
        let error = apply(&mut value, &patch(json!(copies))).unwrap_err();
        assert!(
            error.contains("deeper than 128") || error.contains("more than 1048576"),
            "{error}"
        );
        let (bytes, depth) = measure(&value);
        assert!(bytes < 4 << 20 && depth <= DEPTH, "{bytes} {depth}");
    }

    #[test]
    fn moves_that_make_a_value_ever_deeper_are_refused() {
        let deep = (0..100).fold(json!({}), |inner, _| json!({ "a": inner }));
        let into = format!("/deep{}/b", "/a".repeat(100));
        let mut value = json!({"deep": deep.clone(), "other": deep});
        let error = apply(
            &mut value,
            &patch(json!([{"op": "move", "from": "/other", "path": into}])),
        );
        assert!(error.unwrap_err().contains("deeper than 128"));
    }

    #[test]
    fn many_operations_are_refused() {
        let test = json!({"op": "test", "path": "/a", "value": 1});
        let mut value = json!({"a": 1});
        assert_eq!(
            apply(&mut value, &patch(json!(vec![test.clone(); OPERATIONS]))),
            Ok(())
        );
        let error = apply(&mut value, &patch(json!(vec![test; OPERATIONS + 1]))).unwrap_err();
        assert!(error.contains("1001 operations"), "{error}");
    }

    #[test]
    fn usual_patches_are_applied() {
        let mut value = json!({"a": {"b": 1}});
        let operations = json!([
            {"op": "copy", "from": "/a", "path": "/c"},
            {"op": "replace", "path": "/c/b", "value": 2},
            {"op": "move", "from": "/a", "path": "/d"},
            {"op": "remove", "path": "/d/b"},
        ]);
        assert_eq!(apply(&mut value, &patch(operations)), Ok(()));
        assert_eq!(value, json!({"c": {"b": 2}, "d": {}}));
    }
}
