//! Certificates by ACME, ordered by the real program from a real ACME server (`pebble`).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod program_support;

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use isobar_power::becomes;
use program_support::isobar;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A name that the scene's name server resolves to this machine.
const NAME: &str = "iot.example.com";
const SERVES: &str = "HTTP/1.1 200";

/// A child process, killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An ACME server, and a platform that orders its certificates there.
struct Scene {
    folder: TempDir,
    /// The name server, which resolves all names to this machine.
    _names: Running,
    names_port: u16,
    acme_port: u16,
    management_port: u16,
    port: u16,
    operations_port: u16,
}

impl Scene {
    fn new() -> Self {
        let [acme_port, management_port, port, operations_port, names_port, names_management] = free_ports();
        let mut names = Command::new(pebble("pebble-challtestsrv"));
        names.args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", "", "-http01", "", "-https01", "", "-tlsalpn01", ""]);
        names.arg("-dns01").arg(format!("127.0.0.1:{names_port}"));
        names.arg("-management").arg(format!("127.0.0.1:{names_management}"));
        let names = Running(names.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let ca_key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, ca_key).unwrap();
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(["localhost".to_owned()]).unwrap().signed_by(&key, &ca).unwrap();
        let scene = Self { folder, _names: names, names_port, acme_port, management_port, port, operations_port };
        for (name, content) in [("ca.pem", ca.pem()), ("acme.pem", own.pem()), ("acme.key", key.serialize_pem())] {
            std::fs::write(scene.at(name), content).unwrap();
        }
        scene
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the ACME server, whose certificates are valid for `lifetime` seconds.
    async fn acme(&self, lifetime: u64) -> Running {
        let config = json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{}", self.acme_port),
            "managementListenAddress": format!("127.0.0.1:{}", self.management_port),
            "certificate": self.at("acme.pem"), "privateKey": self.at("acme.key"),
            "httpPort": 1, "tlsPort": self.port, "certificateValidityPeriod": lifetime,
        }});
        std::fs::write(self.at("pebble.json"), config.to_string()).unwrap();
        let mut command = Command::new(pebble("pebble"));
        command
            .arg("-config")
            .arg(self.at("pebble.json"))
            .arg("-dnsserver")
            .arg(format!("127.0.0.1:{}", self.names_port));
        command.env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_WFE_NONCEREJECT", "0");
        let running = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        becomes("it listens", async || TcpStream::connect(("127.0.0.1", self.acme_port)).await.is_ok()).await;
        becomes("it can be managed", async || TcpStream::connect(("127.0.0.1", self.management_port)).await.is_ok())
            .await;
        running
    }

    /// Starts the platform with additional settings.
    fn isobar(&self, settings: &[(&str, &str)]) -> Running {
        self.isobar_at(&format!("127.0.0.1:{}", self.port), settings)
    }

    fn isobar_at(&self, listen: &str, settings: &[(&str, &str)]) -> Running {
        let mut command = isobar(&["serve", "--listen", listen, "--log", "info", "--data"]);
        command.arg(self.at("data")).env("SSL_CERT_FILE", self.at("ca.pem"));
        command.env("ISOBAR_HTTP__ACME_DIRECTORY", format!("https://localhost:{}/dir", self.acme_port));
        command.env("ISOBAR_HTTP__ACME_DOMAINS", NAME).env("ISOBAR_HTTP__ACME_EMAIL", "ops@example.com");
        command.env("ISOBAR_HTTP__OPERATIONS_LISTEN", format!("127.0.0.1:{}", self.operations_port));
        command.envs(settings.iter().copied());
        let log = std::fs::File::options().create(true).append(true).open(self.at("log")).unwrap();
        Running(command.stdout(Stdio::null()).stderr(log).spawn().unwrap())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.at("log")).unwrap_or_default()
    }

    async fn says(&self, text: &str) {
        becomes(text, async || self.log().contains(text)).await;
    }

    /// Performs a TLS handshake with the platform.
    async fn hello(&self, name: &str, protocol: &str, roots: RootCertStore) -> std::io::Result<TlsStream<TcpStream>> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let socket = TcpStream::connect(("127.0.0.1", self.port)).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name.to_owned()).unwrap(), socket).await
    }

    /// Fetches the root of the ACME server, which is new at each start.
    async fn roots(&self) -> RootCertStore {
        let mut ca = RootCertStore::empty();
        ca.add(CertificateDer::from_pem_file(self.at("ca.pem")).unwrap()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(ca)
            .with_no_client_auth();
        let socket = TcpStream::connect(("127.0.0.1", self.management_port)).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await.unwrap();
        let answer = ask(&mut stream, "/roots/0").await;
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(answer.split("\r\n\r\n").nth(1).unwrap().as_bytes()).unwrap())
            .unwrap();
        roots
    }

    /// Returns the certificate shown to a client that trusts the ACME server.
    async fn certificate(&self, roots: &RootCertStore) -> Option<CertificateDer<'static>> {
        let stream = self.hello(NAME, "http/1.1", roots.clone()).await.ok()?;
        Some(stream.get_ref().1.peer_certificates()?.first()?.clone().into_owned())
    }

    async fn metrics(&self) -> String {
        let mut socket = TcpStream::connect(("127.0.0.1", self.operations_port)).await.unwrap();
        ask(&mut socket, "/metrics").await
    }
}

