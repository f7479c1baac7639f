//! A connection in replication mode: commands one by one, then one stream of what a slot holds.
//!
//! Nothing is read ahead beyond what one call of the socket gives, so a reader that waits makes the server wait.

use std::io;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::frontend;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_postgres::config::Host;
use tokio_postgres::tls::{MakeTlsConnect, TlsConnect};

use super::evidence::Identity;
use super::message::Lsn;
use super::server::{Server, refused};
use super::tls::Tls;
use crate::error::{Error, Result};

/// How much of the socket is read at once, in bytes.
const READ: usize = 256 << 10;
/// No message of a server is longer: a value has a gigabyte at most.
const LONGEST: usize = (1 << 30) + (64 << 20);

/// What bytes go over, encrypted or not.
trait Wire: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Wire for T {}

/// A connection in replication mode.
pub(super) struct Replication {
    wire: Box<dyn Wire>,
    place: String,
    received: BytesMut,
    /// What is to be sent.
    sent: BytesMut,
}

/// What a stream gives.
#[derive(Debug)]
pub(super) enum Frame {
    /// A message of the slot's plug-in.
    Message(Bytes),
    /// Everything up to here was given.
    Alive {
        /// The end of what the server looked at.
        at: Lsn,
    },
}

/// A message of the server.
struct Packet {
    tag: u8,
    body: Bytes,
}

impl Replication {
    /// Connects. The errors name neither password nor anything else that the address hides.
    pub(super) async fn connect(server: &Server) -> Result<Self> {
        let wire = wire(server).await?;
        let place = server.place().to_owned();
        let mut connection = Self { wire, place, received: BytesMut::new(), sent: BytesMut::new() };
        connection.begin(server).await?;
        Ok(connection)
    }

    async fn begin(&mut self, server: &Server) -> Result<()> {
        let config = server.config();
        let user = config.get_user().unwrap_or_default();
        let database = config.get_dbname().unwrap_or(user);
        let parameters = [
            ("user", user),
            ("database", database),
            ("replication", "database"),
            ("client_encoding", "UTF8"),
            ("application_name", config.get_application_name().unwrap_or("cutover")),
            ("options", config.get_options().unwrap_or_default()),
        ];
        frontend::startup_message(parameters, &mut self.sent).map_err(|e| self.broken("cannot be asked", e))?;
        self.send().await?;
        let mut scram: Option<ScramSha256> = None;
        loop {
            let mut packet = self.packet().await?;
            match packet.tag {
                b'R' => self.authenticate(server, &mut packet.body, &mut scram).await?,
                b'Z' => return Ok(()),
                b'E' => return Err(self.refused(&packet.body)),
                _ => {}
            }
        }
    }

    async fn authenticate(&mut self, server: &Server, body: &mut Bytes, scram: &mut Option<ScramSha256>) -> Result<()> {
        let torn =
            || Error::unavailable(format!("{}: the server does not ask for a password as it should", self.place));
        let code = body.try_get_u32().map_err(|_| torn())?;
        if code == 0 {
            return Ok(());
        }
        let password = server.config().get_password().ok_or_else(|| {
            Error::config(format!(
                "{}: the server wants a password, and there is none in the address; add it",
                self.place
            ))
        })?;
        let scrambled =
            |e| Error::unavailable(format!("{}: the password was not exchanged", self.place)).with_source(e);
        match code {
            3 => frontend::password_message(password, &mut self.sent).map_err(scrambled)?,
            5 => {
                let salt: [u8; 4] = body.as_ref().try_into().map_err(|_| torn())?;
                let hash = md5_hash(server.config().get_user().unwrap_or_default().as_bytes(), password, salt);
                frontend::password_message(hash.as_bytes(), &mut self.sent).map_err(scrambled)?;
            }
            10 => {
                if !body.split(|byte| *byte == 0).any(|name| name == SCRAM_SHA_256.as_bytes()) {
                    return Err(Error::unavailable(format!("{}: the server offers no SCRAM-SHA-256", self.place)));
                }
                let begun = ScramSha256::new(password, ChannelBinding::unsupported());
                frontend::sasl_initial_response(SCRAM_SHA_256, begun.message(), &mut self.sent).map_err(scrambled)?;
                *scram = Some(begun);
            }
            11 => {
                let scram = scram.as_mut().ok_or_else(torn)?;
                scram.update(body).map_err(scrambled)?;
                frontend::sasl_response(scram.message(), &mut self.sent).map_err(scrambled)?;
            }
            12 => {
                let mut scram = scram.take().ok_or_else(torn)?;
                return scram.finish(body).map_err(scrambled);
            }
            other => {
                return Err(Error::refused(format!(
                    "{}: the server wants authentication of the kind {other}, which is not known here; use scram-sha-256",
                    self.place
                )));
            }
        }
        self.send().await
    }

