//! The socket's server: who may connect, how many, how long, how much.

use std::convert::Infallible;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use net::tasks;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

use super::handler::LocalHandler;
use super::problem::{LocalProblem, LocalProblemCode};
use super::route::{self, LocalAccess};

/// The most connections of those who may do everything, and as many of those who may only read: readers
/// cannot lock root out.
pub const MAX_CONNECTIONS: usize = 8;
/// The longest request body, in bytes.
pub const MAX_BODY: usize = 64 * 1024;
/// How long a request may take to arrive.
pub const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection lives, a plan that waits for its commands included.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// What is read ahead of a request, in bytes.
const READ_BUFFER: usize = 16 * 1024;
/// The wait after a connection could not be accepted, as when no descriptors are left.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);
/// The socket's mode. What a caller may do is decided by its credentials, not by this.
const SOCKET_MODE: u32 = 0o660;
/// The longest path that an address of a socket holds, in bytes.
const MAX_ADDRESS: usize = 100;

/// Why the socket cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum BindSocketError {
    /// Another agent answers there.
    #[error("another agent listens on {}", .0.display())]
    Live(PathBuf),
    /// What is there is no socket.
    #[error("{} is there and is no socket", .0.display())]
    NoSocket(PathBuf),
    /// The operating system refuses.
    #[error("cannot listen on {}", path.display())]
    Bind {
        /// The socket.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// An open socket. Its file goes with it.
pub struct LocalSocket {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of its file.
    file: (u64, u64),
}

impl LocalSocket {
    /// Opens the socket in place of a dead agent's.
    ///
    /// # Errors
    /// [`BindSocketError`] says what is in the way; what is there stays.
    pub fn bind(path: &Path) -> Result<LocalSocket, BindSocketError> {
        let failed = |source| BindSocketError::Bind { path: path.to_owned(), source };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        match fs::symlink_metadata(path) {
            Ok(there) if !there.file_type().is_socket() => {
                return Err(BindSocketError::NoSocket(path.to_owned()));
            }
            Ok(_) if connect(path).is_ok() => return Err(BindSocketError::Live(path.to_owned())),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        // Complete before it is visible: no caller finds it with another mode.
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let new = path.with_file_name(name);
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
        let (_directory, address) = address(&new).map_err(failed)?;
        let listener = StdListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        fs::set_permissions(&new, fs::Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
        fs::rename(&new, path).map_err(failed)?;
        let there = fs::symlink_metadata(path).map_err(failed)?;
        let listener = UnixListener::from_std(listener).map_err(failed)?;
        Ok(LocalSocket { listener, path: path.to_owned(), file: (there.dev(), there.ino()) })
    }

    /// Answers, until it is dropped. `own`: the agent's own user, who may do what root may.
    pub(crate) async fn serve(self, handler: Arc<LocalHandler>, own: u32) {
        let acting = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let reading = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let stream = match self.listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::debug!(%error, "no connection could be accepted on the socket");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let access = access(&stream, own);
            let room = if access == LocalAccess::Act { &acting } else { &reading };
            let Ok(permit) = room.clone().try_acquire_owned() else {
                refuse(stream);
                continue;
            };
            let handler = handler.clone();
            tasks::spawn(async move {
                converse(stream, access, handler).await;
                drop(permit);
            });
        }
    }
}

impl Drop for LocalSocket {
    fn drop(&mut self) {
        let same = |there: fs::Metadata| (there.dev(), there.ino()) == self.file;
        if fs::symlink_metadata(&self.path).is_ok_and(same) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Connects to the socket at a path.
///
/// # Errors
/// Those of the operating system.
pub fn connect(path: &Path) -> io::Result<StdStream> {
    let (_directory, address) = address(path)?;
    StdStream::connect(address)
}

/// A path that fits into an address of a socket: a long one goes by way of its open directory.
fn address(path: &Path) -> io::Result<(Option<File>, PathBuf)> {
    if path.as_os_str().len() <= MAX_ADDRESS {
        return Ok((None, path.to_owned()));
    }
    let directory = File::open(path.parent().unwrap_or(Path::new("/")))?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    let short = short.join(path.file_name().unwrap_or_default());
    Ok((Some(directory), short))
}

/// What the caller may do, by the credentials that the kernel gives.
fn access(stream: &UnixStream, own: u32) -> LocalAccess {
    match stream.peer_cred() {
        Ok(caller) if caller.uid() == 0 || caller.uid() == own => LocalAccess::Act,
        Ok(_) | Err(_) => LocalAccess::Read,
    }
}

/// One request and its answer.
async fn converse(stream: UnixStream, access: LocalAccess, handler: Arc<LocalHandler>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let handler = handler.clone();
        async move { Ok::<_, Infallible>(answer(request, access, &handler).await) }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(READ_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(READ_BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_TIMEOUT, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection to the socket broke"),
        Err(_) => tracing::debug!("a connection to the socket took too long"),
    }
}

async fn answer(
    request: Request<Incoming>,
    access: LocalAccess,
    handler: &Arc<LocalHandler>,
) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let Some(route) = route::find(parts.method.as_str(), path) else {
        let text = format!("this agent has no {} {path}", parts.method);
        return refusal(&LocalProblem::new(LocalProblemCode::NoRoute, text));
    };
    if route.access == LocalAccess::Act && access == LocalAccess::Read {
        let text = "only root and the agent's own user may do this";
        return refusal(&LocalProblem::new(LocalProblemCode::NotAllowed, text).with_next("run it with sudo"));
    }
    let read = tokio::time::timeout(READ_TIMEOUT, Limited::new(body, MAX_BODY).collect());
    let body = match read.await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) | Err(_) => {
            let text = format!(
                "the body did not arrive within {} s, or is longer than {MAX_BODY} bytes",
                READ_TIMEOUT.as_secs()
            );
            return refusal(&LocalProblem::new(LocalProblemCode::BadRequest, text));
        }
    };
    let query = parts.uri.query().unwrap_or_default();
    match handler.carry_out(route.call, access, query, &body).await {
        Ok(json) => response(200, json),
        Err(problem) => refusal(&problem),
    }
}

fn refusal(problem: &LocalProblem) -> Response<Full<Bytes>> {
    response(problem.code.status(), serde_json::to_vec(problem).unwrap_or_default())
}

fn response(status: u16, json: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(json)));
    *response.status_mut() = http::StatusCode::from_u16(status).unwrap_or_default();
    response.headers_mut().insert(header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

/// Says that there are too many, as far as that can be said without waiting.
fn refuse(stream: UnixStream) {
    let text = format!("{MAX_CONNECTIONS} others speak with the agent already");
    let problem = LocalProblem::new(LocalProblemCode::Busy, text).with_next("try again in a moment");
    let json = serde_json::to_string(&problem).unwrap_or_default();
    let head = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-type: application/json";
    if let Ok(mut stream) = stream.into_std() {
        let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{json}", json.len());
    }
}
