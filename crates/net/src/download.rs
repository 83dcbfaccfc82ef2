//! [`Download`]: the bytes behind a URL, read by a thread that may wait.
//!
//! ```text
//! open -> dial (proxy?) -> TLS? -> GET -> redirect: again, at most MAX_REDIRECTS times
//! read -> body -> cut? -> GET with Range and If-Range, at most MAX_RESUMES times -> goes on
//! ```
//!
//! Invariants: never from HTTPS to HTTP; declared headers go to the declared host alone; an end before
//! the announced length is an error and not an end; every wait has a bound. HTTP/1.1 and TLS 1.3 only.

use std::io::{self, Read};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http::header::{
    ACCEPT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HOST, IF_RANGE, LAST_MODIFIED, LOCATION,
    PROXY_AUTHORIZATION, RANGE, USER_AGENT,
};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use model::text::chain;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;

use crate::client::DIAL_TIMEOUT;
use crate::proxy::{ProxySettings, ProxyUrl, open_tunnel};
use crate::tls::provider;

/// The most redirects that are followed.
const MAX_REDIRECTS: usize = 5;
/// How often a transfer that breaks off goes on where it was.
const MAX_RESUMES: u32 = 5;
/// How long a server may be silent.
const MAX_SILENCE: Duration = Duration::from_secs(60);

/// What is fetched.
#[derive(Clone, Debug)]
pub struct DownloadRequest {
    /// `https://` or `http://`.
    pub url: String,
    /// Headers that go with it, to the host of `url` alone.
    pub headers: Vec<(String, String)>,
    /// The certificates of the CAs that are believed, in PEM.
    pub roots_pem: Vec<u8>,
    /// From which byte on; the bytes before are here. A server that knows no ranges sends them all the same, and they are
    /// passed over.
    pub from: u64,
    /// The largest length of the whole, in bytes.
    pub max_size: u64,
    /// How long all of it may take.
    pub timeout: Duration,
    /// The proxies to go through.
    pub proxies: ProxySettings,
}

/// Why something could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// Not a URL that can be fetched.
    #[error("`{0}` is no URL that can be fetched")]
    Url(String),
    /// A header cannot be sent.
    #[error("the header `{0}` cannot be sent")]
    Header(String),
    /// No CA is known.
    #[error("no certificate of a CA could be read, so that no server can be believed")]
    Roots,
    /// No connection.
    #[error("no connection to {host}: {why}")]
    Dial {
        /// Where to.
        host: String,
        /// Why.
        why: String,
    },
    /// Another answer than the content.
    #[error("{url} answered {status}")]
    Status {
        /// Where from.
        url: String,
        /// The answer.
        status: StatusCode,
    },
    /// A redirect that is not followed.
    #[error("{url} redirects to {to}, which is not followed: {why}")]
    Redirect {
        /// Where from.
        url: String,
        /// Where to.
        to: String,
        /// Why.
        why: &'static str,
    },
    /// It is too long.
    #[error("{url} has {size} bytes, and at most {limit} are fetched")]
    TooLarge {
        /// Where from.
        url: String,
        /// What the server announced.
        size: u64,
        /// The bound.
        limit: u64,
    },
    /// The content changed while it was fetched.
    #[error("what {0} holds changed while it was fetched; the next run begins anew")]
    Changed(String),
    /// It broke off, and did not go on.
    #[error("{url} broke off after {got} bytes{of}: {why}")]
    Broken {
        /// Where from.
        url: String,
        /// How many bytes came.
        got: u64,
        /// How many were announced.
        of: String,
        /// Why.
        why: String,
    },
    /// It took too long.
    #[error("{url} took longer than {} s", .after.as_secs())]
    Timeout {
        /// Where from.
        url: String,
        /// How long was waited.
        after: Duration,
    },
    /// There is no runtime to be had.
    #[error("no runtime for it: {0}")]
    Runtime(io::Error),
}

/// A transfer under way.
pub struct Download {
    runtime: Runtime,
    request: DownloadRequest,
    /// Made when the first server with TLS is dialled: a redirect may lead to one.
    tls: OnceLock<Arc<ClientConfig>>,
    deadline: Instant,
    /// Where the content is, after all redirects.
    at: DownloadTarget,
    body: Option<Incoming>,
    data: Bytes,
    /// How many bytes were read, and how many of an answer that began anew are passed over.
    offset: u64,
    skip: u64,
    total: Option<u64>,
    validator: Option<HeaderValue>,
    resumed: u32,
}

