use crate::config::tests::{CONNECTOR, SMALL, URI, check, load, message};

#[test]
fn a_wrong_value_of_a_table_is_named_with_its_remedy() {
    let delta = |line: &str, expected: &str| {
        let expected = format!("cutover.toml:6:{expected}").replace("@", "pipelines.p.views.v.connectors.c.delta");
        check(URI, &format!("{URI}{line}\n"), &[&expected]);
    };
    for level in ["zstd(0)", "zstd(23)", "zstd(05)", "zstd(+5)", "zstd()", "gzip", "snappy(1)", ""] {
        delta(
            &format!("compression = {level:?}"),
            &format!("15: @.compression: {level:?} is not valid; write zstd, zstd(1) to zstd(22), snappy, lz4 or none"),
        );
    }
    delta(
        "storage = { region = \"eu-west-1\" }",
        "1: @.storage: holds options of an object store; a local table has none; remove it, or correct \"uri\"",
    );
    delta(
        "target_file_size = \"65GiB\"",
        "20: @.target_file_size: is above 64GiB, which object stores cannot take in parts; write less",
    );
    let cloud = |uri: &str, line: &str, expected: &str| {
        let expected = format!("cutover.toml:{expected}").replace("@", "pipelines.p.views.v.connectors.c.delta");
        check(URI, &format!("uri = {uri:?}\n{line}\n"), &[&expected]);
    };
    for (uri, option, expected) in [
        ("s3://lake/t", "region = 1", "6:22: @.storage.region: expected a string, found an integer"),
        ("s3://lake/t", "regoin = \"x\"", "6:13: @.storage.regoin: unknown option; did you mean \"region\"?"),
        (
            "s3://lake/t",
            "acess_key_id = \"x\"",
            "6:13: @.storage.acess_key_id: unknown option; did you mean \"access_key_id\"?",
        ),
        (
            "abfss://box@me.dfs.core.windows.net/t",
            "acount_key = \"x\"",
            "6:13: @.storage.acount_key: unknown option; did you mean \"account_key\"?",
        ),
        (
            "gs://lake/t",
            "access_key_id = \"x\"",
            "6:13: @.storage.access_key_id: unknown option; known here, among others: \"service_account\", \"service_account_key\", \"application_credentials\", \"skip_signature\", \"base_url\", \"timeout\", \"connect_timeout\", \"proxy_url\"",
        ),
    ] {
        cloud(uri, &format!("storage = {{ {option} }}"), expected);
    }
    for (uri, expected) in [
        ("s3://lake/t/", "ends with a slash; write it without"),
        ("s3://lake//t", "has a doubled slash; write one"),
        ("gs://", "has no bucket or container behind ://"),
        ("s3://key@lake/t", "has credentials in it; give them as options or by the environment"),
    ] {
        cloud(uri, "", &format!("5:7: @.uri: {expected}"));
    }
    delta(
        "properties.delta.logRetentionDuration = \"x\"",
        "12: @.properties.delta: expected a string (a key with dots in it is written in quotes), found a table",
    );
    delta(
        "properties.\"Cutover.step\" = \"1\"",
        "12: @.properties.\"Cutover.step\": properties that begin with \"cutover.\" are written by cutover itself; remove it",
    );
    delta(
        "properties.\"delta.setTransactionRetentionDuration\" = \"interval 1 day\"",
        "12: @.properties.\"delta.setTransactionRetentionDuration\": it makes other engines forget which steps the table holds; remove it",
    );
    let uri = |value: &str, expected: &str| {
        let expected = format!("cutover.toml:5:7: pipelines.p.views.v.connectors.c.delta.uri: {expected}");
        check("\"out/t\"", value, &[&expected]);
    };
    uri("\"\"", "is empty");
    uri("\"a\\u0000b\"", "has a control character in it");
    uri("\"s3://key:canary@lake/t\"", "has credentials or a query in it; write the plain path of the table");
    uri("\"https://lake/t?sig=canary\"", "has credentials or a query in it; write the plain path of the table");
}

#[test]
fn partition_columns_are_the_views() {
    let with = |columns: &str, partition_by: &str| {
        let view = format!("[pipelines.p.views.v]\n{columns}\n{CONNECTOR}");
        SMALL.replace(CONNECTOR, &view).replace(URI, &format!("{URI}partition_by = {partition_by}\n"))
    };
    let columns = "columns = { id = \"bigint\", r = \"string\", x = \"double\" }";
    let read = |text: &str| load(text).unwrap().connectors[0].delta().unwrap().partition_by.clone();
    assert_eq!(read(&with(columns, "[\"r\", \"id\"]")), Some(vec!["r".to_string(), "id".to_string()]));
    assert_eq!(read(&with("", "[\"anything\"]")), Some(vec!["anything".to_string()]));
    assert_eq!(read(&with(columns, "[]")), Some(vec![]));
    assert_eq!(read(SMALL), None);
    let cases = [
        ("[\"q\"]", "\"q\", which is not a column of the view"),
        ("[\"R\"]", "did you mean \"r\"?"),
        ("[\"r\", \"r\"]", "\"r\" twice"),
        ("[\"x\"]", "\"x\" of the type Float64"),
        ("[\"__op\"]", "a column of continuity"),
        ("[\"\"]", "is empty"),
        ("\"r\"", "expected an array"),
    ];
    for (partition_by, part) in cases {
        let said = message(load(&with(columns, partition_by)));
        assert!(said.contains("connectors.c.delta.partition_by") && said.contains(part), "{partition_by}: {said}");
    }
}

#[test]
fn a_url_may_name_a_container_and_a_path_may_hold_anything() {
    for uri in ["abfss://container@account.dfs.core.windows.net/t", "out/what?", "out/a:b@c", "s3://lake/a@b:c"] {
        let config = load(&SMALL.replace("out/t", uri)).unwrap();
        assert_eq!(config.connectors[0].delta().unwrap().uri, uri);
    }
}

#[test]
fn one_table_has_one_connector() {
    for same in ["out/t", "./out/t", "out//t/", "out/./t"] {
        let text = format!("{SMALL}[pipelines.p.views.w.connectors.d.delta]\nuri = {same:?}\n");
        assert_eq!(
            message(load(&text)),
            "cutover.toml:7:7: pipelines.p.views.w.connectors.d.delta.uri: p/w/d and p/v/c write to the same table; give each its own"
        );
    }
}
