//! Who is let in over which connection.

use tempfile::TempDir;

use super::server::{PASSWORD, Postgres, certificates};
use super::types::{configure, cutover, view};

#[test]
fn a_certificate_is_verified_unless_the_url_says_otherwise() {
    let Some(mut server) = Postgres::find("a_certificate_is_verified_unless_the_url_says_otherwise") else { return };
    server.sql("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let authority = format!("sslrootcert={}", certificates().join("authority.pem").display());
    let says = |server: &Postgres, options: &str, code: i32, said: &str| {
        let home = TempDir::new().unwrap();
        configure(home.path(), &format!("{}?{options}", server.url()), &view("v", "table = \"t\""));
        let ran = cutover(home.path(), &["run", "--once"]);
        assert!(!ran.stderr.contains(PASSWORD) && !ran.stdout.contains(PASSWORD), "{}", ran.stderr);
        assert!(ran.stderr.contains(said), "{options}: {}", ran.stderr);
        ran.ended(code, 0);
        server.sql("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots; DROP PUBLICATION IF EXISTS cutover_p");
    };
    says(&server, "", 0, "");
    server.encrypt("here");
    says(&server, &authority, 0, "");
    says(&server, &format!("{authority}&sslmode=verify-full"), 0, "");
    says(&server, "sslmode=verify-full", 78, "certificate");
    says(&server, "", 78, "no encryption");
    server.encrypt("elsewhere");
    says(&server, &authority, 78, "not trusted, or not its own");
    says(&server, &format!("{authority}&sslmode=verify-ca"), 0, "");
    says(&server, "sslmode=require", 0, "");
    says(&server, "sslmode=prefer", 78, "sslmode that is none of");
}
