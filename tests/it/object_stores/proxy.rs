//! A proxy between a client and the S3 server that breaks the requests that a test names.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::server::{exchange, head_end};

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Act {
    /// It does not reach the server, and is answered with this status and code.
    Answer(u16, &'static str),
    /// It does not reach the server, and has no answer.
    Hang,
    /// The server does it, and the answer is this status and code.
    Done(u16, &'static str),
    /// The server does it, and the connection ends.
    DoneDrop,
    /// The server does it, and there is no answer.
    DoneHang,
    /// It is answered as timed out; the server does it right after the next read of the same object.
    Late,
    /// Half of the answer's body comes.
    Truncated,
    /// The server does it without its condition.
    Deaf,
}

struct Rule {
    method: &'static str,
    part: String,
    act: Act,
    left: usize,
}

#[derive(Default)]
struct Plan {
    rules: Vec<Rule>,
    late: Vec<(String, Vec<u8>)>,
}

struct Shared {
    server: u16,
    plan: Mutex<Plan>,
    fired: AtomicUsize,
    is_over: AtomicBool,
    /// Connections without an answer, kept open.
    hung: Mutex<Vec<TcpStream>>,
}

/// A proxy on a port of its own; it ends when it is dropped.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    pub(crate) fn before(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            server,
            plan: Mutex::default(),
            fired: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            hung: Mutex::default(),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let (serving, stream) = (Arc::clone(&serving), stream.unwrap());
                // A client that goes away is its own matter.
                std::thread::spawn(move || serving.serve(stream));
            }
        });
        Self { port, shared }
    }

    /// Breaks the next `times` requests with `method` whose path, query included, has `part` in it.
    pub(crate) fn breaks(&self, method: &'static str, part: impl Into<String>, act: Act, times: usize) {
        self.shared.plan.lock().unwrap().rules.push(Rule { method, part: part.into(), act, left: times });
    }

    /// No request is broken from here on.
    pub(crate) fn mends(&self) {
        self.shared.plan.lock().unwrap().rules.clear();
    }

    /// How many requests were broken.
    pub(crate) fn fired(&self) -> usize {
        self.shared.fired.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.shared.hung.lock().unwrap().clear();
        // Wakes the listener.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    /// One request of a connection, which ends behind it.
    fn serve(&self, mut stream: TcpStream) -> Option<()> {
        let (head, request) = read_request(&mut stream)?;
        let mut words = head.split(' ');
        let (method, path) = (words.next()?.to_string(), words.next()?.to_string());
        let act = {
            let mut plan = self.plan.lock().unwrap();
            let rule = plan.rules.iter_mut().find(|r| r.left > 0 && r.method == method && path.contains(&r.part));
            rule.map(|rule| {
                rule.left -= 1;
                rule.act
            })
        };
        if act.is_some() {
            self.fired.fetch_add(1, Ordering::Relaxed);
        }
        let reply = match act {
            None => self.forward(&request)?,
            Some(Act::Answer(status, code)) => answer(status, code),
            Some(Act::Done(status, code)) => {
                self.forward(&request)?;
                answer(status, code)
            }
            Some(Act::DoneDrop) => {
                self.forward(&request)?;
                // Ends without an answer.
                let _ = stream.shutdown(Shutdown::Both);
                return None;
            }
            Some(act @ (Act::Hang | Act::DoneHang)) => {
                if act == Act::DoneHang {
                    self.forward(&request)?;
                }
                self.hung.lock().unwrap().push(stream);
                return None;
            }
            Some(Act::Late) => {
                self.plan.lock().unwrap().late.push((path.clone(), request));
                answer(400, "RequestTimeout")
            }
            Some(Act::Truncated) => {
                let whole = self.forward(&request)?;
                let body = head_end(&whole)?;
                whole[..body + (whole.len() - body) / 2].to_vec()
            }
            Some(Act::Deaf) => self.forward(&without_condition(&request))?,
        };
        if act.is_none() && matches!(method.as_str(), "GET" | "HEAD") {
            let late: Vec<_> = self.plan.lock().unwrap().late.extract_if(.., |(of, _)| *of == path).collect();
            for (_, request) in late {
                self.forward(&request)?;
            }
        }
        stream.write_all(&reply).ok()
    }

    fn forward(&self, request: &[u8]) -> Option<Vec<u8>> {
        exchange(self.server, request).ok()
    }
}

/// A request that asks for the connection's end, and its first line.
fn read_request(stream: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    let (head, length) = loop {
        if let Some(end) = head_end(&bytes) {
            let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
            let length = header(&head, "content-length").and_then(|n| n.parse().ok()).unwrap_or(0);
            break (head, end + length);
        }
        read_more(stream, &mut buffer, &mut bytes)?;
    };
    while bytes.len() < length {
        read_more(stream, &mut buffer, &mut bytes)?;
    }
    let kept = head.trim_end().lines().filter(|line| !line.to_lowercase().starts_with("connection:"));
    let closing = format!("{}\r\nconnection: close\r\n\r\n", kept.collect::<Vec<_>>().join("\r\n"));
    let body = head.len();
    Some((head.lines().next()?.to_string(), [closing.as_bytes(), &bytes[body..]].concat()))
}

/// Reads what comes; `None` at the stream's end.
fn read_more(stream: &mut TcpStream, buffer: &mut [u8], bytes: &mut Vec<u8>) -> Option<()> {
    let read = stream.read(buffer).ok()?;
    bytes.extend_from_slice(&buffer[..read]);
    (read > 0).then_some(())
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(n, _)| n.eq_ignore_ascii_case(name))
        .map(|(_, v)| v.trim())
}

fn without_condition(request: &[u8]) -> Vec<u8> {
    let end = head_end(request).unwrap();
    let head = String::from_utf8(request[..end].to_vec()).unwrap();
    let kept = head.trim_end().lines().filter(|line| !line.to_lowercase().starts_with("if-none-match:"));
    [format!("{}\r\n\r\n", kept.collect::<Vec<_>>().join("\r\n")).as_bytes(), &request[end..]].concat()
}

fn answer(status: u16, code: &str) -> Vec<u8> {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>broken by a test</Message></Error>");
    format!("HTTP/1.1 {status} Broken\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
        .into_bytes()
}
