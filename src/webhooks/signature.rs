//! How a webhook knows that what it gets was sent by who has its secret: Standard Webhooks, `v1`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

use crate::config::Secret;
use crate::error::{Error, Result};

/// What signs.
pub(super) struct Signer(hmac::Key);

impl Signer {
    /// Config: the secret has another form than `whsec_` and base64.
    pub(super) fn new(secret: &Secret) -> Result<Self> {
        let key = secret.expose().strip_prefix("whsec_").and_then(|key| STANDARD.decode(key).ok());
        let key = key.ok_or_else(|| Error::config("the secret of a webhook is not \"whsec_\" and base64"))?;
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, &key)))
    }

    /// The header `webhook-signature` of a message.
    pub(super) fn sign(&self, id: &str, seconds: i64, body: &str) -> String {
        let tag = hmac::sign(&self.0, format!("{id}.{seconds}.{body}").as_bytes());
        format!("v1,{}", STANDARD.encode(tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_signed_as_the_specification_signs_it() {
        let signer = Signer::new(&Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).unwrap();
        let signed = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, "{\"test\": 2432232314}");
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert!(Signer::new(&Secret::new("secret")).is_err());
    }
}
