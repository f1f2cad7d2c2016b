//! A bucket of S3 as a target.

use std::io::{self, Read, Write};
use std::time::Duration;

use isobar_model::quote::quote;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::multipart::{MultipartStore as _, PartId};
use object_store::path::Path;
use object_store::{BackoffConfig, ObjectStoreExt as _, PutPayload, RetryConfig};
use tokio::runtime::{Builder, Runtime};

use super::target::{Begun, Target, Upload};
use super::wire::Wire;
use crate::Failure;
use crate::config::Access;
use crate::stores::whole;

/// Size of a request's body, in bytes: a little more than S3's minimum for parts but the last.
const PIECE_BYTES_MIN: u64 = 8 << 20;
/// Most parts of an object: S3 takes 10,000, and encryption and tar add to the announced size.
const PARTS_MAX: u64 = 9_000;
/// Largest object of S3, in bytes.
const OBJECT_BYTES_MAX: u64 = 5 << 40;
/// Retries of a request.
const RETRIES: usize = 4;
/// Longest pause between retries.
const BUCKET_PAUSE_MAX: Duration = Duration::from_secs(8);

/// Timeouts of requests to a bucket.
struct Waits {
    /// Timeout of one request.
    request: Duration,
    /// Time after which no retry begins.
    tries: Duration,
}

const WAITS: Waits = Waits { request: Duration::from_secs(60), tries: Duration::from_secs(150) };

/// A bucket with a prefix for the names of objects.
pub struct Bucket {
    store: AmazonS3,
    /// Awaits the answers; callers are on threads that may block.
    runtime: Runtime,
    bucket: String,
    prefix: String,
}

impl Bucket {
    /// Makes a client of a bucket, without a request.
    pub fn open(bucket: &str, prefix: &str, access: &Access) -> Result<Self, Failure> {
        Self::with(bucket, prefix, access, &WAITS)
    }

    fn with(bucket: &str, prefix: &str, access: &Access, waits: &Waits) -> Result<Self, Failure> {
        let (Some(key), Some(secret)) = (&access.key_id, &access.secret_key) else {
            return Err("a bucket needs backup.s3_access_key_id and backup.s3_secret_access_key".into());
        };
        let backoff = BackoffConfig { max_backoff: BUCKET_PAUSE_MAX, ..BackoffConfig::default() };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(&access.region)
            .with_access_key_id(key)
            .with_secret_access_key(secret)
            .with_http_connector(Wire::new(waits.request)?)
            .with_retry(RetryConfig { backoff, max_retries: RETRIES, retry_timeout: waits.tries });
        if let Some(endpoint) = &access.endpoint {
            builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http://"));
        }
        let store = builder.build().map_err(|error| format!("the bucket {bucket}: {}", whole(&error)))?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { store, runtime, bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    fn path(&self, name: &str) -> Path {
        Path::from(format!("{}/{name}", self.prefix))
    }

    /// Describes the failure of a request, with advice.
    fn cannot(&self, error: &object_store::Error) -> Failure {
        let bucket = &self.bucket;
        let cause = quote(&innermost(error).to_string());
        match error {
            object_store::Error::NotFound { .. } if cause.contains("NoSuchBucket") => {
                format!("the bucket {bucket} is not there: make it, or correct backup.target").into()
            }
            object_store::Error::NotFound { path, .. } => format!("the bucket {bucket} holds no {path}").into(),
            object_store::Error::Unauthenticated { .. } | object_store::Error::PermissionDenied { .. } => format!(
                "the bucket {bucket} refuses the keys: look at backup.s3_access_key_id, backup.s3_secret_access_key and what \
                 they may do ({cause})"
            )
            .into(),
            _ => format!("the bucket {bucket} does not do what it is asked for: {cause}").into(),
        }
    }

    fn told<T>(&self, outcome: object_store::Result<T>) -> Result<T, Failure> {
        outcome.map_err(|error| self.cannot(&error))
    }
}

impl Target for Bucket {
    fn begin(&self, name: &str, bytes: u64) -> Result<Begun, Failure> {
        if bytes > OBJECT_BYTES_MAX {
            return Err(format!("{bytes} bytes are more than an object of S3 may have: use a folder").into());
        }
        let piece = usize::try_from(PIECE_BYTES_MIN.max(bytes / PARTS_MAX))?;
        let id = self.told(self.runtime.block_on(self.store.create_multipart(&self.path(name))))?;
        Ok(Begun { name: name.to_owned(), upload: Some(id), piece })
    }

    fn write<'a>(&'a self, begun: &Begun) -> Result<Box<dyn Upload + 'a>, Failure> {
        let id = begun.upload.clone().ok_or("an upload to a bucket has a name")?;
        Ok(Box::new(InBucket {
            bucket: self,
            path: self.path(&begun.name),
            id,
            piece: begun.piece,
            waiting: Vec::new(),
            parts: Vec::new(),
        }))
    }

