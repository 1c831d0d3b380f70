//! What the definitions say of records: documentation, JSON Schema, types of the web page.

use crate::{Aggregation, Field, FieldType, Name, Record, group_len, own_name};

/// The fields as a Markdown table. What is nowhere defined has no column.
pub fn markdown<R: Record>(fields: &[Field<R>]) -> String {
    let any = |name: fn(&Field<R>) -> Name| fields.iter().any(|f| name(f) != Name::Undefined);
    let (keys, columns) = (any(|f| f.key), any(|f| f.column));
    let messages = any(|f| f.message);
    let aggregations = fields.iter().any(|f| f.aggregation != Aggregation::Same);
    let mut text = String::new();
    let mut row = |mut cells: Vec<String>, [key, message, column, aggregation]: [String; 4]| {
        if keys {
            cells.push(key);
        }
        if messages {
            cells.push(message);
        }
        if columns {
            cells.push(column);
        }
        if aggregations {
            cells.push(aggregation);
        }
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    };
    let head = ["field", "type", "unit", "meaning", "left out"];
    row(
        head.map(str::to_owned).into(),
        ["in queries", "in Kafka", "in the lake", "together"].map(str::to_owned),
    );
    row(vec!["---".into(); 5], ["---"; 4].map(str::to_owned));
    let name = |name: Name| match name {
        Name::Value(name) | Name::Own(name) => format!("`{name}`"),
        Name::Without(why) => why.to_owned(),
        Name::Undefined => String::new(),
    };
    for field in fields {
        let cells = [field.kind.name(), field.unit, field.meaning, field.absent];
        let cells = cells.map(str::to_owned).into_iter();
        row(
            [format!("`{}`", field.path)]
                .into_iter()
                .chain(cells)
                .collect(),
            [
                name(field.key),
                name(field.message),
                name(field.column),
                field.aggregation.name().into(),
            ],
        );
    }
    text
}

/// The record as an interface of TypeScript, and which of its fields are the same in what a query answers:
/// `KEYS` with the name in front.
pub fn typescript<R: Record>(name: &str, fields: &[Field<R>]) -> String {
    fn member<R: Record>(field: &Field<R>) -> String {
        let kind = match field.kind {
            FieldType::String | FieldType::Time => "string",
            FieldType::Integer | FieldType::Integer32 | FieldType::Number => "number",
            FieldType::Integers => "number[]",
            FieldType::Pairs => "[number, number][]",
            FieldType::Strings => "string[]",
        };
        let optional = if field.absent.is_empty() { "" } else { "?" };
        format!("{}{optional}: {kind};", own_name(field))
    }
    let mut text = format!("export interface {name} {{\n");
    let mut rest = fields;
    while let [first, ..] = rest {
        let (fields, after) = rest.split_at(group_len(rest));
        rest = after;
        match first.path.split_once('.') {
            None => text += &format!("  {}\n", member(first)),
            Some((object, _)) => {
                let required = fields.iter().any(Field::is_required);
                let optional = if required { "" } else { "?" };
                text += &format!("  {object}{optional}: {{\n");
                for field in fields {
                    text += &format!("    {}\n", member(field));
                }
                text += "  };\n";
            }
        }
    }
    text += "}\n";
    // Times have another form in queries.
    let fields = fields.iter().filter(|field| field.kind != FieldType::Time);
    let keys = fields.filter_map(|field| Some((field.path, field.key.of_value()?)));
    let keys: Vec<_> = keys.collect();
    if !keys.is_empty() {
        text += &format!(
            "/** Fields of it that a query answers in the same form: where in the record, where in the answer. */\n\
             export const {}_KEYS: readonly (readonly [string, string])[] = [\n",
            name.to_uppercase()
        );
        for (path, key) in keys {
            text += &format!("  [\"{path}\", \"{key}\"],\n");
        }
        text += "];\n";
    }
    text
}

/// JSON Schema (2020-12) of a record.
pub fn json_schema<R: Record>(title: &str, fields: &[Field<R>]) -> serde_json::Value {
    let mut properties = serde_json::Map::new();
    let mut required = Vec::new();
    let mut rest = fields;
    while let [first, ..] = rest {
        let (fields, after) = rest.split_at(group_len::<R>(rest));
        rest = after;
        let (name, schema) = match first.path.split_once('.') {
            None => (first.path, field_schema::<R>(first)),
            Some((name, _)) => (name, object_schema::<R>(fields)),
        };
        if fields.iter().any(Field::is_required) {
            required.push(name);
        }
        properties.insert(name.into(), schema);
    }
    serde_json::json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "type": "object",
        "properties": properties,
        "required": required,
    })
}

fn object_schema<R: Record>(fields: &[Field<R>]) -> serde_json::Value {
    let properties: serde_json::Map<_, _> = fields
        .iter()
        .map(|field| (own_name::<R>(field).into(), field_schema::<R>(field)))
        .collect();
    let required: Vec<_> = fields
        .iter()
        .filter(|field| field.absent.is_empty())
        .map(own_name::<R>)
        .collect();
    serde_json::json!({"type": "object", "properties": properties, "required": required})
}

