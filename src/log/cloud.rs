//! Object stores by URI: which one, how its URI is spelled, and with which options its client is made.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as S3Key};
use object_store::azure::{AzureConfigKey as AzureKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey as GoogleKey};
use object_store::path::Path;
use object_store::{BackoffConfig, Error as StoreError, ObjectStore, RetryConfig};
use url::Url;

use super::wire::Wire;
use crate::error::{Error, Result};

/// A request is sent again for so long at most, and so often. What a caller does beyond that it decides itself.
const RETRY_TIME: Duration = Duration::from_secs(20);
const RETRIES: usize = 5;

/// The kinds of object stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Amazon S3 and what speaks its protocol.
    S3,
    /// Azure Blob Storage.
    Azure,
    /// Google Cloud Storage.
    Google,
}

impl Service {
    /// The service that `uri` names by its scheme; `None` for a local path and other schemes.
    pub fn of(uri: &str) -> Option<Self> {
        match uri.split_once("://")?.0 {
            "s3" | "s3a" => Some(Self::S3),
            "az" | "azure" | "abfs" | "abfss" => Some(Self::Azure),
            "gs" => Some(Self::Google),
            _ => None,
        }
    }

    /// Whether its client knows the option `name`, with or without the service's prefix. The bucket is the URI's matter.
    pub fn knows(self, name: &str) -> bool {
        match self {
            Self::S3 => name.parse().is_ok_and(|key: S3Key| key != S3Key::Bucket),
            Self::Azure => name.parse().is_ok_and(|key: AzureKey| key != AzureKey::ContainerName),
            Self::Google => name.parse().is_ok_and(|key: GoogleKey| key != GoogleKey::Bucket),
        }
    }

    /// The options that people need most, for suggestions.
    pub fn options(self) -> &'static [&'static str] {
        match self {
            Self::S3 => &[
                "access_key_id",
                "secret_access_key",
                "session_token",
                "region",
                "endpoint",
                "allow_http",
                "virtual_hosted_style_request",
                "role_arn",
                "web_identity_token_file",
                "skip_signature",
                "checksum_algorithm",
                "server_side_encryption",
                "sse_kms_key_id",
                "timeout",
                "connect_timeout",
                "proxy_url",
            ],
            Self::Azure => &[
                "account_name",
                "account_key",
                "sas_token",
                "client_id",
                "client_secret",
                "tenant_id",
                "federated_token_file",
                "use_azure_cli",
                "endpoint",
                "use_emulator",
                "allow_http",
                "timeout",
                "connect_timeout",
                "proxy_url",
            ],
            Self::Google => &[
                "service_account",
                "service_account_key",
                "application_credentials",
                "skip_signature",
                "base_url",
                "timeout",
                "connect_timeout",
                "proxy_url",
            ],
        }
    }
}

/// Options of an object store by their names; `Debug` hides their values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StorageOptions(BTreeMap<String, String>);

impl StorageOptions {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, String)> for StorageOptions {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(options: I) -> Self {
        Self(options.into_iter().collect())
    }
}

impl fmt::Debug for StorageOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

/// A place in an object store.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CloudPlace {
    service: Service,
    /// Scheme and authority: what the client is told.
    base: String,
    bucket: String,
    /// The table's root within the bucket.
    pub(super) prefix: Path,
    /// The same as a URL that ends with a slash.
    pub(super) url: Url,
}

