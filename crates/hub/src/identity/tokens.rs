//! Makes access tokens (JWTs) at login and refresh, checks them on every call, and revokes them at once (contract:
//! Authentication).

mod hs256;

use std::collections::HashMap;

use isobar_model::error::{Error, Result};
use isobar_model::ids::{EventId, SessionId, UserId};
use isobar_model::session::JWT_SECONDS;
use isobar_model::time::Timestamp;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

/// The claims of a JWT.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Claims {
    /// The user.
    pub sub: UserId,
    /// The session it was issued for.
    pub sid: SessionId,
    /// Its own identifier, by which it is revoked.
    pub jti: EventId,
    /// Time of issue, in Unix seconds.
    pub iat: i64,
    /// Time of expiry, in Unix seconds.
    pub exp: i64,
}

/// Issues and checks JWTs.
pub(crate) struct Jwts {
    encoding: EncodingKey,
    decoding: DecodingKey,
    validation: Validation,
    /// Tokens revoked before their expiry, by identifier, with the time to forget the revocation: 15 minutes later, or
    /// at their expiry if a clock that was ahead issued them.
    revoked: RwLock<HashMap<String, Timestamp>>,
}

impl Jwts {
    pub(crate) fn new(key: &[u8], revoked: Vec<String>, now: Timestamp) -> Self {
        hs256::install();
        let mut validation = Validation::new(Algorithm::HS256);
        // The hub's own clock decides if a token has expired.
        validation.validate_exp = false;
        validation.required_spec_claims.clear();
        Self {
            encoding: EncodingKey::from_secret(key),
            decoding: DecodingKey::from_secret(key),
            validation,
            revoked: RwLock::new(revoked.into_iter().map(|jti| (jti, now.plus_seconds(JWT_SECONDS))).collect()),
        }
    }

    /// Issues a new token of a session, and returns it with its expiry.
    pub(crate) fn issue(
        &self,
        user: UserId,
        session: SessionId,
        jti: EventId,
        now: Timestamp,
    ) -> Result<(String, Timestamp)> {
        let iat = now.seconds();
        let claims = Claims { sub: user, sid: session, jti, iat, exp: iat + JWT_SECONDS };
        let token =
            jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &self.encoding).map_err(Error::internal)?;
        Ok((token, Timestamp::from_millis(claims.exp * 1000)))
    }

    /// Returns the claims of a token, if this installation signed it.
    pub(crate) fn read(&self, token: &str) -> Result<Claims> {
        let read = jsonwebtoken::decode::<Claims>(token, &self.decoding, &self.validation);
        Ok(read.map_err(|_| Error::Unauthenticated)?.claims)
    }

    /// Refuses a token that has expired or was revoked.
    pub(crate) fn check(&self, claims: &Claims, now: Timestamp) -> Result<()> {
        let ended = claims.exp <= now.seconds() || self.revoked.read().contains_key(&claims.jti.to_string());
        if ended { Err(Error::Unauthenticated) } else { Ok(()) }
    }

    /// Refuses a token from now on.
    pub(crate) fn revoke(&self, claims: &Claims, now: Timestamp) {
        let ends = Timestamp::from_millis(claims.exp.saturating_mul(1_000));
        self.revoked.write().insert(claims.jti.to_string(), ends.max(now.plus_seconds(JWT_SECONDS)));
    }

    /// Refuses a token that another node has revoked. It was issued before now.
    pub(crate) fn revoked_elsewhere(&self, jti: String, now: Timestamp) {
        self.revoked.write().entry(jti).or_insert_with(|| now.plus_seconds(JWT_SECONDS));
    }

    /// Removes the revocations of expired tokens.
    pub(crate) fn forget_ended(&self, now: Timestamp) {
        self.revoked.write().retain(|_, until| now < *until);
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);

    fn ids() -> (UserId, SessionId, EventId) {
        let id = uuid::Uuid::from_u128(0x0189_0a5d_ac96_774b_bcce_b302_099a_8057);
        (UserId(id), SessionId(id), EventId(id))
    }

    #[test]
    fn token_expires_after_fifteen_minutes() {
        let (user, session, jti) = ids();
        let (jwts, now) = (Jwts::new(&[7; 32], Vec::new(), NOW), NOW);
        let (token, expiry) = jwts.issue(user, session, jti, now).unwrap();
        assert_eq!(expiry, now.plus_seconds(900));
        let claims = jwts.read(&token).unwrap();
        assert_eq!(claims.sub, user);
        assert!(jwts.check(&claims, now.plus_seconds(899)).is_ok());
        assert!(jwts.check(&claims, now.plus_seconds(900)).is_err());
    }

    #[test]
    fn revoked_or_foreign_token_is_refused() {
        let (user, session, jti) = ids();
        let (jwts, now) = (Jwts::new(&[7; 32], Vec::new(), NOW), NOW);
        let (token, _) = jwts.issue(user, session, jti, now).unwrap();
        assert!(Jwts::new(&[8; 32], Vec::new(), NOW).read(&token).is_err());
        let claims = jwts.read(&token).unwrap();
        assert!(jwts.check(&claims, now).is_ok());
        jwts.revoke(&claims, now);
        assert!(jwts.check(&claims, now).is_err());
        let (token, _) = jwts.issue(user, session, EventId(uuid::Uuid::from_u128(7)), now).unwrap();
        let elsewhere = jwts.read(&token).unwrap();
        assert!(jwts.check(&elsewhere, now).is_ok());
        jwts.revoked_elsewhere(elsewhere.jti.to_string(), now);
        assert!(jwts.check(&elsewhere, now).is_err());
        for rubbish in ["", "a.b.c", "eyJhbGciOiJub25lIn0.e30."] {
            assert!(jwts.read(rubbish).is_err());
        }
    }

    #[test]
    fn token_signature_matches_rfc_7515() {
        // RFC 7515, appendix A.1: its key, the signed text, and the signature.
        let key = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
        let message = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9.\
            eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
        let expected = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        hs256::install();
        let key = URL_SAFE_NO_PAD.decode(key).unwrap();
        let (signing, checking) = (EncodingKey::from_secret(&key), DecodingKey::from_secret(&key));
        assert_eq!(jsonwebtoken::crypto::sign(message.as_bytes(), &signing, Algorithm::HS256).unwrap(), expected);
        let verify = |signature: &str, algorithm| {
            jsonwebtoken::crypto::verify(signature, message.as_bytes(), &checking, algorithm)
        };
        assert!(verify(expected, Algorithm::HS256).unwrap());
        assert!(!verify(&expected.replace('d', "e"), Algorithm::HS256).unwrap());
        assert!(!verify("", Algorithm::HS256).unwrap());
        for other in [Algorithm::HS384, Algorithm::HS512, Algorithm::RS256, Algorithm::ES256, Algorithm::EdDSA] {
            assert!(verify(expected, other).is_err(), "{other:?}");
        }
    }
}
