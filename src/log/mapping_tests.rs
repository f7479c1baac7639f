use super::*;

fn field(name: &str, data_type: Value, id: i64, physical: &str) -> Value {
    let notes = json!({ ID: id, PHYSICAL_NAME: physical });
    json!({ "name": name, "type": data_type, "nullable": true, "metadata": notes })
}

fn plain(name: &str, data_type: Value) -> Value {
    json!({ "name": name, "type": data_type, "nullable": true, "metadata": {} })
}

fn structure(fields: &[Value]) -> Value {
    json!({ "type": "struct", "fields": fields })
}

fn map_of(value: Value) -> Value {
    json!({ "type": "map", "keyType": "string", "valueType": value, "valueContainsNull": true })
}

fn assigned(wanted: &mut Value, known: &Value, max: i64) -> i64 {
    let mut ids = Drawn { max, draw: &|| "drawn".into() };
    annotate(wanted, Some(known), &mut ids);
    ids.max
}

#[test]
fn kept_columns_keep_their_names_and_ids_at_every_depth() {
    let known = structure(&[
        field("a", json!("long"), 1, "col-a"),
        field("m", map_of(structure(&[field("x", json!("string"), 4, "col-x")])), 3, "col-m"),
    ]);
    let value = structure(&[plain("y", json!("long")), plain("x", json!("string"))]);
    let mut wanted = structure(&[plain("m", map_of(value)), plain("A", json!("string")), plain("b", json!("date"))]);
    assert_eq!(assigned(&mut wanted, &known, 9), 11);
    let value = structure(&[field("y", json!("long"), 10, "drawn"), field("x", json!("string"), 4, "col-x")]);
    let expected = structure(&[
        field("m", map_of(value), 3, "col-m"),
        field("A", json!("string"), 1, "col-a"),
        field("b", json!("date"), 11, "drawn"),
    ]);
    assert_eq!(wanted, expected);
}

#[test]
fn a_column_of_another_kind_keeps_nothing_of_what_was_in_it() {
    let known = structure(&[field("s", structure(&[field("x", json!("long"), 2, "col-x")]), 1, "col-s")]);
    let mut wanted = structure(&[plain("s", map_of(structure(&[plain("x", json!("long"))])))]);
    assert_eq!(assigned(&mut wanted, &known, 2), 3);
    let value = structure(&[field("x", json!("long"), 3, "drawn")]);
    assert_eq!(wanted, structure(&[field("s", map_of(value), 1, "col-s")]));
}

#[test]
fn the_highest_id_counts_those_of_elements() {
    let mut list = field("l", map_of(json!("long")), 5, "col-l");
    list["metadata"][NESTED_IDS] = json!({ "col-l.key": 100, "col-l.value": 101 });
    assert_eq!(highest_id(&structure(&[list, field("a", json!("long"), 7, "a")])), 101);
    assert_eq!(highest_id(&structure(&[plain("a", json!("long"))])), 0);
}

#[test]
fn mapping_columns_to_their_own_names_changes_nothing_and_to_others_does() {
    let before = structure(&[plain("a", json!("long"))]).to_string();
    let as_named = structure(&[field("a", json!("long"), 1, "a")]).to_string();
    let as_other = structure(&[field("a", json!("long"), 2, "col-2")]).to_string();
    assert_eq!(comparable(&before), comparable(&as_named));
    assert_ne!(comparable(&before), comparable(&as_other));
    assert_eq!(logical(&as_other).unwrap(), logical(&before).unwrap());
}

#[test]
fn the_mode_counts_only_where_the_protocol_has_the_feature() {
    let metadata = |mode: &str| Metadata {
        id: "t".into(),
        name: None,
        description: None,
        format: json!({}),
        schema_string: structure(&[]).to_string(),
        partition_columns: Vec::new(),
        created_time: None,
        configuration: BTreeMap::from([(MODE.to_string(), mode.to_string())]),
    };
    let protocol = |reader: i32, writer: i32, features: Option<Vec<String>>| Protocol {
        min_reader_version: reader,
        min_writer_version: writer,
        reader_features: features.clone(),
        writer_features: features,
    };
    let listed = Some(vec![COLUMN_MAPPING.to_string()]);
    assert_eq!(mode(&protocol(3, 7, listed.clone()), &metadata("name")), Some(Mode::Name));
    assert_eq!(mode(&protocol(2, 5, None), &metadata("id")), Some(Mode::Id));
    assert_eq!(mode(&protocol(3, 7, listed), &metadata("none")), None);
    assert_eq!(mode(&protocol(3, 7, Some(vec![])), &metadata("name")), None);
    assert_eq!(mode(&protocol(1, 5, None), &metadata("name")), None);
}