impl CloudPlace {
    /// Reads a URI of one of the services; otherwise what is wrong with it, which does not quote it.
    pub(super) fn parse(uri: &str) -> Result<Self, String> {
        let (scheme, rest) = uri.split_once("://").ok_or("has no scheme")?;
        let service = Service::of(uri).ok_or("is not in an object store")?;
        if rest.contains(['?', '#']) {
            return Err(
                "has a query or fragment; write the plain place of the table, and credentials as options".into()
            );
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (bucket, host) = match authority.split_once('@') {
            Some((container, host)) if scheme.starts_with("abfs") => (container, Some(host)),
            Some(_) => return Err("has credentials in it; give them as options or by the environment".into()),
            None => (authority, None),
        };
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '$'));
        if bucket.is_empty() {
            return Err("has no bucket or container behind ://".into());
        }
        if !plain(bucket) || !host.is_none_or(|host| !host.is_empty() && plain(host)) {
            return Err("has a bucket or container that is no name of one; write letters, digits, - and .".into());
        }
        if path.ends_with('/') {
            return Err("ends with a slash; write it without".into());
        }
        if path.starts_with('/') || path.contains("//") {
            return Err("has a doubled slash; write one".into());
        }
        if path.split('/').any(|part| matches!(part, "." | "..")) {
            return Err("has . or .. as a part of its path; write it without".into());
        }
        if path.contains(['%', '\\']) || path.chars().any(char::is_control) {
            return Err(
                "has a %, a backslash or a control character, which readers take for something else; choose another"
                    .into(),
            );
        }
        let unusable = |_| "has a path that cannot be kept in an object store; choose another";
        let prefix = Path::parse(path).map_err(|e| unusable(e.to_string()))?;
        let base = format!("{scheme}://{authority}");
        let slash = if path.is_empty() { "" } else { "/" };
        let url = Url::parse(&format!("{base}/{path}{slash}")).map_err(|e| unusable(e.to_string()))?;
        // What readers make of the URL must be the same objects.
        if Path::from_url_path(url.path()).ok().as_ref() != Some(&prefix) {
            return Err(unusable(String::new()).into());
        }
        Ok(Self { service, base, bucket: bucket.to_string(), prefix, url })
    }

    /// The bucket or container, by the service's own client; `environment` says what `options` leave open.
    pub(super) fn bucket(
        &self,
        options: &StorageOptions,
        environment: impl Iterator<Item = (String, String)>,
    ) -> Result<Arc<dyn ObjectStore>> {
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(5),
                base: 2.0,
            },
            max_retries: RETRIES,
            retry_timeout: RETRY_TIME,
        };
        let environment: Vec<(String, String)> = environment.filter(|(_, value)| !value.is_empty()).collect();
        let made: Result<Arc<dyn ObjectStore>, StoreError> = match self.service {
            Service::S3 => {
                let chosen = self.choose(options, &environment, "AWS_", &S3_RIVALS)?;
                check_plain_http(&chosen, &[S3Key::Endpoint, S3Key::S3Endpoint], "allow_http")?;
                let builder = AmazonS3Builder::new().with_retry(retry).with_http_connector(Wire::default());
                let builder = chosen.into_iter().fold(builder, |b, (key, value)| b.with_config(key, value));
                builder.with_bucket_name(&self.bucket).build().map(|store| Arc::new(store) as _)
            }
            Service::Azure => {
                let chosen = self.choose(options, &environment, "AZURE_", &AZURE_RIVALS)?;
                check_plain_http(&chosen, &[AzureKey::Endpoint], "allow_http")?;
                let builder = MicrosoftAzureBuilder::new().with_retry(retry).with_http_connector(Wire::default());
                let builder = chosen.into_iter().fold(builder, |b, (key, value)| b.with_config(key, value));
                builder.with_url(&self.base).build().map(|store| Arc::new(store) as _)
            }
            Service::Google => {
                let chosen = self.choose(options, &environment, "GOOGLE_", &GOOGLE_RIVALS)?;
                let builder = GoogleCloudStorageBuilder::new().with_retry(retry).with_http_connector(Wire::default());
                let builder = chosen.into_iter().fold(builder, |b, (key, value)| b.with_config(key, value));
                builder.with_bucket_name(&self.bucket).build().map(|store| Arc::new(store) as _)
            }
        };
        made.map_err(|error| {
            let failed = Error::config(
                "the options of the object store, or what the environment says of it, do not fit; correct them",
            );
            // The client quotes values that it does not understand, and any of them may be a secret.
            let said = causes(&error);
            let values = options.0.values().chain(environment.iter().map(|(_, value)| value));
            let quotes = values.into_iter().any(|value| !value.is_empty() && said.contains(value.as_str()));
            if quotes { failed } else { failed.with_source(error) }
        })
    }

    /// The client's settings: each option, and of the environment what no option says or rules out.
    fn choose<K: FromStr + PartialEq + Copy>(
        &self,
        options: &StorageOptions,
        environment: &[(String, String)],
        prefix: &str,
        rivals: &[Rivals<K>],
    ) -> Result<Vec<(K, String)>> {
        let mut given: Vec<(K, String)> = Vec::new();
        for (name, value) in &options.0 {
            let key = Some(name.to_ascii_lowercase()).filter(|name| self.service.knows(name));
            let key: K = key.and_then(|name| name.parse().ok()).ok_or_else(|| {
                let known = self.service.options().join(", ");
                // What stands there may be a secret that lacks its name.
                let is_letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
                let is_word = name.len() <= 40 && name.bytes().all(is_letter);
                let what = if is_word { format!("option {name:?}") } else { "option before the first \"=\"".into() };
                Error::config(format!("the storage {what} is not known; known are {known}, and others"))
            })?;
            if given.iter().any(|(other, _)| *other == key) {
                return Err(Error::config(format!(
                    "the storage option {name:?} is there twice under two names; remove one"
                )));
            }
            given.push((key, value.clone()));
        }
        let ruled_out = |key: K| {
            let is_given = |key: &K| given.iter().any(|(other, _)| other == key);
            is_given(&key) || rivals.iter().any(|r| r.taken.contains(&key) && r.by.iter().any(is_given))
        };
        let named = environment.iter().filter_map(|(name, value)| {
            let name = if name == "IDENTITY_ENDPOINT" { "AZURE_IDENTITY_ENDPOINT" } else { name };
            let name = Some(name).filter(|name| name.starts_with(prefix))?.to_ascii_lowercase();
            let key: K = Some(name).filter(|name| self.service.knows(name))?.parse().ok()?;
            (!ruled_out(key)).then(|| (key, value.clone()))
        });
        let named: Vec<(K, String)> = named.collect();
        Ok(named.into_iter().chain(given).collect())
    }
}