impl Download {
    /// Asks for the content, and waits for the beginning of the answer. Must not be called on a
    /// thread of a runtime.
    ///
    /// # Errors
    /// [`DownloadError`] says which step failed.
    pub fn open(request: DownloadRequest) -> Result<Download, DownloadError> {
        let at = DownloadTarget::read(&request.url).ok_or_else(|| DownloadError::Url(request.url.clone()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(DownloadError::Runtime)?;
        let deadline = Instant::now() + request.timeout;
        let offset = request.from;
        let mut download = Download {
            runtime,
            request,
            tls: OnceLock::new(),
            deadline,
            at,
            body: None,
            data: Bytes::new(),
            offset,
            skip: 0,
            total: None,
            validator: None,
            resumed: 0,
        };
        download.begin()?;
        Ok(download)
    }

    fn begin(&mut self) -> Result<(), DownloadError> {
        for _ in 0..=MAX_REDIRECTS {
            let response = self.ask()?;
            let status = response.status();
            if status.is_redirection() {
                self.at = self.at.redirected(response.headers())?;
                continue;
            }
            let goes_on = self.offset > 0
                && status == StatusCode::PARTIAL_CONTENT
                && starts_at(response.headers()) == Some(self.offset);
            if status != StatusCode::OK && !goes_on {
                return Err(DownloadError::Status { url: self.at.to_string(), status });
            }
            let headers = response.headers();
            let before = if goes_on { self.offset } else { 0 };
            self.skip = self.offset - before;
            self.total = number(headers.get(CONTENT_LENGTH)).map(|length| length.saturating_add(before));
            if let Some(size) = self.total.filter(|size| *size > self.request.max_size) {
                let (url, limit) = (self.at.to_string(), self.request.max_size);
                return Err(DownloadError::TooLarge { url, size, limit });
            }
            self.validator = validator(headers);
            self.body = Some(response.into_body());
            return Ok(());
        }
        let (url, to) = (self.request.url.clone(), self.at.to_string());
        Err(DownloadError::Redirect { url, to, why: "there are too many redirects" })
    }

    /// Goes on where it broke off.
    fn resume(&mut self, why: &str) -> Result<(), DownloadError> {
        self.body = None;
        self.resumed += 1;
        if self.resumed > MAX_RESUMES {
            let of = self.total.map(|total| format!(" of {total}")).unwrap_or_default();
            let (url, got) = (self.at.to_string(), self.offset);
            return Err(DownloadError::Broken { url, got, of, why: why.to_owned() });
        }
        let response = match self.ask() {
            Ok(response) => response,
            // It is asked again, as often as it may break off.
            Err(DownloadError::Dial { why, .. }) => return self.resume(&why),
            Err(error) => return Err(error),
        };
        match response.status() {
            StatusCode::PARTIAL_CONTENT if starts_at(response.headers()) == Some(self.offset) => {
                self.skip = 0
            }
            // The whole content again: it goes on only where it is the same.
            StatusCode::OK if validator(response.headers()) == self.validator => self.skip = self.offset,
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => {
                return Err(DownloadError::Changed(self.at.to_string()));
            }
            status => return Err(DownloadError::Status { url: self.at.to_string(), status }),
        }
        self.body = Some(response.into_body());
        Ok(())
    }

    fn ask(&self) -> Result<Response<Incoming>, DownloadError> {
        let request = self.head()?;
        let asked = async {
            let dialled = async {
                let stream = self.dial().await?;
                let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                    .await
                    .map_err(|error| self.no_dial(&error))?;
                // It ends with the body, or with the runtime.
                crate::tasks::spawn(async move { drop(connection.await) });
                send.send_request(request).await.map_err(|error| self.no_dial(&error))
            };
            match tokio::time::timeout(self.left().min(DIAL_TIMEOUT + MAX_SILENCE), dialled).await {
                Ok(answered) => answered,
                Err(_) => Err(self.timeout()),
            }
        };
        self.runtime.block_on(asked)
    }

    fn head(&self) -> Result<Request<Empty<Bytes>>, DownloadError> {
        let proxy = self.at.proxy(&self.request.proxies).filter(|_| !self.at.secure);
        let target = proxy.map_or_else(|| self.at.path.clone(), |_| self.at.to_string());
        let failed = || DownloadError::Url(self.at.to_string());
        let mut request = Request::get(target).body(Empty::new()).map_err(|_| failed())?;
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::from_str(&self.at.authority).map_err(|_| failed())?);
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("muster/", env!("CARGO_PKG_VERSION"))));
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if let Some(authorization) = proxy.and_then(ProxyUrl::authorization) {
            let mut value = HeaderValue::from_str(&authorization).map_err(|_| failed())?;
            value.set_sensitive(true);
            headers.insert(PROXY_AUTHORIZATION, value);
        }
        let declared = DownloadTarget::read(&self.request.url);
        let own =
            declared.is_some_and(|url| url.authority == self.at.authority && url.secure == self.at.secure);
        for (name, value) in self.request.headers.iter().filter(|_| own) {
            let parsed = HeaderName::try_from(name).ok().zip(HeaderValue::from_str(value).ok());
            let (key, value) = parsed.ok_or_else(|| DownloadError::Header(name.clone()))?;
            headers.insert(key, value);
        }
        if self.resumed > 0 || self.offset > 0 {
            let range = HeaderValue::from_str(&format!("bytes={}-", self.offset)).map_err(|_| failed())?;
            headers.insert(RANGE, range);
            headers.extend(self.validator.clone().map(|validator| (IF_RANGE, validator)));
        }
        Ok(request)
    }

    async fn dial(&self) -> Result<Box<dyn Duplex>, DownloadError> {
        let failed = |why: String| DownloadError::Dial { host: self.at.authority.clone(), why };
        let proxy = self.at.proxy(&self.request.proxies);
        let address = proxy.map_or_else(|| self.at.address(), ProxyUrl::authority);
        let mut stream = TcpStream::connect(&address).await.map_err(|error| failed(error.to_string()))?;
        if !self.at.secure {
            return Ok(Box::new(stream));
        }
        if let Some(proxy) = proxy {
            let opened = open_tunnel(&mut stream, &self.at.address(), proxy).await;
            opened.map_err(|error| failed(chain(&error)))?;
        }
        let name =
            ServerName::try_from(self.at.host().to_owned()).map_err(|error| failed(error.to_string()))?;
        let tls = match self.tls.get() {
            Some(known) => known.clone(),
            None => {
                let made = tls_of(&self.request.roots_pem)?;
                self.tls.get_or_init(|| made).clone()
            }
        };
        let session = TlsConnector::from(tls).connect(name, stream).await;
        Ok(Box::new(session.map_err(|error| failed(error.to_string()))?))
    }

    fn no_dial(&self, error: &hyper::Error) -> DownloadError {
        DownloadError::Dial { host: self.at.authority.clone(), why: error.to_string() }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn timeout(&self) -> DownloadError {
        DownloadError::Timeout { url: self.at.to_string(), after: self.request.timeout }
    }

    /// The next bytes; none at the end.
    fn next(&mut self) -> Result<Bytes, DownloadError> {
        loop {
            if self.left().is_zero() {
                return Err(self.timeout());
            }
            let wait = self.left().min(MAX_SILENCE);
            let Some(body) = self.body.as_mut() else { return Ok(Bytes::new()) };
            let frame = self.runtime.block_on(async { tokio::time::timeout(wait, body.frame()).await });
            match frame {
                Ok(Some(Ok(frame))) => {
                    let Ok(mut data) = frame.into_data() else { continue };
                    let passed = self.skip.min(data.len() as u64);
                    self.skip -= passed;
                    data.advance(usize::try_from(passed).unwrap_or(data.len()));
                    if !data.is_empty() {
                        self.offset += data.len() as u64;
                        return Ok(data);
                    }
                }
                Ok(None) if self.skip == 0 && self.total.is_none_or(|total| self.offset >= total) => {
                    return Ok(Bytes::new());
                }
                Ok(None) => self.resume("it is shorter than was announced")?,
                Ok(Some(Err(error))) => self.resume(&error.to_string())?,
                Err(_) => self.resume("the server is silent")?,
            }
        }
    }
}

