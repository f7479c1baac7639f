use super::*;
use crate::clock::SystemClock;

const CANARY: &str = "canary-9f3c";

fn server(url: &str) -> Server {
    Server::new(url, Arc::new(SystemClock)).unwrap_or_else(|e| panic!("{url}: {e}"))
}

#[test]
fn a_server_shows_where_it_is_and_not_who_comes() {
    for (url, place) in [
        (format!("postgres://me:{CANARY}@db.example.com/shop?sslmode=disable"), "db.example.com:5432/shop"),
        (format!("postgresql://me:{CANARY}@127.0.0.1:5433"), "127.0.0.1:5433/me"),
        (format!("postgres://me:{CANARY}@%2Frun%2Fpostgresql/shop"), "/run/postgresql:5432/shop"),
        (format!("postgres://me:{CANARY}@[::1]:5434/shop?application_name=x"), "::1:5434/shop"),
    ] {
        let server = server(&url);
        assert_eq!(server.place(), place);
        assert!(!format!("{server:?}").contains(CANARY));
        assert_eq!(server.config().get_password(), Some(CANARY.as_bytes()));
    }
}

#[test]
fn encryption_is_verified_but_on_this_machine_unless_the_url_says_otherwise() {
    let folder = tempfile::TempDir::new().unwrap();
    let roots = folder.path().join("roots.pem");
    // Nothing but a text that holds no certificate: the machine's own may be there or not.
    std::fs::write(&roots, "none").unwrap();
    let asked = |host: &str, options: &str| {
        Server::new(&format!("postgres://me:{CANARY}@{host}/shop{options}"), Arc::new(SystemClock))
    };
    for host in ["localhost", "127.0.0.1", "[::1]", "%2Frun"] {
        assert!(asked(host, "").unwrap().tls().is_none(), "{host}");
    }
    assert!(asked("db.example.com", "?sslmode=disable").unwrap().tls().is_none());
    assert!(asked("localhost", "?sslmode=require").unwrap().tls().is_some());
    for mode in ["", "&sslmode=verify-full", "&sslmode=verify-ca", "&sslmode=require"] {
        let error = asked("db.example.com", &format!("?sslrootcert={}{mode}", roots.display())).unwrap_err();
        assert!(error.message().contains("no certificate of an authority"), "{error}");
    }
}

#[test]
fn a_url_that_is_wrong_is_told_without_being_quoted() {
    for url in [
        CANARY.to_owned(),
        format!("mysql://me:{CANARY}@db/shop"),
        format!("postgres://me:{CANARY}@db/shop?sslmode=prefer"),
        format!("postgres://me:{CANARY}/more@db/shop"),
        format!("postgres://me:{CANARY}@db/shop?sslmode=disable&nonsense=1"),
        format!("postgres://me:{CANARY}@db:port/shop"),
        format!("postgres://me:{CANARY}@localhost/shop?connect_timeout={CANARY}"),
        format!("host=db password={CANARY}"),
    ] {
        let error = Server::new(&url, Arc::new(SystemClock)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        let said = format!("{error} {:?}", std::error::Error::source(&error).map(ToString::to_string));
        assert!(!said.contains(CANARY) && said.contains("the url "), "{said}");
    }
}

#[test]
fn every_session_prints_values_alike() {
    let options =
        server("postgres://localhost/shop?options=-c%20work_mem%3D1MB").config().get_options().unwrap().to_owned();
    assert!(options.starts_with("-c work_mem=1MB -c datestyle=ISO"), "{options}");
    assert!(options.contains("-c row_security=off"), "{options}");
}

#[test]
fn a_password_that_is_not_encoded_is_told_apart() {
    for password in ["a/b", "a?b", "a#b", "/"] {
        let said = url_fault(&format!("postgres://me:{CANARY}{password}@db.example.com/shop")).unwrap();
        assert!(said.contains("%2F for /") && !said.contains(CANARY), "{said}");
    }
    assert_eq!(url_fault("postgres://me:a%2Fb@db.example.com/shop?application_name=x"), None);
}
