//! What the documents tell a reader to type, typed: commands by a shell, queries by DuckDB.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::postgres::Postgres;
use crate::program::{Ran, Readers, free_port, names};

/// The documents whose commands are run here.
const HERE: [&str; 3] = ["README.md", "PROTOCOL.md", "docs/EMBEDDING.md"];
/// Those whose commands other tests run: of operators and of readers.
const ELSEWHERE: [&str; 2] = ["docs/OPERATING.md", "readers/README.md"];
/// Where the documents say that a database is.
const DATABASE: &str = "postgres://cutover:…@db.example/shop";
/// Where they say that a daemon is.
const PORT: &str = "8090";
/// What stands before each block's output.
const MARK: &str = "---- ";
/// What a reader has built already: a command that tells cargo to build only runs what there is.
const CARGO: &str = r#"#!/bin/sh
case "$*" in
    build) ;;
    "run "*"--example "*) while [ "$1" != -- ]; do [ "$1" = --example ] && name=$2; shift; done; shift; exec "$EXAMPLES/$name" "$@" ;;
    "run "*"-- "*) while [ "$1" != -- ]; do shift; done; shift; exec cutover "$@" ;;
    *) echo "cargo $* is not known here" >&2; exit 1 ;;
esac
"#;

/// A fenced piece of a document.
#[derive(Debug)]
pub(crate) struct Block {
    /// The document, and the line at which the piece begins.
    place: String,
    /// Whether it stands right behind another piece.
    is_behind: bool,
    /// What stands behind the fence.
    pub(crate) language: String,
    pub(crate) text: String,
}