    /// Which server and timeline it is, and which database, whose number in the cluster is given.
    pub(super) async fn identify(&mut self, database_oid: u32) -> Result<Identity> {
        let system = self.query("IDENTIFY_SYSTEM").await?;
        let cell = |at: usize| system.first().and_then(|row| row.get(at)).cloned().flatten();
        match (cell(0), cell(1).and_then(|t| t.parse().ok()), cell(3)) {
            (Some(system), Some(timeline), Some(database)) => Ok(Identity { system, timeline, database, database_oid }),
            _ => Err(Error::internal(format!("{}: the server does not say which it is", self.place))),
        }
    }

    /// Runs one command; its rows, each value as text.
    pub(super) async fn query(&mut self, command: &str) -> Result<Vec<Vec<Option<String>>>> {
        frontend::query(command, &mut self.sent).map_err(|e| self.broken("cannot be asked", e))?;
        self.send().await?;
        let (mut rows, mut failed) = (Vec::new(), None);
        loop {
            let packet = self.packet().await?;
            match packet.tag {
                b'D' => rows.push(row(packet.body).ok_or_else(|| self.garbled())?),
                b'E' => failed = Some(self.refused(&packet.body)),
                b'Z' => return failed.map_or(Ok(rows), Err),
                _ => {}
            }
        }
    }

    /// Begins the stream of `slot`, which has what `publication` has, from where the slot stands.
    pub(super) async fn start(&mut self, slot: &str, publication: &str) -> Result<()> {
        let named = format!("\"{}\"", publication.replace('"', "\"\"")).replace('\'', "''");
        let command =
            format!("START_REPLICATION SLOT \"{slot}\" LOGICAL 0/0 (proto_version '1', publication_names '{named}')");
        frontend::query(&command, &mut self.sent).map_err(|e| self.broken("cannot be asked", e))?;
        self.send().await?;
        loop {
            let packet = self.packet().await?;
            match packet.tag {
                b'W' => return Ok(()),
                b'E' => return Err(self.refused(&packet.body)),
                b'Z' => return Err(self.garbled()),
                _ => {}
            }
        }
    }

    /// The next frame of the stream. Whoever drops this future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Frame> {
        loop {
            if let Some(frame) = self.waiting()? {
                return Ok(frame);
            }
            self.read().await?;
        }
    }

    /// A frame that was read already.
    pub(super) fn waiting(&mut self) -> Result<Option<Frame>> {
        while let Some(packet) = self.whole()? {
            match packet.tag {
                b'd' => return frame(packet.body).map(Some).ok_or_else(|| self.garbled()),
                b'E' => return Err(self.refused(&packet.body)),
                b'c' | b'C' | b'Z' => {
                    return Err(Error::unavailable(format!("{}: the server ended the stream of changes", self.place)));
                }
                _ => {}
            }
        }
        Ok(None)
    }

    /// Tells the server that everything up to `safe` is safe, and asks for a sign of life. Not to be dropped before it is done.
    pub(super) async fn confirm(&mut self, safe: Lsn, micros: i64) -> Result<()> {
        self.sent.put_u8(b'd');
        self.sent.put_u32(4 + 1 + 8 * 4 + 1);
        self.sent.put_u8(b'r');
        for _ in 0..3 {
            self.sent.put_u64(safe.0);
        }
        self.sent.put_i64(micros);
        self.sent.put_u8(1);
        self.send().await
    }

    /// Ends the connection in the way that the server expects.
    pub(super) async fn end(mut self) {
        self.sent.clear();
        frontend::terminate(&mut self.sent);
        // The server finds out by itself if it is not told.
        let _ = self.send().await;
        let _ = self.wire.shutdown().await;
    }

    async fn send(&mut self) -> Result<()> {
        let sent = self.sent.split();
        let written = self.wire.write_all(&sent).await;
        let flushed = match written {
            Ok(()) => self.wire.flush().await,
            failed => failed,
        };
        flushed.map_err(|e| self.broken("is lost", e))
    }

    async fn packet(&mut self) -> Result<Packet> {
        loop {
            if let Some(packet) = self.whole()? {
                return Ok(packet);
            }
            self.read().await?;
        }
    }

    /// The next packet, if all of it was read.
    fn whole(&mut self) -> Result<Option<Packet>> {
        let Some((tag, rest)) = self.received.split_first() else { return Ok(None) };
        let Some(length) = rest.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes) as usize) else {
            return Ok(None);
        };
        let tag = *tag;
        if !(4..=LONGEST).contains(&length) {
            return Err(self.garbled());
        }
        if self.received.len() < length + 1 {
            self.received.reserve(length + 1 - self.received.len());
            return Ok(None);
        }
        let mut body = self.received.split_to(length + 1).freeze();
        body.advance(5);
        Ok(Some(Packet { tag, body }))
    }

    async fn read(&mut self) -> Result<()> {
        if self.received.capacity() - self.received.len() < READ / 4 {
            self.received.reserve(READ);
        }
        match self.wire.read_buf(&mut self.received).await {
            Ok(0) => Err(Error::unavailable(format!("{}: the server closed the connection", self.place))),
            Ok(_) => Ok(()),
            Err(e) => Err(self.broken("is lost", e)),
        }
    }

    fn broken(&self, what: &str, e: io::Error) -> Error {
        Error::unavailable(format!("{}: the connection {what}", self.place)).with_source(e)
    }

    fn refused(&self, body: &Bytes) -> Error {
        let (mut code, mut message) = (String::new(), String::new());
        for field in body.split(|byte| *byte == 0) {
            match field.split_first() {
                Some((b'C', text)) => code = String::from_utf8_lossy(text).into_owned(),
                Some((b'M', text)) => message = String::from_utf8_lossy(text).into_owned(),
                _ => {}
            }
        }
        refused(&self.place, "the replication connection", &code, &message)
    }

    fn garbled(&self) -> Error {
        Error::internal(format!("{}: the server sent what is none of its protocol", self.place))
    }
}

