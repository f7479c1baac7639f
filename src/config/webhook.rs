//! `[server.webhooks.NAME]`: who is told of events.

use std::ops::RangeInclusive;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use url::Url;

use super::section::{Field, Section};
use super::{Secret, WebhookConfig};
use crate::events::Kind;

/// What Standard Webhooks ask of a secret.
const SECRET_PREFIX: &str = "whsec_";
const SECRET_BYTES: RangeInclusive<usize> = 24..=64;

pub(super) fn read(server: &mut Section<'_>) -> Vec<WebhookConfig> {
    let mut read = Vec::new();
    for (name, mut section) in server.named("webhooks") {
        let url = section.required("url").and_then(|f| read_url(&f));
        let events = section.field("events").map(|f| read_events(&f));
        let secret = section.required("secret").and_then(|f| read_secret(&f));
        section.finish(&[]);
        let events = events.unwrap_or_else(|| Some(default_events()));
        if let (Some((url, host)), Some(events), Some(secret)) = (url, events, secret) {
            read.push(WebhookConfig { name, url, host, events, secret });
        }
    }
    read
}

/// All but the commits of changes, and what clients say to have, of which there is much.
pub(super) fn default_events() -> Vec<Kind> {
    Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::Appended | Kind::Acknowledged)).collect()
}

/// The address, which may hold a secret, and its host, which does not.
fn read_url(field: &Field<'_>) -> Option<(Secret, String)> {
    let text = field.line()?;
    let refuse = |message: &str| {
        field.refuse(message);
        None
    };
    let Ok(url) = Url::parse(&text) else { return refuse("is no URL; write one such as \"https://example.com/hook\"") };
    if !matches!(url.scheme(), "https" | "http") {
        return refuse("is neither https nor http; write one such as \"https://example.com/hook\"");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("has a user or password in it; the secret signs what is sent, so take them out");
    }
    if url.fragment().is_some() {
        return refuse("has a fragment, which is never sent; take it out");
    }
    let host = url.host_str()?.to_owned();
    let host = url.port().map_or(host.clone(), |port| format!("{host}:{port}"));
    Some((Secret::new(url.as_str()), host))
}

fn read_events(field: &Field<'_>) -> Option<Vec<Kind>> {
    let words = field.items()?;
    if words.is_empty() {
        field.refuse("is empty; name events, or leave the key out for all but \"appended\"");
        return None;
    }
    words.iter().map(|word| word.hidden_word(&Kind::ALL)).collect::<Vec<_>>().into_iter().collect()
}

/// The bytes of the key.
fn read_secret(field: &Field<'_>) -> Option<Secret> {
    let text = field.text()?;
    let key = text.strip_prefix(SECRET_PREFIX).and_then(|rest| STANDARD.decode(rest).ok());
    if !key.is_some_and(|key| SECRET_BYTES.contains(&key.len())) {
        field.refuse(&format!(
            "is not \"{SECRET_PREFIX}\" and {} to {} bytes in base64 behind it; \"openssl rand -base64 32\" makes such bytes",
            SECRET_BYTES.start(),
            SECRET_BYTES.end()
        ));
        return None;
    }
    Some(Secret::new(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{SMALL, check, load};

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn hooks(lines: &str) -> Vec<WebhookConfig> {
        load(&format!("[server.webhooks.ops]\n{lines}\n{SMALL}")).unwrap().server.webhooks
    }

    #[test]
    fn a_webhook_is_told_of_all_but_commits_where_it_does_not_say() {
        let url = "url = \"https://example.com:8443/a?b=c\"";
        let read = hooks(&format!("{url}\nsecret = {SECRET:?}"));
        assert_eq!((read[0].name.as_str(), read[0].host.as_str()), ("ops", "example.com:8443"));
        assert_eq!(read[0].url.expose(), "https://example.com:8443/a?b=c");
        assert_eq!(read[0].events.len(), Kind::ALL.len() - 2);
        assert!(!read[0].events.contains(&Kind::Appended));
        let read = hooks(&format!("{url}\nsecret = {SECRET:?}\nevents = [\"appended\", \"continuity_lost\"]"));
        assert_eq!(read[0].events, [Kind::Appended, Kind::ContinuityLost]);
        let shown = format!("{read:?}");
        assert!(!shown.contains("MfKQ") && !shown.contains("b=c"), "{shown}");
    }

    #[test]
    fn what_is_wrong_with_a_webhook_is_said_and_its_secrets_are_not() {
        let wrong = |lines: &str, expected: &str| {
            check("", &format!("[server.webhooks.ops]\n{lines}\n"), &[&format!("cutover.toml:{expected}")]);
        };
        let url = "url = \"http://localhost/\"";
        wrong(
            &format!("url = \"ftp://h/\"\nsecret = {SECRET:?}"),
            "2:7: server.webhooks.ops.url: is neither https nor http; write one such as \"https://example.com/hook\"",
        );
        wrong(
            &format!("url = \"https://canary:x@h/\"\nsecret = {SECRET:?}"),
            "2:7: server.webhooks.ops.url: has a user or password in it; the secret signs what is sent, so take them out",
        );
        wrong(
            &format!("{url}\nsecret = \"whsec_canary\""),
            "3:10: server.webhooks.ops.secret: is not \"whsec_\" and 24 to 64 bytes in base64 behind it; \"openssl rand -base64 32\" makes such bytes",
        );
        wrong(
            &format!("{url}\nsecret = {SECRET:?}\nevents = [\"appendet\"]"),
            "4:11: server.webhooks.ops.events[0]: the value is not known; did you mean \"appended\"?",
        );
        wrong(
            &format!("{url}\nsecret = {SECRET:?}\nevents = []"),
            "4:10: server.webhooks.ops.events: is empty; name events, or leave the key out for all but \"appended\"",
        );
        wrong(url, "1:18: server.webhooks.ops: has no \"secret\"; add it");
    }
}