/// What the environment says by any of `taken` does not count beside an option of `by`: the client would prefer it, or
/// mix the two.
struct Rivals<K: 'static> {
    by: &'static [K],
    taken: &'static [K],
}

const S3_KEYS: &[S3Key] = &[S3Key::AccessKeyId, S3Key::SecretAccessKey, S3Key::Token];
const S3_REGIONS: &[S3Key] = &[S3Key::Region, S3Key::DefaultRegion];
const S3_ENDPOINTS: &[S3Key] = &[S3Key::Endpoint, S3Key::S3Endpoint];
const S3_ROLES: &[S3Key] = &[
    S3Key::WebIdentityTokenFile,
    S3Key::RoleArn,
    S3Key::ContainerCredentialsRelativeUri,
    S3Key::ContainerCredentialsFullUri,
];
const S3_RIVALS: [Rivals<S3Key>; 4] = [
    Rivals { by: S3_KEYS, taken: S3_KEYS },
    Rivals { by: S3_ROLES, taken: S3_KEYS },
    Rivals { by: S3_REGIONS, taken: S3_REGIONS },
    Rivals { by: S3_ENDPOINTS, taken: S3_ENDPOINTS },
];

const AZURE_KEYS: &[AzureKey] = &[AzureKey::AccessKey, AzureKey::SasKey, AzureKey::Token];
const AZURE_ROLES: &[AzureKey] = &[
    AzureKey::ClientId,
    AzureKey::ClientSecret,
    AzureKey::FederatedTokenFile,
    AzureKey::UseAzureCli,
    AzureKey::MsiEndpoint,
    AzureKey::ObjectId,
    AzureKey::MsiResourceId,
];
const AZURE_RIVALS: [Rivals<AzureKey>; 3] = [
    Rivals { by: AZURE_KEYS, taken: AZURE_KEYS },
    Rivals { by: AZURE_KEYS, taken: AZURE_ROLES },
    Rivals { by: AZURE_ROLES, taken: AZURE_KEYS },
];

const GOOGLE_KEYS: &[GoogleKey] =
    &[GoogleKey::ServiceAccount, GoogleKey::ServiceAccountKey, GoogleKey::ApplicationCredentials];
const GOOGLE_RIVALS: [Rivals<GoogleKey>; 1] = [Rivals { by: GOOGLE_KEYS, taken: GOOGLE_KEYS }];

/// Credentials and rows go in the clear only where somebody said so.
fn check_plain_http<K: FromStr + PartialEq>(chosen: &[(K, String)], endpoints: &[K], allow: &str) -> Result<()> {
    let is_plain = chosen.iter().any(|(key, value)| endpoints.contains(key) && value.starts_with("http://"));
    let allow: Option<K> = allow.parse().ok();
    let is_allowed = chosen.iter().any(|(key, value)| allow.as_ref() == Some(key) && value != "false");
    if is_plain && !is_allowed {
        return Err(Error::config(
            "the object store's endpoint is http://, which sends everything in the clear; write https://, or set the option allow_http = \"true\" (the variable AWS_ALLOW_HTTP or AZURE_ALLOW_HTTP)",
        ));
    }
    Ok(())
}

/// An error's words with those of its causes.
fn causes(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        said.push_str(&source.to_string());
        next = source.source();
    }
    said
}

#[cfg(test)]
#[path = "cloud_tests.rs"]
mod tests;
