//! A listener for scrapers that have no certificate: metrics, health and readiness alone, in
//! plain HTTP/1.1. Off unless it is asked for.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use net::accept::stopped;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use super::gather;
use crate::answer::PortReply;
use crate::state::ControlPlane;

/// Scrapers at once; more wait in the kernel's queue.
const CONNECTIONS: usize = 16;
/// How long a connection may live: a scrape fits many times.
const AGE: Duration = Duration::from_secs(60);
/// How long the head of a request may take.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// How long to wait after accepting failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `shutdown` becomes true.
pub(crate) async fn serve(
    listener: TcpListener,
    plane: Arc<ControlPlane>,
    mut shutdown: watch::Receiver<bool>,
) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let permit = tokio::select! {
            permit = permits.clone().acquire_owned() => permit,
            () = stopped(&mut shutdown) => return,
        };
        let Ok(permit) = permit else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut shutdown) => return,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (plane, mut shutdown) = (plane.clone(), shutdown.clone());
        tokio::spawn(async move {
            let _permit = permit;
            let answer = service_fn(move |request| {
                let reply = answer(&plane, &request);
                async move { Ok::<_, Infallible>(reply) }
            });
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_headers(64);
            let served = http.serve_connection(TokioIo::new(stream), answer);
            tokio::select! {
                _ = tokio::time::timeout(AGE, served) => {}
                () = stopped(&mut shutdown) => {}
            }
        });
    }
}

fn answer(plane: &ControlPlane, request: &Request<Incoming>) -> PortReply {
    let asked = (request.method() == http::Method::GET).then_some(request.uri().path());
    let answer = asked.and_then(|path| gather::answer(plane, path));
    answer.unwrap_or_else(|| gather::plain(StatusCode::NOT_FOUND, "not found\n".to_owned()))
}