    fn read<'a>(&'a self, name: &str) -> Result<Box<dyn Read + 'a>, Failure> {
        let path = self.path(name);
        let size = self.told(self.runtime.block_on(self.store.head(&path)))?.size;
        Ok(Box::new(FromBucket { bucket: self, path, size, next: 0, piece: bytes::Bytes::new() }))
    }

    fn put(&self, name: &str, text: &str) -> Result<(), Failure> {
        let payload = PutPayload::from(text.to_owned());
        self.told(self.runtime.block_on(self.store.put(&self.path(name), payload))).map(drop)
    }

    fn remove(&self, name: &str) -> Result<(), Failure> {
        match self.runtime.block_on(self.store.delete(&self.path(name))) {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            outcome => self.told(outcome),
        }
    }

    fn discard(&self, begun: &Begun) -> Result<(), Failure> {
        if let Some(id) = &begun.upload {
            // An upload that was finished or aborted is not found.
            match self.runtime.block_on(self.store.abort_multipart(&self.path(&begun.name), id)) {
                Err(object_store::Error::NotFound { .. }) => {}
                outcome => self.told(outcome)?,
            }
        }
        self.remove(&begun.name)
    }
}

/// Returns the cause that every other one of the chain quotes.
fn innermost<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    std::iter::successors(Some(error), |link| link.source()).last().unwrap_or(error)
}

/// An object that is written part by part.
struct InBucket<'a> {
    bucket: &'a Bucket,
    path: Path,
    id: String,
    piece: usize,
    /// Bytes that do not fill a part yet.
    waiting: Vec<u8>,
    parts: Vec<PartId>,
}

impl InBucket<'_> {
    fn send(&mut self) -> Result<(), Failure> {
        let payload = PutPayload::from(std::mem::take(&mut self.waiting));
        let Bucket { store, runtime, .. } = self.bucket;
        let sent = runtime.block_on(store.put_part(&self.path, &self.id, self.parts.len(), payload));
        self.parts.push(self.bucket.told(sent)?);
        Ok(())
    }
}

impl Write for InBucket<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if self.waiting.capacity() == 0 {
            self.waiting.reserve_exact(self.piece);
        }
        let count = piece.len().min(self.piece - self.waiting.len());
        self.waiting.extend_from_slice(&piece[..count]);
        if self.waiting.len() == self.piece {
            self.send().map_err(io::Error::other)?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Upload for InBucket<'_> {
    fn finish(mut self: Box<Self>) -> Result<(), Failure> {
        if !self.waiting.is_empty() || self.parts.is_empty() {
            self.send()?;
        }
        let Bucket { store, runtime, .. } = self.bucket;
        let parts = std::mem::take(&mut self.parts);
        self.bucket.told(runtime.block_on(store.complete_multipart(&self.path, &self.id, parts))).map(drop)
    }
}