impl Read for Download {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.data.is_empty() {
            self.data = self.next().map_err(io::Error::other)?;
        }
        let count = self.data.len().min(buffer.len());
        self.data.copy_to_slice(&mut buffer[..count]);
        Ok(count)
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// Where something is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DownloadTarget {
    secure: bool,
    authority: String,
    path: String,
}

impl std::fmt::Display for DownloadTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

impl DownloadTarget {
    /// A URL with a user's name is refused: it belongs into a header.
    fn read(url: &str) -> Option<DownloadTarget> {
        let uri: http::Uri = url.split('#').next()?.parse().ok()?;
        let secure = match uri.scheme_str()? {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let authority = uri.authority()?.as_str().to_owned();
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        (!authority.contains('@')).then(|| DownloadTarget { secure, authority, path: path.to_owned() })
    }

    fn host(&self) -> &str {
        let host = match self.authority.rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
            _ => &self.authority,
        };
        host.trim_start_matches('[').trim_end_matches(']')
    }

    /// `host:port`.
    fn address(&self) -> String {
        let has_port = self.authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        match (has_port, self.secure) {
            (true, _) => self.authority.clone(),
            (false, true) => format!("{}:443", self.authority),
            (false, false) => format!("{}:80", self.authority),
        }
    }

    /// Where a redirect leads.
    fn redirected(&self, headers: &HeaderMap) -> Result<DownloadTarget, DownloadError> {
        let to = headers.get(LOCATION).and_then(|to| to.to_str().ok()).unwrap_or_default();
        let refused = |why| {
            let (url, to) = (self.to_string(), to.to_owned());
            DownloadError::Redirect { url, to, why }
        };
        let target = match to {
            "" => None,
            path if path.starts_with("//") => {
                DownloadTarget::read(&format!("{}:{path}", if self.secure { "https" } else { "http" }))
            }
            path if path.starts_with('/') => Some(DownloadTarget { path: path.to_owned(), ..self.clone() }),
            url if url.contains("://") => DownloadTarget::read(url),
            relative => {
                let parent = self.path.split('?').next().unwrap_or("/");
                let parent = parent.rsplit_once('/').map_or("", |(parent, _)| parent);
                Some(DownloadTarget { path: format!("{parent}/{relative}"), ..self.clone() })
            }
        };
        match target {
            None => Err(refused("it is no URL")),
            Some(target) if self.secure && !target.secure => Err(refused("it leaves HTTPS")),
            Some(target) => Ok(target),
        }
    }

