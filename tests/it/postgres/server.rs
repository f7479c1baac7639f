//! A PostgreSQL server of a test's own, on a free port, that ends with the test.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::program::{PATIENCE, Ran, free_port, wait_until};

/// Runs the server until standard input ends, and so no longer than the test.
const KEEPER: &str = r#"
    exec 3<&0
    "$0" "$@" >&2 3<&- & server=$!
    { read -r _; kill -QUIT $server; } <&3 >&2 & reader=$!
    echo $server
    wait $server
    kill $reader 2>/dev/null
"#;
/// Who needs a password to come in.
pub(crate) const GUARDED: &str = "guarded";
/// The password; no output may have it.
pub(crate) const PASSWORD: &str = "canary-9f3c/word";

/// The programs of a server, and as whom they may run: the server refuses to be root's.
#[derive(Clone)]
struct Programs {
    folder: PathBuf,
    user: Option<(u32, u32)>,
}

impl Programs {
    /// The newest ones that are installed, or those in the folder CUTOVER_POSTGRES.
    fn find() -> Option<Self> {
        let mut folders: Vec<PathBuf> = std::env::var_os("CUTOVER_POSTGRES").map(PathBuf::from).into_iter().collect();
        if folders.is_empty() {
            folders.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
            let installed = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
            let mut installed: Vec<PathBuf> = installed.map(|version| version.path().join("bin")).collect();
            let number = |path: &PathBuf| path.iter().rev().nth(1).and_then(|name| name.to_str()?.parse::<u32>().ok());
            installed.sort_by_key(|path| std::cmp::Reverse(number(path)));
            folders.extend(installed);
        }
        // A link may lead to one of the programs, and its neighbours are there.
        let real = folders.into_iter().find_map(|folder| fs::canonicalize(folder.join("initdb")).ok())?;
        let folder = real.parent()?.to_owned();
        let user = if rustix::process::getuid().is_root() { Some(other_user()?) } else { None };
        Some(Self { folder, user })
    }

    fn command(&self, program: &str) -> Command {
        // Clients may be elsewhere.
        let there = self.folder.join(program);
        self.as_user(if there.exists() { Command::new(there) } else { Command::new(program) })
    }

    /// Makes a server's directory: a copy of one that is made once for each installation, since that takes its time.
    fn make(&self, data: &Path) {
        let name = self.folder.display().to_string().replace('/', "-");
        let template = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("postgres{name}"));
        if template.exists() {
            run(Command::new("cp").arg("-R").arg(&template).arg(data));
            if let Some((user, group)) = self.user {
                run(Command::new("chown").arg("-R").arg(format!("{user}:{group}")).arg(data));
            }
            return;
        }
        self.make_another(data);
        let unfinished = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        run(Command::new("cp").arg("-R").arg(data).arg(unfinished.path().join("data")));
        // Another test may have been faster.
        let _ = fs::rename(unfinished.path().join("data"), &template);
    }

    /// Makes a server's directory, of a server that is no other's.
    fn make_another(&self, data: &Path) {
        let mut made = self.command("initdb");
        made.args(["--no-sync", "--no-instructions", "--no-locale", "--encoding=UTF8", "--auth=trust"]);
        run(made.args(["--username=postgres", "--wal-segsize=1", "-D"]).arg(data));
    }

    fn as_user(&self, mut command: Command) -> Command {
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command.current_dir("/");
        command
    }
}

fn run(command: &mut Command) {
    let ran = Ran::of(command.output().unwrap());
    assert_eq!(ran.code, Some(0), "{command:?}: {}{}", ran.stdout, ran.stderr);
}

/// An authority and certificates for this host and another, each with its key, made for a hundred years by openssl.
pub(crate) fn certificates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/postgres/certificates")
}

/// A user that is not root.
fn other_user() -> Option<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    ["postgres", "nobody"].into_iter().find_map(|name| {
        let line = users.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    })
}

/// A server with a directory of its own. It syncs nothing, so only a machine that fails takes something from it.
pub(crate) struct Postgres {
    programs: Programs,
    home: TempDir,
    port: u16,
    running: Option<Running>,
}

struct Running {
    keeper: Child,
    server: Pid,
    /// Its end is the server's.
    _stdin: ChildStdin,
}

impl Postgres {
    /// A server that runs; without its programs, says that `test` is skipped.
    pub(crate) fn find(test: &str) -> Option<Self> {
        let Some(programs) = Programs::find() else {
            let _ = writeln!(
                std::io::stderr(),
                "skipped: {test}; install postgresql, or name its programs' folder in CUTOVER_POSTGRES"
            );
            return None;
        };
        let home = TempDir::with_prefix("cutover-postgres-").unwrap();
        if let Some((user, group)) = programs.user {
            chown(home.path(), Some(user), Some(group)).unwrap();
        }
        programs.make(&home.path().join("data"));
        let port = free_port();
        let mut server = Self { programs, home, port, running: None };
        server.configure(&format!(
            "listen_addresses = '127.0.0.1'\nport = {port}\nunix_socket_directories = ''\nfsync = off\n\
             shared_buffers = '16MB'\nmax_connections = 50\nwal_level = logical\nmax_wal_senders = 20\n\
             max_replication_slots = 20\nwal_sender_timeout = '20s'\nlog_min_messages = fatal\n"
        ));
        let rules = format!(
            "host all,replication {GUARDED} 127.0.0.1/32 scram-sha-256\nhost all,replication all 127.0.0.1/32 trust\n"
        );
        fs::write(server.data().join("pg_hba.conf"), rules).unwrap();
        server.begin();
        Some(server)
    }

