//! WIR-7: through an HTTP proxy (`CONNECT`) TLS goes end to end, with a user and password where the proxy asks for them;
//! a proxy that does something else is named with what it did, and TLS is opened with nobody else.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use model::text::chain;
use net::accept::AcceptLimits;
use net::client::{Client, ClientError, Http1};
use net::proxy::ProxyError;
use net::{Destination, ProxyUrl, ServerUrl};
use test_support::connect_proxy::{ConnectProxy, HIDDEN};
use test_support::tls_server::TlsServer;
use test_support::wait::soon;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

const PASSWORD: &str = "canary";

async fn server() -> TlsServer {
    TlsServer::named(&[HIDDEN], AcceptLimits::default(), true, |_| async {
        Response::new(Full::new(Bytes::from_static(b"here")))
    })
    .await
}

fn hidden(server: &TlsServer) -> ServerUrl {
    format!("https://{HIDDEN}:{}", server.address.port()).parse().unwrap()
}

fn through(url: ServerUrl, proxy: &str) -> Destination {
    let proxy: ProxyUrl = proxy.parse().unwrap();
    Destination { url, proxy: Some(Arc::new(proxy)) }
}

#[tokio::test]
async fn a_name_that_the_proxy_alone_knows_is_reached() {
    let (server, proxy) = (server().await, ConnectProxy::start(Some("Basic dTpjYW5hcnk=")));
    let url = hidden(&server);
    let to = through(url.clone(), &format!("http://u:{PASSWORD}@{}", proxy.address));
    let mut client = soon(Client::dial(to.clone(), server.node(1))).await.unwrap();
    let request = Request::get(format!("https://{}/", url.authority())).body(Full::default()).unwrap();
    let answer = client.call(request, 64, net::client::DIAL_TIMEOUT).await.unwrap();
    assert_eq!(&answer.into_body()[..], b"here");
    soon(Http1::dial(to, &server.node(1))).await.unwrap();
    let seen = proxy.requests();
    assert_eq!(seen.len(), 2);
    for request in seen {
        assert_eq!(request.line, format!("CONNECT {} HTTP/1.1", url.authority()));
        assert_eq!(request.first[..2], [22, 3], "TLS, and nothing before it");
    }
    // Directly there is no such name.
    let direct = soon(Client::dial(&url, server.node(1))).await.unwrap_err();
    assert!(matches!(direct, ClientError::UnknownName { .. }), "{direct:?}");
}

#[tokio::test]
async fn a_user_and_password_are_asked_for() {
    let (server, proxy) = (server().await, ConnectProxy::start(Some("Basic dTpjYW5hcnk=")));
    for (login, says) in [
        ("", "asks for a user and password, and none are set"),
        ("u:canary2@", "does not take the user and password"),
    ] {
        let to = through(hidden(&server), &format!("http://{login}{}", proxy.address));
        let error = soon(Client::dial(to, server.node(1))).await.unwrap_err();
        let text = format!("{} {error:?}", chain(&error));
        assert!(text.contains(says) && text.contains(&proxy.url()), "{text}");
        assert!(!text.contains(PASSWORD), "{text}");
    }
}

/// The certificate is judged as without a proxy.
#[tokio::test]
async fn a_proxy_that_leads_elsewhere_is_not_believed() {
    let (server, other, proxy) = (server().await, server().await, ConnectProxy::start(None));
    let to = through(hidden(&other), &proxy.url());
    let error = soon(Client::dial(to, server.node(1))).await.unwrap_err();
    assert!(matches!(error, ClientError::ForeignServer { .. }), "{error:?}");
}

/// What a proxy does once it was asked.
#[derive(Clone, Copy)]
enum Answer {
    Bytes(&'static [u8]),
    /// These, again and again.
    For(&'static [u8], usize),
    /// Nothing at all; the test's clock then goes on to the client's bound.
    Hang,
}

/// Answers one request so; the second value is how many bytes came after its head.
async fn answering(answer: Answer) -> (String, JoinHandle<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let after = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let _ = said(&mut stream, answer).await;
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        rest.len()
    });
    (format!("http://u:{PASSWORD}@{address}"), after)
}

async fn said(stream: &mut TcpStream, answer: Answer) -> io::Result<()> {
    match answer {
        Answer::Bytes(bytes) => stream.write_all(bytes).await?,
        Answer::For(bytes, times) => {
            for _ in 0..times {
                stream.write_all(bytes).await?;
            }
        }
        Answer::Hang => {
            tokio::time::pause();
            return Ok(());
        }
    }
    stream.shutdown().await
}

