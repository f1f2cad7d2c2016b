//! A bounded HTTPS client for ACME servers.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, HttpClient};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

/// Largest answer, in bytes: a chain of certificates takes some thousand.
const ACME_ANSWER_BYTES_MAX: usize = 1 << 20;
const HTTPS_PORT: u16 = 443;

type Unreachable = Box<dyn Error + Send + Sync>;

/// A client that trusts the machine's roots and Mozilla's.
#[derive(Clone)]
pub struct Client(TlsConnector);

impl Client {
    /// Makes a client; reads the machine's roots.
    pub fn new() -> Result<Self, rustls::Error> {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }

    async fn exchange(self, request: Request<BodyWrapper<Bytes>>) -> Result<Response<Full<Bytes>>, Unreachable> {
        let (mut head, body) = request.into_parts();
        let authority = head.uri.authority().cloned().ok_or("the ACME server names an address without a host")?;
        if head.uri.scheme_str() != Some("https") {
            return Err(format!("the ACME server names {}, which is not https://", head.uri).into());
        }
        let (host, port) = (authority.host().trim_matches(['[', ']']).to_owned(), authority.port_u16());
        let unreachable = |error| format!("cannot reach {authority}: {error}");
        let socket = TcpStream::connect((host.as_str(), port.unwrap_or(HTTPS_PORT))).await.map_err(unreachable)?;
        let stream = self.0.connect(ServerName::try_from(host)?, socket).await.map_err(unreachable)?;
        let path = head.uri.path_and_query().map_or("/", |path| path.as_str());
        head.headers.insert(HOST, HeaderValue::from_str(authority.as_str())?);
        head.uri = path.parse::<Uri>()?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let answer = async move {
            let (head, body) = sender.send_request(Request::from_parts(head, body)).await?.into_parts();
            let body = Limited::new(body, ACME_ANSWER_BYTES_MAX).collect().await?.to_bytes();
            Ok::<_, Unreachable>(Response::from_parts(head, Full::new(body)))
        };
        // The outcome of the connection adds nothing to that of the request.
        tokio::join!(answer, connection).0
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let asked = self.clone().exchange(request);
        Box::pin(async move { asked.await.map(BytesResponse::from).map_err(instant_acme::Error::Other) })
    }
}