impl std::fmt::Debug for Replication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Replication").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Opens the way to the first of the server's hosts that can be reached.
async fn wire(server: &Server) -> Result<Box<dyn Wire>> {
    let (hosts, ports) = (server.config().get_hosts(), server.config().get_ports());
    let mut last = io::Error::other("the address names no host");
    for (i, host) in hosts.iter().enumerate() {
        let port = ports.get(i).or(ports.first()).copied().unwrap_or(5432);
        match opened(server, host, port).await {
            Ok(wire) => return Ok(wire),
            Err(e) => last = e,
        }
    }
    Err(Error::unavailable(format!("{}: connecting failed", server.place())).with_source(last))
}

async fn opened(server: &Server, host: &Host, port: u16) -> io::Result<Box<dyn Wire>> {
    let name = match host {
        Host::Unix(directory) => {
            return Ok(Box::new(UnixStream::connect(directory.join(format!(".s.PGSQL.{port}"))).await?));
        }
        Host::Tcp(name) => name,
    };
    let mut stream = TcpStream::connect((name.as_str(), port)).await?;
    stream.set_nodelay(true)?;
    let Some(tls) = server.tls() else { return Ok(Box::new(stream)) };
    let mut asked = BytesMut::new();
    frontend::ssl_request(&mut asked);
    stream.write_all(&asked).await?;
    if stream.read_u8().await? != b'S' {
        return Err(io::Error::other("the server does not encrypt; write sslmode=disable if that is meant"));
    }
    let handshake = <Tls as MakeTlsConnect<TcpStream>>::make_tls_connect(&mut tls.clone(), name)?;
    Ok(Box::new(handshake.connect(stream).await?))
}

fn row(mut body: Bytes) -> Option<Vec<Option<String>>> {
    let count = body.try_get_u16().ok()?;
    let cell = |body: &mut Bytes| {
        let length = body.try_get_i32().ok()?;
        let Ok(length) = usize::try_from(length) else { return Some(None) };
        if body.len() < length {
            return None;
        }
        String::from_utf8(body.split_to(length).to_vec()).ok().map(Some)
    };
    (0..count).map(|_| cell(&mut body)).collect()
}

fn frame(mut body: Bytes) -> Option<Frame> {
    match body.try_get_u8().ok()? {
        b'w' => {
            let header = 8 + 8 + 8;
            if body.len() < header {
                return None;
            }
            body.advance(header);
            Some(Frame::Message(body))
        }
        b'k' => {
            // Whether it wants an answer is all the same: it gets one often enough.
            Some(Frame::Alive { at: Lsn(body.try_get_u64().ok()?) })
        }
        _ => None,
    }
}