    /// The proxy to go through; one whose URL cannot be read is none.
    fn proxy<'a>(&self, settings: &'a ProxySettings) -> Option<&'a ProxyUrl> {
        let proxy = if self.secure { &settings.https } else { &settings.http };
        proxy.as_ref()?.as_ref().ok().filter(|_| !settings.excepts(self.host()))
    }
}

fn tls_of(roots_pem: &[u8]) -> Result<Arc<ClientConfig>, DownloadError> {
    let mut roots = RootCertStore::empty();
    // A bundle may hold certificates that nobody can read; the others count.
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(roots_pem).filter_map(Result::ok));
    if roots.is_empty() {
        return Err(DownloadError::Roots);
    }
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|_| DownloadError::Roots)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// By what a content is known to be the same: an entity tag that is not weak, else its date.
fn validator(headers: &HeaderMap) -> Option<HeaderValue> {
    let tag = headers.get(ETAG).filter(|tag| !tag.as_bytes().starts_with(b"W/"));
    tag.or_else(|| headers.get(LAST_MODIFIED)).cloned()
}

fn number(value: Option<&HeaderValue>) -> Option<u64> {
    value?.to_str().ok()?.parse().ok()
}

/// Where a part begins.
fn starts_at(headers: &HeaderMap) -> Option<u64> {
    let range = headers.get(CONTENT_RANGE)?.to_str().ok()?;
    range.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirected(from: &str, to: &str) -> String {
        let headers = HeaderMap::from_iter([(LOCATION, HeaderValue::from_str(to).unwrap())]);
        match DownloadTarget::read(from).unwrap().redirected(&headers) {
            Ok(target) => target.to_string(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_redirect_never_leaves_https() {
        let https = "https://a.example/x/y?q";
        assert!(redirected(https, "http://a.example/x").ends_with("it leaves HTTPS"));
        assert_eq!(redirected(https, "https://b.example:8443/z"), "https://b.example:8443/z");
        assert_eq!(redirected(https, "/z?p"), "https://a.example/z?p");
        assert_eq!(redirected(https, "z"), "https://a.example/x/z");
        assert_eq!(redirected(https, "//c.example/z"), "https://c.example/z");
        assert_eq!(redirected("http://a.example/", "https://a.example/"), "https://a.example/");
        assert!(redirected(https, "ftp://a.example/").ends_with("it is no URL"));
        assert_eq!(DownloadTarget::read("https://user:secret@a.example/"), None);
    }

    #[test]
    fn a_proxy_is_taken_unless_the_host_is_excepted() {
        let none = " .corp.example, 10.0.0.1,localhost".to_owned();
        let settings =
            ProxySettings { https: Some("http://p:3128".parse()), http: Some("q:8080".parse()), none };
        let proxy = |url: &str| DownloadTarget::read(url).unwrap().proxy(&settings).map(ProxyUrl::authority);
        assert_eq!(proxy("https://a.example/"), Some("p:3128".to_owned()));
        assert_eq!(proxy("http://a.example/"), Some("q:8080".to_owned()));
        assert_eq!(proxy("https://x.corp.example/"), None);
        assert_eq!(proxy("https://xcorp.example/"), Some("p:3128".to_owned()));
        assert_eq!(proxy("http://localhost:99/"), None);
        assert_eq!(DownloadTarget::read("https://[::1]/x").unwrap().address(), "[::1]:443");
        assert_eq!(DownloadTarget::read("https://[::1]:8/x").unwrap().host(), "::1");
    }
}
