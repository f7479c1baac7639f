//! A PostgreSQL server: where it is, how it is spoken to, and what its errors ask of the caller.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio::task::JoinSet;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Statement, ToStatement};
use url::Url;

use super::tls::{self, Tls, Verify};
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};

/// How long a connection may take to come about, where the URL does not say.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a session may take to come about, whatever the URL says.
const SESSION_LIMIT: Duration = Duration::from_secs(60);
/// What helps where a server does not answer.
pub(super) const REACH: &str = "see that the server runs, and that this machine reaches it at this host and port";
/// How long an answer may take: the rows of a statement, or the next ones of many.
const ANSWER: Duration = Duration::from_secs(300);
/// After how long without a word a connection is asked whether it is still there, and how often it is asked again.
const SILENCE: Duration = Duration::from_secs(30);
const ASK_AGAIN: (Duration, u32) = (Duration::from_secs(10), 3);

/// What every session sets, so that equal values have equal texts in all of them, and rows are all or an error.
///
/// Row security would hide rows from a snapshot that the log tells; with `off` a statement that it concerns fails.
pub(crate) const SESSION: &[(&str, &str)] = &[
    ("datestyle", "ISO"),
    ("intervalstyle", "postgres"),
    ("timezone", "UTC"),
    ("extra_float_digits", "1"),
    ("bytea_output", "hex"),
    ("search_path", ""),
    ("row_security", "off"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
];

/// A database of a server, and the way there.
#[derive(Clone)]
pub(crate) struct Server {
    config: Config,
    tls: Option<Tls>,
    place: Arc<str>,
    clock: Arc<dyn Clock>,
}

/// What a URL says.
struct Address {
    config: Config,
    verify: Option<Verify>,
    roots: Option<String>,
}

/// Why a URL is none of a database; never with a part of it that may be secret.
pub(crate) fn url_fault(url: &str) -> Option<String> {
    Address::read(url).err()
}

impl Address {
    fn read(url: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("{why}; write postgres://USER:PASSWORD@HOST:PORT/DATABASE");
        // Such a character ends the part before it, and the rest would be taken for something else.
        let behind = url.split_once("://").map_or("", |(_, behind)| behind);
        if behind.find(['/', '?', '#']).is_some_and(|at| behind.get(at..).is_some_and(|rest| rest.contains('@'))) {
            return Err(wrong(
                "has a character in the user or the password that must be percent-encoded: %2F for /, %3F for ?, %23 for #, %40 for @, %3A for :, %25 for %",
            ));
        }
        let mut url = Url::parse(url).map_err(|e| wrong(&format!("is none ({e})")))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(wrong("does not begin with postgres://"));
        }
        let (mut mode, mut roots, mut kept) = (None, None, Vec::new());
        let query = url.query().unwrap_or_default().to_owned();
        for option in query.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let value = || percent_decode_str(value).decode_utf8().map(Cow::into_owned);
            match name {
                "sslmode" => mode = Some(value().map_err(|_| wrong("has an sslmode that is not UTF-8"))?),
                "sslrootcert" => roots = Some(value().map_err(|_| wrong("has an sslrootcert that is not UTF-8"))?),
                _ => kept.push(option),
            }
        }
        // The others stay as they are written: a plus is a plus.
        url.set_query(Some(&kept.join("&")).filter(|kept| !kept.is_empty()).map(String::as_str));
        let config: Result<Config, _> = url.as_str().parse();
        let config = config.map_err(|_| wrong("has an option that is unknown or a value that does not fit it"))?;
        let is_local = config.get_hosts().iter().all(is_this_machine);
        let verify = match mode.as_deref() {
            None if is_local && roots.is_none() => None,
            None | Some("verify-full") => Some(Verify::Host),
            Some("verify-ca") => Some(Verify::Authority),
            Some("require") if roots.is_none() => Some(Verify::Nothing),
            Some("require") => Some(Verify::Authority),
            Some("disable") => None,
            Some(_) => {
                return Err(wrong("has an sslmode that is none of disable, require, verify-ca and verify-full"));
            }
        };
        Ok(Self { config, verify, roots })
    }
}

impl Server {
    /// Reads `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…`.
    ///
    /// Without `sslmode` certificates are verified, but for this very machine, where nothing is encrypted. `disable`,
    /// `require` (encrypted, with nobody's certificate looked at), `verify-ca` and `verify-full` are what libpq means by
    /// them. Config: the URL is none, or says what this does not know; a message never quotes it.
    pub(crate) fn new(url: &str, clock: Arc<dyn Clock>) -> Result<Self> {
        let Address { mut config, verify, roots } =
            Address::read(url).map_err(|why| Error::config(format!("the url {why}")))?;
        let tls = verify.map(|verify| Tls::new(verify, roots.as_deref())).transpose()?;
        config.ssl_mode(if tls.is_some() { SslMode::Require } else { SslMode::Disable });
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT);
        }
        config.keepalives_idle(SILENCE).keepalives_interval(ASK_AGAIN.0).keepalives_retries(ASK_AGAIN.1);
        if config.get_application_name().is_none() {
            config.application_name("cutover");
        }
        let own: Vec<String> = SESSION.iter().map(|(name, value)| format!("-c {name}={value}")).collect();
        config
            .options([config.get_options(), Some(&own.join(" "))].into_iter().flatten().collect::<Vec<_>>().join(" "));
        let place = shown(&config).into();
        Ok(Self { config, tls, place, clock })
    }

    /// Host, port and database, without who connects and by what.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Who connects.
    pub(crate) fn role(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }

    /// All that a connection needs; it shows the password to whoever asks for it.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Whether it is on this very machine.
    pub(crate) fn is_local(&self) -> bool {
        self.config.get_hosts().iter().all(is_this_machine)
    }

    /// How a connection is encrypted; `None`: it is not.
    pub(crate) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// Opens a session.
    ///
    /// Unavailable: the server does not answer, or not in time.
    pub(crate) async fn connect(&self) -> Result<Session> {
        let mut driver = JoinSet::new();
        let connected = async {
            match &self.tls {
                Some(tls) => {
                    let (client, connection) = self.config.connect(tls.clone()).await?;
                    driver.spawn(async move { connection.await.err() });
                    Ok(client)
                }
                None => {
                    let (client, connection) = self.config.connect(NoTls).await?;
                    driver.spawn(async move { connection.await.err() });
                    Ok(client)
                }
            }
        };
        let client = answered(&*self.clock, SESSION_LIMIT, &self.place, "connecting", connected).await;
        let client = client.map_err(|e| if e.kind() == ErrorKind::Unavailable { e.with_remedy(REACH) } else { e })?;
        Ok(Session { client, _driver: driver, place: Arc::clone(&self.place), clock: Arc::clone(&self.clock) })
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Server").field(&self.place).finish()
    }
}