/// The pieces of a document, in their order.
pub(crate) fn blocks(document: &str) -> Vec<Block> {
    let text = fs::read_to_string(root().join(document)).unwrap();
    let (mut found, mut open, mut ended) = (Vec::new(), None::<Block>, 0);
    for (number, line) in (1..).zip(text.lines()) {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(language), None) => {
                let place = format!("{document}:{number}");
                let is_behind = number == ended + 1;
                open = Some(Block { place, is_behind, language: language.to_owned(), text: String::new() });
            }
            (Some(_), Some(_)) => {
                found.extend(open.take());
                ended = number;
            }
            (None, Some(block)) => block.text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{document} has a piece without an end");
    found
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A checkout as a reader has it who has built the program and made the readers' environment.
struct Checkout {
    home: TempDir,
    port: u16,
}

impl Checkout {
    fn new(readers: &Readers) -> Self {
        let home = TempDir::new().unwrap();
        let path = |name: &str| home.path().join(name);
        for name in ["fixtures", "tests", "readers", "examples", "docs"] {
            symlink(root().join(name), path(name)).unwrap();
        }
        fs::create_dir_all(path("target/debug")).unwrap();
        symlink(env!("CARGO_BIN_EXE_cutover"), path("target/debug/cutover")).unwrap();
        let python = PathBuf::from(readers.python().get_program());
        symlink(python.parent().unwrap().parent().unwrap(), path("target/readers-venv")).unwrap();
        fs::create_dir(path("bin")).unwrap();
        fs::write(path("bin/cargo"), CARGO).unwrap();
        fs::set_permissions(path("bin/cargo"), fs::Permissions::from_mode(0o755)).unwrap();
        Self { home, port: free_port() }
    }

    /// Runs the blocks one after another in one shell, as who reads on in one terminal does; what each said and printed.
    fn run(&self, blocks: &[&Block]) -> Vec<String> {
        let mut script = String::from("trap 'set +e; kill $(jobs -p) 2>/dev/null; wait' EXIT\nset -eu\n");
        for block in blocks {
            script += &format!("echo '{MARK}{0}'; echo '{MARK}{0}' >&2\n{1}\n", block.place, block.text);
        }
        let script = script.replace(&format!("127.0.0.1:{PORT}"), &format!("127.0.0.1:{}", self.port));
        let built = Path::new(env!("CARGO_BIN_EXE_cutover")).parent().unwrap();
        let known = std::env::var("PATH").unwrap_or_default();
        let mut shell = Command::new("bash");
        shell.arg("-c").arg(script).current_dir(self.home.path()).stdin(Stdio::null());
        shell.env("PATH", format!("{}/bin:{}:{known}", self.home.path().display(), built.display()));
        shell.env("EXAMPLES", built.join("examples"));
        shell.env("CUTOVER__SERVER__LISTEN", format!("127.0.0.1:{}", self.port));
        let ran = Ran::of(shell.output().unwrap()).ended(0, 0);
        let parts = |text: &str| -> Vec<String> {
            text.split(MARK).skip(1).map(|part| part.split_once('\n').unwrap().1.to_owned()).collect()
        };
        let (data, talk) = (parts(&ran.stdout), parts(&ran.stderr));
        assert_eq!((data.len(), talk.len()), (blocks.len(), blocks.len()), "{}{}", ran.stdout, ran.stderr);
        data.into_iter().zip(talk).map(|(data, talk)| talk + &data).collect()
    }
}

#[test]
fn commands_do_what_the_documents_say() {
    const TEST: &str = "commands_do_what_the_documents_say";
    let Some(readers) = Readers::find(TEST) else { return };
    let database = Postgres::find(TEST);
    for document in HERE {
        let (checkout, mut blocks) = (Checkout::new(&readers), blocks(document));
        // Both commands of the README's beginning; the second is what runs this.
        blocks.retain(|block| block.text != "tests/run.sh\n");
        if document == "PROTOCOL.md" {
            let before =
                Block { place: document.into(), is_behind: false, language: "sh".into(), text: FLIGHTS.to_owned() };
            blocks.insert(0, before);
        }
        for block in &mut blocks {
            match &database {
                Some(server) if block.language == "sql" && block.text.contains("CREATE ROLE cutover") => {
                    server.sql(
                        "CREATE TABLE orders (id bigint PRIMARY KEY, item text); INSERT INTO orders VALUES (1, 'tea')",
                    );
                    server.sql(&block.text);
                }
                Some(server) => block.text = block.text.replace(DATABASE, &server.url_of("cutover")),
                None => {}
            }
        }
        let shell: Vec<&Block> = blocks
            .iter()
            .filter(|block| block.language == "sh" && !(database.is_none() && block.text.contains(DATABASE)))
            .collect();
        let printed = checkout.run(&shell);
        // Lines without a language right behind commands are what they say.
        for pair in blocks
            .windows(2)
            .filter(|pair| pair[0].language == "sh" && pair[1].language.is_empty() && pair[1].is_behind)
        {
            let at = shell.iter().position(|block| block.place == pair[0].place).unwrap();
            let said: Vec<&str> = printed[at].lines().collect();
            let unsaid: Vec<&str> = pair[1].text.lines().filter(|line| !said.contains(line)).collect();
            assert!(unsaid.is_empty(), "{}: {unsaid:?} is not what is said: {said:?}", pair[1].place);
        }
    }
}

/// Makes the tables that PROTOCOL.md speaks of.
const FLIGHTS: &str = r#"
cutover run -c fixtures/flights.toml --once
mkdir -p keyless/rows && echo '{"a": 1, "b": "x"}' > keyless/rows/snapshot-1.ndjson
echo '{"step": 2, "insert": {"a": 1, "b": "x"}}' > keyless/rows/changes-1-2.ndjson
cat > keyless.toml <<'END'
config_version = 1
[pipelines.p.source.files]
path = "keyless"
[pipelines.p.views.rows]
columns = { a = "bigint", b = "string" }
[pipelines.p.views.rows.connectors.lake.delta]
uri = "target/keyless"
END
cutover run -c keyless.toml --once
"#;

/// Runs lists of statements one after another; prints for each how many rows its queries give.
const QUERIES: &str = r#"
import json, sys
import duckdb, read
db = read.duckdb_connection()
db.execute("SET enable_progress_bar = false")
for text in json.load(sys.stdin):
    counts = []
    for statement in db.extract_statements(text):
        rows = db.execute(statement.query).fetchall()
        if statement.type == duckdb.StatementType.SELECT:
            counts.append(len(rows))
    print(json.dumps(counts))
"#;

#[test]
fn queries_do_what_the_protocol_says() {
    let Some(readers) = Readers::find("queries_do_what_the_protocol_says") else { return };
    let checkout = Checkout::new(&readers);
    let tables =
        Block { place: "the tables".into(), is_behind: false, language: "sh".into(), text: FLIGHTS.to_owned() };
    checkout.run(&[&tables]);
    let blocks = blocks("PROTOCOL.md");
    let queries: Vec<&Block> = blocks.iter().filter(|block| block.language == "sql").collect();
    let texts: Vec<&str> = queries.iter().map(|block| block.text.as_str()).collect();
    let asked = checkout.home.path().join("queries.json");
    fs::write(&asked, serde_json::to_string(&texts).unwrap()).unwrap();
    let mut python = readers.code(QUERIES);
    python.current_dir(checkout.home.path()).stdin(fs::File::open(asked).unwrap());
    let ran = Ran::of(python.output().unwrap()).ended(0, 0);
    let counts: Vec<Vec<u64>> = ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(counts.len(), queries.len(), "{}", ran.stderr);
    let mut checks = 0;
    for (block, counts) in queries.iter().zip(counts) {
        let is_check = block.text.contains("-- R1");
        for rows in counts {
            // What breaks a rule is a row.
            assert!(if is_check { rows == 0 } else { rows > 0 }, "{} gives {rows} rows: {}", block.place, block.text);
            checks += usize::from(is_check);
        }
    }
    assert!(checks >= 10, "{checks} checks of rules were found");
}

#[test]
fn no_document_has_commands_that_nothing_runs() {
    let mut found = Vec::new();
    for folder in ["", "docs", "readers", "operators", "readers/python"] {
        let names = names(&root().join(folder)).into_iter().filter(|name| name.ends_with(".md"));
        let documents = names.map(|name| Path::new(folder).join(name).display().to_string());
        found.extend(documents.filter(|name| blocks(name).iter().any(|block| block.language == "sh")));
    }
    found.retain(|name| !HERE.contains(&name.as_str()) && !ELSEWHERE.contains(&name.as_str()));
    assert_eq!(found, Vec::<String>::new());
}
