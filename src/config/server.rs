//! `[server]`: how the daemon is reached.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use super::section::{Field, Section};
use super::{Role, Secret, ServerConfig, TokenConfig, webhook};
use crate::ingest;

/// Fewer bytes could be guessed, more fit no header.
const TOKEN_BYTES: RangeInclusive<usize> = 16..=1024;
const REQUEST_BYTES: RangeInclusive<u64> = 1 << 10..=1 << 30;
/// What a request may unfold to, in times of itself.
const UNFOLDED: u64 = 4;
const LONGEST_HOST: usize = 253;

pub(super) fn read(mut server: Section<'_>) -> ServerConfig {
    let default = ServerConfig::default();
    let listen_field = server.field("listen");
    let listen = listen_field.as_ref().and_then(read_listen);
    let data_dir = server.field("data_dir").and_then(|f| f.line()).map(PathBuf::from);
    let hosts = server.field("hosts").and_then(|f| read_hosts(&f));
    let auth = server.field("auth");
    let tokens = auth.as_ref().and_then(|f| f.section()).map(read_tokens);
    let ingress = server.section("ingress").map(read_ingress);
    let webhooks = webhook::read(&mut server);
    if let (Some(field), Some(listen), None) = (&listen_field, listen, &auth)
        && !listen.ip().to_canonical().is_loopback()
        && !server.is_misspelled("auth")
    {
        field.refuse(&format!(
            "others than this machine reach this address, and without tokens whoever reaches it may do everything; add [{}.tokens.NAME], or listen at {}",
            server.path_of("auth"),
            default.listen
        ));
    }
    server.finish(&[]);
    ServerConfig {
        listen: listen.unwrap_or(default.listen),
        data_dir: data_dir.unwrap_or(default.data_dir),
        hosts: hosts.unwrap_or_default(),
        tokens: tokens.unwrap_or_default(),
        ingress: ingress.unwrap_or_default(),
        webhooks,
    }
}

fn read_listen(field: &Field<'_>) -> Option<SocketAddr> {
    field.parsed(&field.line()?, |text| {
        text.parse()
            .map_err(|_| "write an address and a port, such as \"127.0.0.1:8090\" or \"[::1]:8090\"".to_string())
    })
}

fn read_hosts(field: &Field<'_>) -> Option<Vec<String>> {
    let hosts: Vec<_> = field.items()?.iter().map(|f| f.parsed(&f.line()?, host)).collect();
    hosts.into_iter().collect()
}

/// A name as `Host` has it, in lower case.
fn host(text: &str) -> Result<String, String> {
    let is_label =
        |label: &str| !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    let is_name = text.len() <= LONGEST_HOST && text.split('.').all(is_label);
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match inside.map(str::parse::<Ipv6Addr>) {
        Some(Ok(address)) => Ok(format!("[{address}]")),
        None if is_name => Ok(text.to_ascii_lowercase()),
        _ => match text.parse::<IpAddr>() {
            Ok(address) => Err(format!("write the address in brackets, as \"[{address}]\"")),
            Err(_) => {
                Err("write a host's name alone, such as \"cutover.example.com\", without scheme, port and path"
                    .to_string())
            }
        },
    }
}

fn read_tokens(mut auth: Section<'_>) -> Vec<TokenConfig> {
    let mut read: Vec<TokenConfig> = Vec::new();
    let mut seen: Vec<(String, Secret)> = Vec::new();
    for (name, mut section) in auth.some_named("tokens", "token") {
        // A token that stands here by mistake must not be shown.
        let role = section.required("role").and_then(|f| f.hidden_word(&[Role::Read, Role::Push, Role::Admin]));
        let token = section.required("token").and_then(|field| {
            let token = read_token(&field)?;
            if let Some((other, _)) = seen.iter().find(|(_, seen)| *seen == token) {
                field.refuse(&format!(
                    "is the token of {other:?} too, and nobody could tell them apart; give each its own"
                ));
            }
            seen.push((name.clone(), token.clone()));
            Some(token)
        });
        section.finish(&[]);
        read.extend(role.zip(token).map(|(role, token)| TokenConfig { name, role, token }));
    }
    auth.finish(&[]);
    read
}

fn read_token(field: &Field<'_>) -> Option<Secret> {
    let text = field.text()?;
    if !TOKEN_BYTES.contains(&text.len()) {
        field.refuse(&format!(
            "is not between {} and {} bytes long; \"openssl rand -hex 32\" makes one",
            TOKEN_BYTES.start(),
            TOKEN_BYTES.end()
        ));
        return None;
    }
    if !text.chars().all(|c| c.is_ascii_graphic()) {
        field.refuse(
            "has a space or another character that a header cannot carry; write letters, digits and signs of ASCII",
        );
        return None;
    }
    Some(Secret::new(text))
}

fn read_ingress(mut ingress: Section<'_>) -> ingest::Limits {
    let default = ingest::Limits::default();
    let size = |f: &Field<'_>| f.within(f.size()?, REQUEST_BYTES, "1KiB and 1GiB");
    let request = ingress.field("max_request").and_then(|f| size(&f)).unwrap_or(default.request);
    let is_told = !ingress.is_misspelled("max_request");
    let line = ingress.field("max_line").and_then(|f| {
        let line = size(&f)?;
        if line > request && is_told {
            f.refuse("is more than max_request, so that no line can be as long; lower it, or raise max_request");
        }
        usize::try_from(line).ok()
    });
    ingress.finish(&[]);
    ingest::Limits {
        request,
        line: line.unwrap_or(default.line.min(usize::try_from(request).unwrap_or(usize::MAX))),
        unfolded: request * UNFOLDED,
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
