//! A local S3 server, started once for all tests, and as much HTTP as is needed to talk to it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::{Arc, Barrier, OnceLock};

use cutover::log::StorageOptions;

use crate::program::Readers;

pub(crate) const BUCKET: &str = "lake";
/// It believes any signature; without one it takes a request for another service's.
const SIGNED: &str = "authorization: AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=none\r\n";

/// The server; it ends with this process, whose end its stdin is.
pub(crate) struct Server {
    pub(crate) port: u16,
    _child: Child,
    _stdin: ChildStdin,
}

impl Server {
    /// The server of this process, once it was seen to let one of several writers win; without an interpreter, says that
    /// `test` is skipped.
    pub(crate) fn find(test: &str) -> Option<&'static Self> {
        static SERVER: OnceLock<Server> = OnceLock::new();
        let readers = Readers::find(test)?;
        Some(SERVER.get_or_init(|| {
            let server = Self::start(&readers);
            server.race();
            server
        }))
    }

    fn start(readers: &Readers) -> Self {
        let mut command = readers.command("s3.py", &[BUCKET]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let port = port.trim().parse().unwrap_or_else(|_| panic!("the S3 server did not start: {port:?}"));
        Self { port, _stdin: child.stdin.take().unwrap(), _child: child }
    }

    /// A stand-in with two winners would prove nothing about writers.
    fn race(&self) {
        const WRITERS: usize = 8;
        for round in 0..10 {
            let start = Arc::new(Barrier::new(WRITERS));
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (start, port) = (Arc::clone(&start), self.port);
                    std::thread::spawn(move || {
                        start.wait();
                        let path = format!("/{BUCKET}/race/{round}");
                        call(port, "PUT", &path, "if-none-match: *\r\n", format!("{writer}").as_bytes()).status
                    })
                })
                .collect();
            let statuses: Vec<u16> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
            let winners = statuses.iter().filter(|status| **status == 200).count();
            assert_eq!(winners, 1, "the S3 server has not one winner in round {round}: {statuses:?}");
        }
    }

    /// The options by which a client reaches the server, or a proxy of it, at `port`.
    pub(crate) fn options(port: u16) -> Vec<(&'static str, String)> {
        vec![
            ("endpoint", format!("http://127.0.0.1:{port}")),
            ("allow_http", "true".into()),
            ("access_key_id", "test".into()),
            ("secret_access_key", "test".into()),
            ("region", "us-east-1".into()),
        ]
    }

    /// The same as variables of the environment.
    pub(crate) fn environment(port: u16) -> Vec<(String, String)> {
        let variable = |name: &str| match name {
            "endpoint" => "AWS_ENDPOINT_URL".to_string(),
            other => format!("AWS_{}", other.to_uppercase()),
        };
        Self::options(port).into_iter().map(|(name, value)| (variable(name), value)).collect()
    }

    /// An object's bytes; `None` when there is none.
    pub(crate) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let answer = call(self.port, "GET", &format!("/{BUCKET}/{key}"), "", b"");
        (answer.status == 200).then_some(answer.body)
    }

    /// The keys below `prefix`, in order.
    pub(crate) fn keys(&self, prefix: &str) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        loop {
            let after = keys.last().map(|key| format!("&start-after={key}")).unwrap_or_default();
            let page = self.text(&format!("/{BUCKET}?list-type=2&prefix={prefix}{after}"));
            keys.extend(page.split("<Key>").skip(1).map(|rest| rest.split('<').next().unwrap().to_string()));
            if !page.contains("<IsTruncated>true") {
                return keys;
            }
        }
    }

    /// How many uploads in parts neither ended nor were given up.
    pub(crate) fn unfinished_uploads(&self, prefix: &str) -> usize {
        self.text(&format!("/{BUCKET}?uploads")).matches(&format!("<Key>{prefix}")).count()
    }

    fn text(&self, path: &str) -> String {
        String::from_utf8(call(self.port, "GET", path, "", b"").body).unwrap()
    }
}

pub(crate) fn storage(options: &[(&'static str, String)]) -> StorageOptions {
    options.iter().map(|(name, value)| ((*name).to_string(), value.clone())).collect()
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// One request on a connection of its own.
pub(crate) fn call(port: u16, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n{SIGNED}{headers}content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let answer = exchange(port, &[head.as_bytes(), body].concat()).unwrap();
    let end = head_end(&answer).unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).to_string();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, body: answer[end..].to_vec() }
}

/// Sends a whole request that asks for the connection's end, and reads until then.
pub(crate) fn exchange(port: u16, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    // The peer closed it before.
    let _ = stream.shutdown(Shutdown::Both);
    Ok(answer)
}

/// Where the body begins.
pub(crate) fn head_end(message: &[u8]) -> Option<usize> {
    message.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4)
}
