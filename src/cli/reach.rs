//! Where the daemon is, and what it is told to let the command in.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use url::Url;

use super::Session;
use super::args::CONFIG;
use crate::config::Secret;
use crate::daemon;
use crate::error::{Error, Result};

const DEFAULT_URL: &str = "http://127.0.0.1:8090";
/// More than any token has.
const LARGEST_TOKEN: u64 = 64 << 10;

/// How a daemon is reached.
#[derive(Debug)]
pub(super) struct Reach {
    /// The URL above all of its paths.
    pub(super) url: Url,
    /// The token that it wants, if it wants one.
    pub(super) token: Option<Secret>,
    /// The options that lead there once more, for a command that helps.
    pub(super) options: String,
}

impl Reach {
    /// As the options say; without `--url`, where the configuration has its daemon listen.
    ///
    /// To be called on the program's first thread, since it may read the configuration.
    pub(super) fn of(session: &Session) -> Result<Self> {
        if let Some(url) = &session.global.url {
            return Self::new(parse(url)?, session);
        }
        let path = &session.global.config;
        match std::fs::metadata(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                if path != Path::new(CONFIG) {
                    let shown = path.display();
                    session.talk.line(&format!("there is no configuration {shown}, and {DEFAULT_URL} is asked"));
                }
                return Self::new(parse(DEFAULT_URL)?, session);
            }
            _ => {}
        }
        match daemon::load(path, &[]) {
            Ok(config) => Self::listening(config.server.listen, session),
            // A daemon goes on with what it has loaded while its file is being edited.
            Err(error) => {
                let first = error.message().lines().next().unwrap_or_default();
                session.talk.line(&format!("the configuration is left out, and {DEFAULT_URL} is asked: {first}"));
                Self::new(parse(DEFAULT_URL)?, session)
            }
        }
    }

    /// The daemon that listens at `listen` of this machine, or where `--url` says.
    pub(super) fn listening(listen: SocketAddr, session: &Session) -> Result<Self> {
        let url = match &session.global.url {
            Some(url) => parse(url)?,
            None => at(listen)?,
        };
        Self::new(url, session)
    }

    fn new(url: Url, session: &Session) -> Result<Self> {
        let token = session.global.token_file.as_deref().map(read_token).transpose()?;
        let config = &session.global.config;
        // A URL may hold a password.
        let options = match &session.global.url {
            None if config != Path::new(CONFIG) => format!(" -c {}", config.display()),
            _ => String::new(),
        };
        Ok(Self { url, token, options })
    }
}

fn parse(text: &str) -> Result<Url> {
    // A URL may hold a password, so none is shown.
    let wrong = |why: &str| Error::config(format!("the daemon's URL {why}; write one like {DEFAULT_URL}"));
    let url = Url::parse(text).map_err(|e| wrong("is none").with_source(e))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(wrong("is not of http or https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("holds credentials; a token goes into a file for --token-file"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("has a query or a fragment"));
    }
    Ok(url)
}

/// Who listens at every address is reached at the loopback's.
fn at(listen: SocketAddr) -> Result<Url> {
    if listen.port() == 0 {
        return Err(Error::config("the daemon listens at any free port; say by --url which one it got"));
    }
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    parse(&format!("http://{}", SocketAddr::new(ip, listen.port())))
}

fn read_token(path: &Path) -> Result<Secret> {
    let shown = path.display();
    let unread = |e| Error::config(format!("the token file {shown} cannot be read")).with_source(e);
    let file = File::open(path).map_err(unread)?;
    if file.metadata().map_err(unread)?.mode() & 0o007 != 0 {
        return Err(Error::config(format!(
            "the token file {shown} is open to everybody; take that away: chmod o= {shown}"
        )));
    }
    let mut text = String::new();
    file.take(LARGEST_TOKEN).read_to_string(&mut text).map_err(unread)?;
    let token = text.trim();
    if token.is_empty() || !token.chars().all(|c| c.is_ascii_graphic()) {
        return Err(Error::config(format!("the token file {shown} holds no token; write it there, and nothing else")));
    }
    Ok(Secret::new(token))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::cli::fake_daemon::session;
    use crate::error::ErrorKind;

    #[test]
    fn a_daemon_is_where_the_option_or_the_configuration_says() {
        let missing = "status -c none.toml";
        assert_eq!(Reach::of(&session(missing)).unwrap().url.as_str(), "http://127.0.0.1:8090/");
        let named = format!("{missing} --url https://cutover.example/base");
        assert_eq!(Reach::of(&session(&named)).unwrap().url.as_str(), "https://cutover.example/base");
        for (listen, expected) in [
            ("0.0.0.0:9000", "http://127.0.0.1:9000/"),
            ("[::]:9000", "http://[::1]:9000/"),
            ("10.1.2.3:9000", "http://10.1.2.3:9000/"),
        ] {
            let reach = Reach::listening(listen.parse().unwrap(), &session(missing)).unwrap();
            assert_eq!(reach.url.as_str(), expected);
        }
        Reach::listening("127.0.0.1:0".parse().unwrap(), &session(missing)).unwrap_err();
    }

    #[test]
    fn urls_that_are_none_are_refused_and_not_shown() {
        for url in ["nonsense", "ftp://x/", "http://u:CANARY@x/", "http://x/?CANARY", "http://x/#CANARY", "file:///x"] {
            let refused = parse(url).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Config, "{url}");
            assert!(!format!("{refused:?}").contains("CANARY"), "{refused:?}");
        }
    }

    #[test]
    fn a_token_that_everybody_can_read_is_none() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("token");
        fs::write(&path, "secret-1\n").unwrap();
        for (mode, is_taken) in [(0o600, true), (0o640, true), (0o644, false), (0o602, false)] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let read = read_token(&path);
            assert_eq!(read.is_ok(), is_taken, "{mode:o}");
            assert_eq!(read.ok().map(|t| t.expose().to_string()), is_taken.then(|| "secret-1".to_string()));
        }
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        for text in ["", " \n", "two words", "ä"] {
            fs::write(&path, text).unwrap();
            read_token(&path).unwrap_err();
        }
        read_token(&home.path().join("none")).unwrap_err();
    }
}
