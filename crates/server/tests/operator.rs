//! Changes of users by an operator while the program is stopped (contract: The program).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use program_support::{Serving, failure, isobar, text};

/// Logs in; returns the status line, and the tokens if there are any.
fn login(serving: &Serving, name: &str, password: &str) -> (String, String) {
    let body = serde_json::json!({"usernameOrEmail": name, "password": password}).to_string();
    let mut stream = TcpStream::connect(&serving.address).unwrap();
    let (host, length) = (&serving.address, body.len());
    write!(
        stream,
        "POST /v2/auth/login HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    (answer.split(' ').nth(1).unwrap().to_owned(), answer)
}

// Holds: c12.user
#[test]
fn lost_password_is_reset_while_the_program_is_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let reset = |name: &str| isobar(&["user", "reset-password", name, "--data"]).arg(folder.path()).output().unwrap();
    assert!(failure(&reset("admin")).contains("is no data folder of isobar"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made on the way");

    let serving = Serving::on(folder.path(), &[("ISOBAR_ADMIN_PASSWORD", "the first one")]);
    assert_eq!(login(&serving, "admin", "the first one").0, "201");
    assert!(failure(&reset("admin")).contains("in use"));
    assert_eq!(serving.stop(), Some(0));

    assert!(failure(&reset("nobody")).contains("there is no user nobody"));
    let done = reset("ADMIN");
    assert!(done.status.success(), "{done:?}");
    let told = text(&done.stdout);
    let password = told.split(" is ").nth(1).unwrap().split(' ').next().unwrap();
    assert!((6..=20).contains(&password.len()), "{told}");

    let serving = Serving::on(folder.path(), &[("ISOBAR_ADMIN_PASSWORD", "the first one")]);
    assert_eq!(login(&serving, "admin", "the first one").0, "401");
    assert_eq!(login(&serving, "admin", password).0, "201");
    assert_eq!(serving.stop(), Some(0));
}

#[test]
fn registry_with_lost_changes_is_served_after_recover_only() {
    let folder = tempfile::tempdir().unwrap();
    let about = |words: &[&str]| {
        isobar(words)
            .args(["--config", "/dev/null", "--data"])
            .arg(folder.path())
            .env("ISOBAR_LISTEN", "127.0.0.1:0")
            .output()
            .unwrap()
    };
    // A stop writes everything into the file: the log has only the login.
    let serving = Serving::on(folder.path(), &[("ISOBAR_ADMIN_PASSWORD", "the first one")]);
    assert_eq!(serving.stop(), Some(0));
    let serving = Serving::on(folder.path(), &[]);
    assert_eq!(login(&serving, "admin", "the first one").0, "201");
    serving.kill();
    let log = folder.path().join("registry.db-wal");
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, bytes).unwrap();
    for verb in ["serve", "check"] {
        let told = failure(&about(&[verb]));
        assert!(told.contains("registry.db-wal is damaged") && told.contains("acknowledged are lost"), "{told}");
        assert!(told.contains("isobar recover"), "{told}");
        // The same for a database that was replaced by hand.
        assert!(told.contains("registry.db-note"), "{told}");
    }
    let damaged = ["registry.db", "registry.db-wal", "registry.db-note"]
        .map(|name| (name, std::fs::read(folder.path().join(name)).unwrap()));
    let named = about(&["recover"]);
    assert_eq!(named.status.code(), Some(1));
    assert!(text(&named.stdout).contains("registry.db-wal is damaged") && text(&named.stdout).contains("--yes"));
    failure(&about(&["check"]));
    let told = about(&["recover", "--yes"]);
    assert!(told.status.success() && text(&told.stdout).contains("The registry goes on without them"), "{told:?}");
    assert!(text(&about(&["recover"]).stdout).contains("nothing to recover"));
    let mut entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let aside = entries.find(|path| path.file_name().unwrap().to_string_lossy().starts_with("dropped-")).unwrap();
    for (name, bytes) in damaged {
        assert!(std::fs::read(aside.join(name)).unwrap() == bytes, "{name} is kept to be looked at");
    }
    let serving = Serving::on(folder.path(), &[("ISOBAR_ADMIN_PASSWORD", "the first one")]);
    assert_eq!(serving.stop(), Some(0));

    // A damaged page is reported instead of served.
    let file = folder.path().join("registry.db");
    let mut bytes = std::fs::read(&file).unwrap();
    for page in bytes.chunks_mut(4096) {
        page[2000] ^= 1;
    }
    std::fs::write(&file, bytes).unwrap();
    for verb in ["serve", "check"] {
        let told = failure(&about(&[verb]));
        assert!(told.contains("page 1 of ") && told.contains("does not fit to its checksum"), "{told}");
    }
}
