//! Secrets: 256 random bits, shown once, and never stored in plain text.

use std::path::Path;

use serde_json::json;

use crate::support::TestApp;
use crate::support::person::text;

/// Characters of 256 bits in Base64.
const CHARACTERS: usize = 43;

/// Reads all files beneath a folder except the e-mails, which are for their recipients.
fn kept(folder: &Path, into: &mut Vec<u8>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("mail") {
            kept(&path, into);
        } else if path.is_file() {
            into.extend(std::fs::read(&path).unwrap());
        }
    }
}

// Holds: c3.passwords
#[tokio::test]
async fn stored_files_contain_no_secret() {
    let app = TestApp::start().await;
    let ana = app.developer("ana").await;
    let device = ana.creates_device("fridge").await;
    device.posts("reading", json!("a payload that is kept")).await.created();
    let rotated = text(&ana.post(&device.at("token"), json!({})).await.created(), "token").to_owned();
    app.post("/v2/auth/forgot", json!({"emailOrUsername": "ana"})).await.no_content();
    let emails = app.emails_to("ana@example.com", 2).await;
    let nonce = emails[0].path().rsplit('/').next().unwrap().to_owned();
    let key = ana.makes_api_key("key").await;
    let refresh = ana.cookie.strip_prefix("refreshToken=").unwrap().to_owned();
    let secrets = [device.token.clone(), rotated, key, refresh, nonce, emails[1].token()];
    assert!(secrets.iter().all(|secret| secret.len() >= CHARACTERS), "{secrets:?}");
    let others = [ana.password.clone(), ana.jwt.clone()];
    let mut bytes = app.rows_elsewhere().await.into_bytes();
    kept(app.mail_folder().parent().unwrap(), &mut bytes);
    let stands = |words: &str| bytes.windows(words.len()).any(|window| window == words.as_bytes());
    assert!(stands("ana@example.com") && stands("$argon2id$"), "this is where it would stand");
    for secret in secrets.iter().chain(&others) {
        assert!(!stands(secret), "{secret}");
    }
}