async fn ask(stream: &mut (impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin), path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // Some connections end without a TLS close.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

/// Finds free ports, which others may take meanwhile.
fn free_ports() -> [u16; 6] {
    let listeners = [(); 6].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// Returns the path of a program of pebble from `scripts/prepare acme`.
fn pebble(program: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/prepare");
    let output = Command::new(script).arg("acme").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    Path::new(String::from_utf8(output.stdout).unwrap().trim()).join("usr/bin").join(program)
}

// Holds: c16.acme
#[tokio::test]
async fn certificate_is_issued_stored_and_renewed_while_serving() {
    let scene = Scene::new();
    let acme = scene.acme(90).await;
    let serving = scene.isobar(&[]);
    scene.says("a certificate was issued").await;
    let roots = scene.roots().await;
    let first = scene.certificate(&roots).await.unwrap();
    let mut client = scene.hello(NAME, "http/1.1", roots.clone()).await.unwrap();
    assert!(ask(&mut client, "/v2/spec").await.starts_with(SERVES));
    assert!(scene.metrics().await.contains("\nisobar_certificate_expires_seconds "));
    let kept = scene.at("data/acme").join(format!("localhost:{}", scene.acme_port));
    for name in ["account.json", "certificate.json"] {
        assert_eq!(std::fs::metadata(kept.join(name)).unwrap().permissions().mode() & 0o777, 0o600);
    }
    // No challenge is pending: handshakes for a proof fail, whatever the name.
    for name in [NAME, "other.example.com"] {
        for _ in 0..200 {
            assert!(scene.hello(name, "acme-tls/1", roots.clone()).await.is_err());
        }
    }
    becomes("it is renewed", async || scene.certificate(&roots).await.is_some_and(|shown| shown != first)).await;
    let second = scene.certificate(&roots).await;
    // Without the ACME server, serving continues.
    drop((acme, serving));
    let _serving = scene.isobar(&[]);
    becomes("the kept one is used", async || scene.certificate(&roots).await == second).await;
}

// Holds: c16.acme
#[tokio::test]
async fn unreachable_or_refusing_acme_server_is_logged() {
    let scene = Scene::new();
    let serving = scene.isobar(&[]);
    scene.says("let this machine reach and trust the address of http.acme_directory").await;
    assert!(scene.metrics().await.starts_with(SERVES));
    assert!(scene.hello(NAME, "http/1.1", RootCertStore::empty()).await.is_err());
    drop(serving);
    let _acme = scene.acme(3_600).await;
    // The answer is not a directory.
    let elsewhere = format!("https://localhost:{}/nonce-plz", scene.acme_port);
    let serving = scene.isobar(&[("ISOBAR_HTTP__ACME_DIRECTORY", &elsewhere)]);
    scene.says("see whether http.acme_directory is the directory of an ACME server").await;
    drop(serving);
    // The name resolves elsewhere.
    let [other, ..] = free_ports();
    let listen = format!("127.0.0.1:{other}");
    let serving = scene.isobar_at(&listen, &[]);
    scene.says("does not accept that iot.example.com leads here").await;
    drop(serving);
}