/// An object that is read piece by piece, each with its own retries.
struct FromBucket<'a> {
    bucket: &'a Bucket,
    path: Path,
    size: u64,
    next: u64,
    piece: bytes::Bytes,
}

impl Read for FromBucket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() && self.next < self.size {
            let Bucket { store, runtime, .. } = self.bucket;
            let end = self.size.min(self.next + PIECE_BYTES_MIN);
            let read = runtime.block_on(store.get_range(&self.path, self.next..end));
            self.piece = self.bucket.told(read).map_err(io::Error::other)?;
            if self.piece.is_empty() {
                return Err(io::Error::other(format!("{} became shorter while it was read", self.path)));
            }
            self.next += self.piece.len() as u64;
        }
        let count = buffer.len().min(self.piece.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};

    use isobar_model::time::Clock;

    use super::*;

    /// Amazon's answer for a bucket that does not exist, which the server of the scenes would create.
    const NO_SUCH_BUCKET: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>NoSuchBucket</Code>\
        <Message>The specified bucket does not exist</Message><BucketName>vault</BucketName></Error>";

    fn bucket_at(address: SocketAddr) -> Bucket {
        let access = Access {
            endpoint: Some(format!("http://{address}")),
            region: "us-east-1".to_owned(),
            key_id: Some("key".to_owned()),
            secret_key: Some("not-to-be-told".to_owned()),
        };
        let waits = Waits { request: Duration::from_millis(200), tries: Duration::from_millis(600) };
        Bucket::with("vault", "isobar", &access, &waits).unwrap()
    }

    #[test]
    fn silent_bucket_times_out() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let bucket = bucket_at(silent.local_addr().unwrap());
        let begun = Clock::System.instant();
        let told = bucket.begin("one", 1).unwrap_err().to_string();
        assert!(told.contains("the bucket vault does not do what it is asked for"), "{told}");
        assert!(told.contains("no answer within 0.2 s") && !told.contains("not-to-be-told"), "{told}");
        assert!(Clock::System.elapsed(begun) < Duration::from_secs(30));
    }

    /// Answers every request with this status and body, until the test ends.
    fn answering(status: &'static str, body: String) -> Bucket {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let bucket = bucket_at(server.local_addr().unwrap());
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = server.accept() {
                let _ = stream.read(&mut [0; 4096]);
                let _ = write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            }
        });
        bucket
    }

    #[test]
    fn long_answer_of_a_bucket_is_quoted_once_and_cut() {
        let body =
            |code: &str| format!("<?xml version=\"1.0\"?>\n<Error><Code>{code}\u{1b}[2J{}", "words ".repeat(2 << 20));
        for (status, code) in [("400 Bad Request", "Odd"), ("403 Forbidden", "AccessDenied"), ("503 Slow", "SlowDown")]
        {
            let told = answering(status, body(code)).begin("one", 1).unwrap_err().to_string();
            assert_eq!(told.matches(code).count(), 1, "{told}");
            assert!(told.contains("words words") && told.chars().count() < 500 && !told.contains('\u{1b}'), "{told}");
        }
        let told = answering("200 OK", body("Odd")).begin("one", 1).unwrap_err().to_string();
        assert!(told.chars().count() < 500, "{told}");
    }

    #[test]
    fn missing_bucket_is_described_in_a_sentence() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let bucket = bucket_at(server.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = server.accept().unwrap();
            let mut head = [0; 4096];
            let count = stream.read(&mut head).unwrap();
            assert!(head[..count].starts_with(b"POST /vault/isobar/one?uploads"));
            let length = NO_SUCH_BUCKET.len();
            write!(stream, "HTTP/1.1 404 Not Found\r\ncontent-length: {length}\r\n\r\n{NO_SUCH_BUCKET}").unwrap();
        });
        let told = bucket.begin("one", 1).unwrap_err().to_string();
        assert_eq!(told, "the bucket vault is not there: make it, or correct backup.target");
    }
}