fn field_schema<R: Record>(field: &Field<R>) -> serde_json::Value {
    let description = match field.unit {
        "" => field.meaning.to_owned(),
        unit => format!("{} ({unit})", field.meaning),
    };
    let number = serde_json::json!({"type": "integer", "minimum": 0});
    let list =
        |items| serde_json::json!({"type": "array", "items": items, "description": description});
    match field.kind {
        FieldType::Integers => list(number),
        FieldType::Pairs => list(serde_json::json!({
            "type": "array", "items": number, "minItems": 2, "maxItems": 2,
        })),
        FieldType::Strings => list(serde_json::json!({"type": "string"})),
        FieldType::String => serde_json::json!({"type": "string", "description": description}),
        FieldType::Time => serde_json::json!({
            "type": "string", "format": "date-time", "description": description,
        }),
        number => serde_json::json!({
            "type": number.name(), "minimum": 0, "description": description,
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde::{Serializer as _, ser::SerializeMap};

    use super::*;
    use crate::{NoOther, Value, serialize, serialize_row, write_csv_header, write_csv_row};

    struct Pairs;

    impl Record for Pairs {
        type Line<'a> = [u64; 2];
        type Other<'a> = NoOther;
        type Getter = fn(&[u64; 2]) -> Value<'static, NoOther>;

        fn get<'a>(getter: Self::Getter, line: &[u64; 2]) -> Value<'a, NoOther> {
            getter(line)
        }
    }

    type PairField = Field<Pairs>;

    const OLD: PairField = PairField::new("old", FieldType::Integer, "", "", "the first", |line| {
        Value::Integer(line[0])
    });
    const NEW: PairField = PairField::new(
        "tcp.new",
        FieldType::Integer32,
        "segments",
        "never counted",
        "the second",
        |line| Value::nonzero(line[1]),
    )
    .is(Aggregation::Sum)
    .in_every_record()
    .key("TCPMetric.New")
    .column("tcp_new")
    .row("tcp_new_row");

    /// All that is made of some fields.
    fn outputs(fields: &[PairField]) -> [(&'static str, String); 7] {
        let (mut json, mut flat) = (Vec::new(), Vec::new());
        serialize(fields, &[1, 7], &mut serde_json::Serializer::new(&mut json)).unwrap();
        let mut serializer = serde_json::Serializer::new(&mut flat);
        let mut map = serializer.serialize_map(None).unwrap();
        serialize_row(fields, &[1, 7], &mut map).unwrap();
        SerializeMap::end(map).unwrap();
        let (mut names, mut row) = (Vec::new(), Vec::new());
        write_csv_header(fields, &mut names).unwrap();
        write_csv_row(fields, &mut row, &[1, 7]).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        [
            ("JSON", text(json)),
            ("row", text(flat)),
            ("names of CSV", text(names)),
            ("CSV", text(row)),
            ("documentation", markdown(fields)),
            ("JSON Schema", json_schema("Pair", fields).to_string()),
            ("TypeScript", typescript("Pair", fields)),
        ]
    }

    #[test]
    fn what_is_left_out_is_0_or_empty_in_rows() {
        let mut row = Vec::new();
        let mut serializer = serde_json::Serializer::new(&mut row);
        let mut map = serializer.serialize_map(None).unwrap();
        let text = PairField::new("text", FieldType::String, "", "always", "", |_| {
            Value::Absent
        });
        let time = PairField::new("time", FieldType::Time, "", "", "", |line| {
            Value::Time(line[0])
        });
        let fields = [NEW, text.row("text"), time.row("ms")];
        serialize_row(&fields, &[7_999_999, 0], &mut map).unwrap();
        SerializeMap::end(map).unwrap();
        assert_eq!(row, br#"{"tcp_new_row":0,"text":"","ms":7}"#);
    }

    #[test]
    fn a_new_field_is_in_every_output() {
        let before = outputs(&[OLD]);
        let after = outputs(&[OLD, NEW]);
        let added = [
            vec![r#""tcp":{"new":7}"#],
            vec![r#"{"tcp_new_row":7}"#],
            vec!["old,tcp_new\n"],
            vec!["1,7\n"],
            vec![
                "| `tcp.new` | integer | segments | the second | never counted | `TCPMetric.New` | `tcp_new_row` | `tcp_new` | sum |",
            ],
            vec![
                r#""tcp":{"properties":{"new":{"description":"the second (segments)","minimum":0,"type":"integer"}}"#,
                r#""required":["old","tcp"]"#,
            ],
            vec![
                "  tcp: {\n    new?: number;\n  };\n",
                r#"  ["tcp.new", "TCPMetric.New"],"#,
            ],
        ];
        for (((output, old), (_, new)), added) in before.iter().zip(&after).zip(added) {
            for part in added {
                assert!(new.contains(part) && !old.contains(part), "{output}: {new}");
            }
        }
    }
}
