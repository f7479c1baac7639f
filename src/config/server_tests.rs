use super::*;
use crate::config::tests::{SMALL, check, load, load_with, message};

const GUARDED: &str = "[server.auth.tokens.ops]\nrole = \"admin\"\ntoken = \"0123456789abcdef\"\n";

fn server(lines: &str) -> ServerConfig {
    load(&format!("{lines}{SMALL}")).unwrap().server
}

#[test]
fn another_address_than_the_loopback_needs_a_token() {
    for loopback in ["127.0.0.1:0", "127.9.9.9:80", "[::1]:8090", "[::ffff:127.0.0.1]:1"] {
        assert_eq!(server(&format!("[server]\nlisten = {loopback:?}\n")).listen.to_string(), loopback);
    }
    for other in ["0.0.0.0:8090", "[::]:8090", "192.168.1.1:80", "[::ffff:10.0.0.1]:1"] {
        let text = format!("[server]\nlisten = {other:?}\n");
        check(
            "",
            &text,
            &[
                "cutover.toml:2:10: server.listen: others than this machine reach this address, and without tokens whoever reaches it may do everything; add [server.auth.tokens.NAME], or listen at 127.0.0.1:8090",
            ],
        );
        assert_eq!(server(&format!("{text}{GUARDED}")).listen.to_string(), other);
    }
    check(
        "",
        "[server]\nlisten = \"localhost:8090\"\n",
        &[
            "cutover.toml:2:10: server.listen: \"localhost:8090\" is not valid; write an address and a port, such as \"127.0.0.1:8090\" or \"[::1]:8090\"",
        ],
    );
    // One mistake is one problem.
    check(
        "",
        "[server]\nlisten = \"0.0.0.0:1\"\nauht = {}\n",
        &["cutover.toml:3:1: server.auht: unknown key; did you mean \"auth\"?"],
    );
    check(
        "",
        "[server]\nlisten = \"0.0.0.0:1\"\nauth = {}\n",
        &["cutover.toml:3:1: server.auth: has no token; add [server.auth.tokens.NAME]"],
    );
}

#[test]
fn hosts_are_names_alone() {
    let hosts = ["cutover", "Lake.Example.com", "10.0.0.1", "[2001:DB8::1]", "a_b-c"];
    assert_eq!(
        server(&format!("[server]\nhosts = {hosts:?}\n")).hosts,
        ["cutover", "lake.example.com", "10.0.0.1", "[2001:db8::1]", "a_b-c"]
    );
    let alone = "write a host's name alone, such as \"cutover.example.com\", without scheme, port and path";
    for wrong in
        ["cutover:8090", "http://cutover", "a/b", "*", "*.example.com", "a..b", ".a", "[::1]:80", "a b", "é", "[x]"]
    {
        check(
            "",
            &format!("[server]\nhosts = [\"{wrong}\"]\n"),
            &[&format!("cutover.toml:2:10: server.hosts[0]: {wrong:?} is not valid; {alone}")],
        );
    }
    check(
        "",
        "[server]\nhosts = [\"::1\", \"\"]\n",
        &[
            "cutover.toml:2:10: server.hosts[0]: \"::1\" is not valid; write the address in brackets, as \"[::1]\"",
            "cutover.toml:2:17: server.hosts[1]: is empty",
        ],
    );
}

#[test]
fn a_token_has_a_role_a_length_and_one_owner() {
    let two = |first: &str, second: &str| {
        load_with(
            &format!(
                "[server.auth.tokens]\na = {{ role = \"read\", token = {first:?} }}\nb = {{ role = \"admin\", token = {second:?} }}\n{SMALL}"
            ),
            &[],
            &[("T", "0123456789abcdef"), ("SHORT", "0123456789abcde")],
        )
    };
    let tokens = two("0123456789abcde-", "${env:T}").unwrap().server.tokens;
    let tokens: Vec<_> = tokens.iter().map(|t| (t.name.as_str(), t.role, t.token.expose())).collect();
    assert_eq!(tokens, [("a", Role::Read, "0123456789abcde-"), ("b", Role::Admin, "0123456789abcdef")]);
    assert_eq!(
        message(two("0123456789abcdef", "${env:T}")),
        "cutover.toml:3:31: server.auth.tokens.b.token: is the token of \"a\" too, and nobody could tell them apart; give each its own"
    );
    let long = "x".repeat(1025);
    let length = "is not between 16 and 1024 bytes long; \"openssl rand -hex 32\" makes one";
    for wrong in ["", "${env:SHORT}", &long] {
        assert_eq!(
            message(two(wrong, "0123456789abcdef")),
            format!("cutover.toml:2:30: server.auth.tokens.a.token: {length}")
        );
    }
    for wrong in ["0123456789 abcdef", "0123456789abcdef\n", "0123456789abcdefé"] {
        let said = message(two(wrong, "0123456789abcdef"));
        assert!(said.starts_with("cutover.toml:2:30: server.auth.tokens.a.token: has a space or another"), "{said}");
    }
    check(
        "",
        "[server.auth]\n[server.auth.tokens.a]\nrole = \"amdin\"\n[server.auth.tokens.\"b/c\"]\nrole = \"root\"\ntoken = 5\nname = 1\n",
        &[
            "cutover.toml:2:21: server.auth.tokens.a: has no \"token\"; add it",
            "cutover.toml:3:8: server.auth.tokens.a.role: the value is not known; did you mean \"admin\"?",
            "cutover.toml:4:21: server.auth.tokens.\"b/c\": the name \"b/c\" is not allowed; use letters A-Z and a-z, digits, \"_\", \".\" and \"-\", and begin with a letter, digit or \"_\"",
            "cutover.toml:5:8: server.auth.tokens.\"b/c\".role: the value is not known; write one of \"read\", \"push\", \"admin\"",
            "cutover.toml:6:9: server.auth.tokens.\"b/c\".token: expected a string, found an integer",
            "cutover.toml:7:1: server.auth.tokens.\"b/c\".name: unknown key; known here: \"role\", \"token\"",
        ],
    );
}

