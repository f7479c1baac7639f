//! What an object store's answers mean beyond what its client makes of them.
//!
//! The client knows an answer by its status alone: a bucket that does not exist looks like an object that does not, and
//! an expired token like a passing failure. The code in the answer tells them apart.

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

use crate::store::{Denial, Denied};

/// Where machines in clouds ask for their own credentials.
const METADATA_HOSTS: [&str; 4] = ["169.254.169.254", "169.254.170.2", "fd00:ec2::254", "metadata.google.internal"];

/// Connects as ever, and reads the answers by which a store refuses for good.
#[derive(Debug, Default)]
pub(super) struct Wire {
    inner: ReqwestConnector,
}

impl HttpConnector for Wire {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Line { client: self.inner.connect(options)? }))
    }
}

#[derive(Debug)]
struct Line {
    client: HttpClient,
}

#[async_trait]
impl HttpService for Line {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let host = uri.host().unwrap_or_default();
        // The query may hold a signature.
        let asked = || format!("{method} {}://{}{}", uri.scheme_str().unwrap_or("https"), host, uri.path());
        let of_machine = METADATA_HOSTS.contains(&host.trim_matches(['[', ']']));
        let answered = self.client.execute(request).await;
        if of_machine && answered.as_ref().map_or(true, |r| matches!(r.status().as_u16(), 400..=499)) {
            let (kind, answer) = match &answered {
                Ok(response) => (HttpErrorKind::Unknown, format!("{}: {}", asked(), response.status())),
                Err(error) => (error.kind(), format!("{}: {error}", asked())),
            };
            return Err(HttpError::new(kind, Denied { denial: Denial::NoCredentials, answer }));
        }
        let response = answered?;
        let status = response.status();
        if !matches!(status.as_u16(), 301 | 307 | 308 | 400 | 401 | 403 | 404 | 501) {
            return Ok(response);
        }
        let header = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let (named, region) = (header("x-ms-error-code"), header("x-amz-bucket-region"));
        let (parts, body) = response.into_parts();
        let body = body.bytes().await?;
        let code = named.or_else(|| code_in(&body)).unwrap_or_default();
        // An answer to HEAD has no body; without one S3 answers 400 to credentials alone.
        let meant = match (status.as_u16(), method.as_str()) {
            (400, "HEAD") => Some(Denial::Credentials),
            (status, _) => meaning(status, &code),
        };
        match meant {
            Some(denial) => {
                let mut answer = format!("{}: {status} {code}", asked()).trim_end().to_string();
                if let Some(region) = region.filter(|_| denial == Denial::Region) {
                    answer.push_str(&format!(", the bucket is in {region}"));
                }
                Err(HttpError::new(HttpErrorKind::Unknown, Denied { denial, answer }))
            }
            None => Ok(HttpResponse::from_parts(parts, body.into())),
        }
    }
}

/// The `Code` of an error in XML.
fn code_in(body: &[u8]) -> Option<String> {
    let (_, rest) = std::str::from_utf8(body).ok()?.split_once("<Code>")?;
    rest.split_once("</Code>").map(|(code, _)| code.trim().to_string())
}

/// What a status with a code means, where asking again is pointless.
fn meaning(status: u16, code: &str) -> Option<Denial> {
    Some(match (status, code) {
        (_, "NoSuchBucket" | "ContainerNotFound") => Denial::NoBucket,
        (_, "ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired") => Denial::Expired,
        (
            _,
            "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "InvalidToken"
            | "InvalidIdentityToken"
            | "AuthenticationFailed"
            | "InvalidAuthenticationInfo"
            | "NoAuthenticationInformation",
        ) => Denial::Credentials,
        (_, "RequestTimeTooSkewed") => Denial::Clock,
        (301 | 307 | 308, _) | (_, "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException") => {
            Denial::Region
        }
        (401, _) => Denial::Credentials,
        (403, _) => Denial::Forbidden,
        (501, _) => Denial::Unsupported,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_that_stay_as_they_are_end_it() {
        let body =
            |code: &str| format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>m</Message></Error>");
        for (status, code, expected) in [
            (404, "NoSuchKey", None),
            (404, "NoSuchBucket", Some(Denial::NoBucket)),
            (400, "ExpiredToken", Some(Denial::Expired)),
            (403, "ExpiredToken", Some(Denial::Expired)),
            (400, "RequestTimeout", None),
            (400, "AuthorizationHeaderMalformed", Some(Denial::Region)),
            (301, "PermanentRedirect", Some(Denial::Region)),
            (403, "InvalidAccessKeyId", Some(Denial::Credentials)),
            (403, "RequestTimeTooSkewed", Some(Denial::Clock)),
            (403, "AccessDenied", Some(Denial::Forbidden)),
            (401, "", Some(Denial::Credentials)),
            (501, "NotImplemented", Some(Denial::Unsupported)),
        ] {
            let read = code_in(body(code).as_bytes()).unwrap();
            assert_eq!(meaning(status, &read), expected, "{status} {code}");
        }
        assert_eq!(code_in(b""), None);
        assert_eq!(code_in(&[0xff, 0xfe]), None);
    }
}
