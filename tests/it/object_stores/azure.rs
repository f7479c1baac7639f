//! Azure by its emulator, where CUTOVER_AZURITE names the program `azurite-blob`.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use cutover::inspect::{Verdict, verify};
use cutover::log::Log;
use cutover::{Access, Durability, ErrorKind, Location, World};

use super::matrix::{DEEDS, perform};
use super::server::storage;
use crate::program::{Ran, Readers, free_port};
use crate::world::step;

const ACCOUNT: &str = "devstoreaccount1";
/// The key of every Azurite.
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// An emulator; dropped, it is killed.
struct Azurite {
    child: Child,
    port: u16,
    _home: tempfile::TempDir,
}

impl Azurite {
    fn start(program: &std::ffi::OsStr) -> Self {
        // Free when it was asked for; another process that takes it meanwhile fails the test.
        let port = free_port();
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(program);
        command.args([
            "--inMemoryPersistence",
            "--silent",
            "--skipApiVersionCheck",
            "--disableTelemetry",
            "--blobPort",
        ]);
        let command = command.arg(port.to_string()).current_dir(home.path());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, port, _home: home }
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_in_azure_is_created_appended_to_and_reloaded() {
    const TEST: &str = "a_table_in_azure_is_created_appended_to_and_reloaded";
    let Some(program) = std::env::var_os("CUTOVER_AZURITE") else {
        // Not by a macro, whose words the test harness would keep to itself.
        let _ = writeln!(std::io::stderr(), "skipped: {TEST}; set CUTOVER_AZURITE to the program azurite-blob");
        return;
    };
    let Some(readers) = Readers::find(TEST) else { return };
    let azurite = Azurite::start(&program);
    let port = azurite.port.to_string();
    let raced = Ran::of(readers.command("azure.py", &[&port, "lake"]).output().unwrap());
    assert_eq!(raced.code, Some(0), "{}", raced.stderr);
    let mut options = vec![
        ("account_name", ACCOUNT.to_string()),
        ("account_key", KEY.to_string()),
        ("endpoint", format!("http://127.0.0.1:{port}/{ACCOUNT}")),
        ("allow_http", "true".to_string()),
    ];
    let open = |uri: &str, options: &[(&'static str, String)]| {
        Location::open_with(uri, Access::Write(Durability::Commit), &storage(options)).unwrap()
    };
    let (location, world, mut sink) = (open("az://lake/t", &options), World::system(), None);
    for deed in DEEDS {
        perform(deed, &mut sink, &location, &world).await.unwrap();
    }
    let report = verify(&Log::new(location, world.clone()), None).await.unwrap();
    assert_eq!(report.verdict, Verdict::Healthy, "{:?}", report.findings);
    assert_eq!(report.last_step, Some(step(13)));
    let environment = options.iter().map(|(name, value)| {
        let prefix = if name.starts_with("account") || *name == "endpoint" { "AZURE_STORAGE" } else { "AZURE" };
        (format!("{prefix}_{}", name.to_uppercase()), value.clone())
    });
    let told = readers.at(environment.collect()).tell("read.py", &["many", "deltalake"], "az://lake/t\n");
    let answer: serde_json::Value = serde_json::from_str(&told).unwrap();
    assert_eq!(answer["rows"], 3, "{answer}");
    for (uri, account_key, part) in
        [("az://nowhere/t", KEY, "bucket or container does not exist"), ("az://lake/t", "d3Jvbmc=", "the credentials")]
    {
        options[1].1 = account_key.to_string();
        let refused = verify(&Log::new(open(uri, &options), world.clone()), None).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
        assert!(refused.message().contains(part), "{refused}");
    }
}