#[test]
fn a_token_shows_in_no_debug_output_and_in_no_error() {
    let canary = "canary-0123456789";
    let text = format!("[server.auth.tokens]\na = {{ role = \"read\", token = {canary:?} }}\n{SMALL}");
    let env = [("T", "canary-abcdefghij"), ("CUTOVER__SERVER__AUTH__TOKENS__B__TOKEN", "canary-9876543210")];
    let set = |set: &str| load_with(&text, &["server.auth.tokens.b.role=push", set], &env);
    let config = set("server.auth.tokens.b.role=admin").unwrap();
    let tokens: Vec<_> = config.server.tokens.iter().map(|t| (t.role, t.token.expose())).collect();
    assert_eq!(tokens, [(Role::Read, canary), (Role::Admin, "canary-9876543210")]);
    assert!(!format!("{config:?} {config:#?} {:?}", config.server.tokens).contains("canary"), "{config:?}");

    // A token in each wrong place for it, by itself or by reference, and each way in which one is wrong itself.
    let places = [
        "server.auth.tokens.a.role",
        "server.auth.tokens.a",
        "server.auth.tokens.b.tokn",
        "server.auth.tokens",
        "server.auth",
        "server.auth.token",
        "server.ingress.max_line",
    ];
    for place in places {
        for value in ["${env:T}", "x${env:T}"] {
            let found = message(set(&format!("{place}={value}")));
            assert!(!found.contains("canary"), "{place}: {found}");
        }
    }
    for place in &places[..6] {
        let found = message(set(&format!("{place}={canary}")));
        assert!(!found.contains("canary"), "{place}: {found}");
    }
    for place in ["server.listen", "server.hosts", "server.data_dir.x"] {
        let found = message(set(&format!("{place}=${{env:T}}")));
        assert!(!found.contains("canary"), "{place}: {found}");
    }
    for wrong in [
        "\"canary\"",
        "[\"canary-0123456789\"]",
        "{ x = \"canary-0123456789\" }",
        "\"canary-0123456789 x\"",
        "\"canary-0123456789\"",
        "\"${env:canary\"",
    ] {
        let found = message(set(&format!("server.auth.tokens.c={{ role = \"read\", token = {wrong} }}")));
        let itself = message(set(&format!("server.auth.tokens.b.token={wrong}")));
        assert!(!found.contains("canary") && !itself.contains("canary"), "{wrong}: {found} {itself}");
    }
    for syntax in ["token = canary", "token = \"canary", "token = 'canary' x", "token canary"] {
        let found = message(load(&format!("[server.auth.tokens.a]\n{syntax}\n{SMALL}")));
        assert!(!found.contains("canary"), "{syntax}: {found}");
    }
}

#[test]
fn what_a_request_may_take_is_bounded() {
    assert_eq!(server("[server.ingress]\n"), ServerConfig::default());
    let limits = |lines: &str| server(&format!("[server.ingress]\n{lines}\n")).ingress;
    let expected = |request, line| ingest::Limits { request, line, unfolded: request * 4 };
    assert_eq!(limits("max_request = \"1MiB\""), expected(1 << 20, 1 << 20));
    assert_eq!(limits("max_line = 1024"), expected(64 << 20, 1024));
    assert_eq!(limits("max_request = \"1GiB\"\nmax_line = \"1GiB\""), expected(1 << 30, 1 << 30));
    let wrong = |lines: &str, expected: &str| {
        check("", &format!("[server.ingress]\n{lines}\n"), &[&format!("cutover.toml:2:{expected}")]);
    };
    wrong("max_request = 1023", "15: server.ingress.max_request: is not between 1KiB and 1GiB");
    wrong("max_request = \"1025MiB\"", "15: server.ingress.max_request: is not between 1KiB and 1GiB");
    wrong("max_line = 1", "12: server.ingress.max_line: is not between 1KiB and 1GiB");
    wrong(
        "max_line = \"65MiB\"",
        "12: server.ingress.max_line: is more than max_request, so that no line can be as long; lower it, or raise max_request",
    );
    wrong("max_lines = 1", "1: server.ingress.max_lines: unknown key; did you mean \"max_line\"?");
}
