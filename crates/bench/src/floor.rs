//! The floor: what a check-in cannot cost less than. hyper, rustls with client
//! certificates, a signature of RFC 9421's shape, one verification, one JSON body.

use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use model::FleetId;
use model::exchange::{Answer, CheckIn};
use server::posture;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use trust::PublicKey;
use wire::signature;

use crate::BenchError;
use crate::fleet::now;

/// The file with the one key that the floor verifies with.
pub(super) const KEY_FILE: &str = "floor.pub";

/// Serves until killed; prints its address first.
#[allow(clippy::print_stdout, reason = "the parent reads the address")]
pub(super) async fn serve(dir: &Path) -> Result<(), BenchError> {
    let founded = posture::open(dir, None, now())?;
    let key: PublicKey = std::fs::read_to_string(dir.join(KEY_FILE))?.trim().parse()?;
    let names = vec!["127.0.0.1".to_owned()];
    let own = founded.node_ca.current().issue_server(
        &names,
        posture::random()?,
        net::issue::own_validity(now()),
    )?;
    let ca = founded.node_ca.current().cert_pem();
    let optional = net::tls::ClientAuth::Optional;
    let tls = TlsAcceptor::from(net::tls::server(&own.cert_pem, &own.key_pem, ca, ca, optional)?);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("https://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        let _ = stream.set_nodelay(true);
        tokio::spawn(connection(tls.clone(), stream, founded.trust.fleet.clone(), key));
    }
}

async fn connection(tls: TlsAcceptor, stream: tokio::net::TcpStream, fleet: FleetId, key: PublicKey) {
    let Ok(stream) = tls.accept(stream).await else { return };
    let known = Arc::new((fleet, key));
    let service = service_fn(move |request| {
        let known = known.clone();
        async move { Ok::<_, Infallible>(answer(&known.0, &known.1, request).await) }
    });
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn answer(fleet: &FleetId, key: &PublicKey, request: Request<Incoming>) -> Response<Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let mut response = Response::new(Full::default());
    let Ok(body) = body.collect().await.map(|body| body.to_bytes()) else { return response };
    let signed = signature::parse(&parts.headers);
    let signed =
        signed.and_then(|signed| signed.verify(&parts.method, &parts.uri, fleet, key, now())?.holds(&body));
    let parsed: Result<CheckIn, _> = serde_json::from_slice(&body);
    if signed.is_err() || parsed.is_err() {
        *response.status_mut() = http::StatusCode::BAD_REQUEST;
        return response;
    }
    let answer = Answer {
        next_checkin_secs: 30,
        acked: None,
        offer: None,
        beacon: None,
        run_request: None,
        tagged_run: None,
        rollout: None,
        stream_requested: false,
        want_traits: false,
        want_seen: false,
        want_header: false,
        want_run: false,
        unassigned: false,
        same_cause: Default::default(),
        server_time: None,
        trust_links: Vec::new(),
        renew_certificate: false,
        want_capabilities: false,
        identity_copied: false,
    };
    *response.body_mut() = Full::new(serde_json::to_vec(&answer).unwrap_or_default().into());
    response
}