/// A connection for statements. Dropped, it is cut.
pub(crate) struct Session {
    client: Client,
    /// Moves bytes; what fails there fails the statements too.
    _driver: JoinSet<Option<tokio_postgres::Error>>,
    place: Arc<str>,
    clock: Arc<dyn Clock>,
}

impl Session {
    /// Where it leads.
    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// The connection itself.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// The rows of a statement.
    pub(crate) async fn query(
        &self,
        statement: &(impl ToStatement + ?Sized),
        values: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        self.answer("a query", self.client.query(statement, values)).await
    }

    /// Prepares a statement that is run many times.
    pub(crate) async fn prepare(&self, statement: &str) -> Result<Statement> {
        self.answer("a query", self.client.prepare(statement)).await
    }

    /// What `work` gives, all of which sees the database as it is at one moment.
    pub(crate) async fn steadily<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
        let done = work.await;
        self.execute("COMMIT").await?;
        done
    }

    /// Runs statements that give no rows.
    pub(crate) async fn execute(&self, statements: &str) -> Result<()> {
        self.answer("a statement", self.client.batch_execute(statements)).await
    }

    /// What the server answers to something else that this connection asks.
    pub(crate) async fn answer<T>(
        &self,
        doing: &str,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        answered(&*self.clock, ANSWER, &self.place, doing, answer).await
    }
}

/// What the server at `place` answers within the time that it has.
async fn answered<T>(
    clock: &dyn Clock,
    limit: Duration,
    place: &str,
    doing: &str,
    answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T> {
    let mut answer = std::pin::pin!(answer);
    // Most rows are here already, and need no clock.
    if let Poll::Ready(answer) = futures::poll!(&mut answer) {
        return answer.map_err(|e| failed(place, doing, e));
    }
    tokio::select! {
        answer = answer => answer.map_err(|e| failed(place, doing, e)),
        () = clock.deadline(limit) => {
            Err(Error::unavailable(format!("{place}: {doing} had no answer within {} s", limit.as_secs())))
        }
    }
}

/// What a failure at `place` asks of the caller.
fn failed(place: &str, doing: &str, error: tokio_postgres::Error) -> Error {
    let (kind, said) = match error.as_db_error() {
        Some(said) => (kind(said.code()), format!("failed with {} ({})", said.message(), said.code().code())),
        None if tls::is_distrust(&error) => (
            ErrorKind::Config,
            "failed: the server's certificate is not trusted, or not its own; name its authority with sslrootcert, or say by sslmode what is wanted"
                .to_owned(),
        ),
        None if error.is_closed() => (ErrorKind::Unavailable, "ended: the connection was cut".to_owned()),
        None => (ErrorKind::Unavailable, "failed".to_owned()),
    };
    Error::new(kind, format!("{place}: {doing} {said}")).with_source(error)
}

/// What an error of the server at `place` asks of the caller, by its code and its words.
pub(crate) fn refused(place: &str, doing: &str, code: &str, message: &str) -> Error {
    Error::new(kind(&SqlState::from_code(code)), format!("{place}: {doing} failed with {message} ({code})"))
}

fn kind(code: &SqlState) -> ErrorKind {
    let text = code.code();
    match text.get(..2) {
        _ if *code == SqlState::INSUFFICIENT_PRIVILEGE => ErrorKind::Refused,
        _ if *code == SqlState::UNDEFINED_TABLE => ErrorKind::Config,
        // Who may come in, to which database, and to which schema.
        Some("28" | "3D" | "3F") => ErrorKind::Config,
        // No connection, a rollback, no room, somebody's hand, an error below the server.
        Some("08" | "40" | "53" | "55" | "57" | "58") => ErrorKind::Unavailable,
        _ => ErrorKind::Internal,
    }
}

fn is_this_machine(host: &tokio_postgres::config::Host) -> bool {
    use tokio_postgres::config::Host;
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) if name == "localhost" => true,
        Host::Tcp(name) => name.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback()),
    }
}

fn shown(config: &Config) -> String {
    use tokio_postgres::config::Host;
    let ports = config.get_ports();
    let hosts = config.get_hosts().iter().enumerate().map(|(i, host)| {
        let port = ports.get(i).or_else(|| ports.first()).copied().unwrap_or(5432);
        match host {
            Host::Tcp(name) => format!("{name}:{port}"),
            Host::Unix(path) => format!("{}:{port}", path.display()),
        }
    });
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("{}/{database}", hosts.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