    fn begin(&mut self) {
        self.start();
        self.sql(&format!("CREATE ROLE {GUARDED} SUPERUSER LOGIN PASSWORD '{PASSWORD}'"));
    }

    /// Puts another server in its place, which has the same address and nothing else.
    pub(crate) fn replace(&mut self) {
        self.stop();
        let data = self.data();
        let kept = ["postgresql.conf", "pg_hba.conf"].map(|name| (name, fs::read(data.join(name)).unwrap()));
        fs::remove_dir_all(&data).unwrap();
        self.programs.make_another(&data);
        kept.into_iter().for_each(|(name, text)| fs::write(data.join(name), text).unwrap());
        self.begin();
    }

    /// The server's directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// How the program reaches it, by a password.
    pub(crate) fn url(&self) -> String {
        let password = PASSWORD.replace('/', "%2F");
        format!("postgres://{GUARDED}:{password}@127.0.0.1:{}/postgres", self.port)
    }

    /// How somebody reaches it who needs no password.
    pub(crate) fn url_of(&self, role: &str) -> String {
        format!("postgres://{role}@127.0.0.1:{}/postgres", self.port)
    }

    /// From here on nobody comes in without encryption, with a certificate of the tests' own authority.
    pub(crate) fn encrypt(&mut self, certificate: &str) {
        for (ending, name) in [("pem", "server.crt"), ("key", "server.key")] {
            let file = self.data().join(name);
            fs::copy(certificates().join(format!("{certificate}.{ending}")), &file).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
            self.give(&file);
        }
        let (file, whom) = (self.data().join("pg_hba.conf"), format!("all,replication {GUARDED} 127.0.0.1/32"));
        let rules = fs::read_to_string(&file).unwrap();
        let encrypted = format!("hostnossl {whom} reject\nhostssl {whom}");
        fs::write(&file, rules.replace(&format!("host {whom}"), &encrypted)).unwrap();
        self.configure("ssl = on\n");
        self.stop();
        self.start();
    }

    /// Adds settings that count from the next start on.
    pub(crate) fn configure(&self, lines: &str) {
        let file = fs::OpenOptions::new().append(true).open(self.data().join("postgresql.conf"));
        file.unwrap().write_all(lines.as_bytes()).unwrap();
    }

    /// Starts it, and waits until it answers.
    pub(crate) fn start(&mut self) {
        assert!(self.running.is_none(), "the server runs already");
        let begun = wait_until(PATIENCE, || self.try_start());
        assert!(begun, "the server did not start; see {}", self.home.path().join("log").display());
    }

    /// One that was killed leaves processes behind for a moment, in whose presence none starts.
    fn try_start(&mut self) -> bool {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.home.path().join("log")).unwrap();
        let mut command = self.programs.as_user(Command::new("sh"));
        command.args(["-c", KEEPER]).arg(self.programs.folder.join("postgres")).arg("-D").arg(self.data());
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut pid = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut pid).unwrap();
        let server = Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        let stdin = keeper.stdin.take().unwrap();
        let mut has_ended = || keeper.try_wait().unwrap().is_some();
        let has_answered = wait_until(PATIENCE, || self.answers() || has_ended()) && !has_ended();
        self.running = Some(Running { keeper, server, _stdin: stdin });
        if !has_answered {
            self.end(Signal::KILL);
        }
        has_answered
    }

    fn answers(&self) -> bool {
        let mut asked = self.programs.command("pg_isready");
        asked.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
        asked.status().unwrap().success()
    }

    /// Ends it as an operator does: sessions are cut, everything is written.
    pub(crate) fn stop(&mut self) {
        self.end(Signal::INT);
    }

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    fn end(&mut self, signal: Signal) {
        let Some(mut running) = self.running.take() else { return };
        if running.keeper.try_wait().unwrap().is_none() {
            kill_process(running.server, signal).unwrap();
        }
        running.keeper.wait().unwrap();
    }

    /// Runs statements, one transaction each; gives the rows, their columns divided by `|`.
    pub(crate) fn sql(&self, statements: &str) -> String {
        let ran = self.try_sql(statements);
        assert_eq!(ran.code, Some(0), "{statements}: {}", ran.stderr);
        ran.stdout.trim_end().to_owned()
    }

    /// The same, where it may fail.
    pub(crate) fn try_sql(&self, statements: &str) -> Ran {
        let mut command = self.psql();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(statements.as_bytes()).unwrap();
        Ran::of(child.wait_with_output().unwrap())
    }

    /// A client for statements, on standard input.
    pub(crate) fn psql(&self) -> Command {
        let mut command = self.programs.command("psql");
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "postgres"]);
        command.args(["-p", &self.port.to_string(), "-d", "postgres"]);
        command.env("PGOPTIONS", "-c client_min_messages=warning");
        command
    }

    /// A session that stays open, and has run these statements.
    pub(crate) fn open(&self, statements: &str) -> Open {
        let mut psql = self.psql().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (psql.stdin.take().unwrap(), BufReader::new(psql.stdout.take().unwrap()));
        let mut open = Open { psql, stdin, stdout };
        open.say(statements);
        open
    }

    /// Whom its files must belong to.
    pub(crate) fn give(&self, path: &Path) {
        if let Some((user, group)) = self.programs.user {
            chown(path, Some(user), Some(group)).unwrap();
        }
    }
}

/// A session of a test's.
pub(crate) struct Open {
    psql: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Open {
    /// Runs statements that give no rows.
    pub(crate) fn say(&mut self, statements: &str) {
        writeln!(self.stdin, "{statements}\n\\! echo done").unwrap();
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "done", "{statements}");
    }

    pub(crate) fn end(mut self) {
        drop(self.stdin);
        self.psql.wait().unwrap();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.end(Signal::QUIT);
    }
}