async fn refused(answer: Answer) -> (ProxyError, String) {
    let (proxy, _) = answering(answer).await;
    let (url, server) = ("https://control.example:1530".parse().unwrap(), server().await);
    let error = soon(Client::dial(through(url, &proxy), server.node(1))).await.unwrap_err();
    let text = format!("{} {error:?}", chain(&error));
    assert!(!text.contains(PASSWORD) && text.len() < 2000, "{text}");
    let ClientError::Proxy { source, .. } = error else { panic!("{text}") };
    (source, text)
}

#[tokio::test]
async fn what_a_proxy_does_instead_is_named() {
    use Answer::{Bytes, For};
    type Is = fn(&ProxyError) -> bool;
    let cases: [(Answer, Is, &str); 12] = [
        (Bytes(b"HTTP/1.1 403 Forbidden\r\n\r\n"), |it| matches!(it, ProxyError::Refused(_)), "403 Forbidden"),
        (
            Bytes(b"HTTP/1.0 502 \x1b[2Jx\r\n\r\n"),
            |it| matches!(it, ProxyError::Refused(_)),
            "502 ?[2Jx",
        ),
        (
            Bytes(b"HTTP/1.1 407 No\r\nProxy-Authenticate: Negotiate\r\nproxy-authenticate: NTLM\r\n\r\n"),
            |it| matches!(it, ProxyError::CredentialsOther(_)),
            "only: Negotiate, NTLM",
        ),
        (
            Bytes(b"HTTP/1.1 407 No\r\nProxy-Authenticate: Basic realm=\"a b\"\r\n\r\n"),
            |it| matches!(it, ProxyError::CredentialsRefused),
            "does not take the user",
        ),
        // A captive portal that says yes to everything.
        (
            Bytes(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 21\r\n\r\n<html>Sign in!</html>"),
            |it| matches!(it, ProxyError::Page(_)),
            "<html>Sign in!</html>",
        ),
        (
            Bytes(b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 400 Bad Request\r\n\r\n"),
            |it| matches!(it, ProxyError::Page(_)),
            "HTTP/1.1 400",
        ),
        (Bytes(b"HTTP/1.1 200 OK\r\n\r\n"), |it| matches!(it, ProxyError::Closed), "before anything came"),
        (Bytes(b""), |it| matches!(it, ProxyError::Closed), "before anything came"),
        (Bytes(b"HTTP/1.1 200 OK\r\n"), |it| matches!(it, ProxyError::Closed), "before anything came"),
        (Bytes(b"SSH-2.0-x\r\n"), |it| matches!(it, ProxyError::NotHttp(_)), "no HTTP proxy"),
        (Bytes(b"<html></html>\r\n\r\n"), |it| matches!(it, ProxyError::NotHttp(_)), "no HTTP proxy"),
        (
            For(b"HTTP/1.1 200 a head of one MiB ", 1024 * 1024 / 31),
            |it| matches!(it, ProxyError::HeadTooLong),
            "longer than 8192 bytes",
        ),
    ];
    for (answer, is, says) in cases {
        let (error, text) = refused(answer).await;
        assert!(is(&error) && text.contains(says), "{says}: {text}");
    }
}

#[tokio::test]
async fn one_that_does_not_answer_is_waited_for_within_a_bound() {
    let (error, text) = refused(Answer::Hang).await;
    assert!(matches!(error, ProxyError::Silent), "{text}");
}

#[tokio::test]
async fn one_that_is_not_there_is_named() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let server = server().await;
    for (proxy, says) in [
        (format!("http://{free}"), "the proxy cannot be reached: no address takes a connection"),
        ("http://proxy.invalid:3128".to_owned(), "the name proxy.invalid is not known"),
    ] {
        let error = soon(Client::dial(through(hidden(&server), &proxy), server.node(1))).await.unwrap_err();
        let text = chain(&error);
        assert!(matches!(error, ClientError::Proxy { source: ProxyError::Unreachable(_), .. }), "{text}");
        assert!(text.contains(says) && text.contains(&proxy), "{text}");
    }
}

/// A refusal is the end: nothing is tried past the proxy, and no TLS is begun with it.
#[tokio::test]
async fn nothing_is_said_to_a_proxy_that_refuses() {
    let (proxy, after) = answering(Answer::Bytes(b"HTTP/1.1 403 Forbidden\r\n\r\n")).await;
    let server = server().await;
    let to = through(server.url.clone(), &proxy);
    soon(Client::dial(to, server.node(1))).await.unwrap_err();
    assert_eq!(soon(after).await.unwrap(), 0);
}
