//! [`SessionStream`]: a TLS session that tells its sudden end in words, and why the other side ended it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use rustls::AlertDescription;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

/// A TLS session over some connection. Where the other side is gone without an end of the session, as when it was
/// killed, the library's own text is a link to its manual: people read this one.
pub(crate) struct SessionStream<IO> {
    tls: TlsStream<IO>,
    refusal: CertificateRefusal,
}

/// Why the other side takes this side's certificate for none that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefusedCertificate {
    /// It is revoked.
    Revoked,
    /// The CA that issued it counts no more there, or what it issued so early.
    UnknownAuthority,
}

/// Whether the other side ended a session for this side's certificate. With TLS 1.3 it says so after the handshake, to
/// whoever reads then. Cheap to clone: all clones are one.
#[derive(Clone, Debug, Default)]
pub(crate) struct CertificateRefusal(Arc<OnceLock<RefusedCertificate>>);

impl CertificateRefusal {
    /// Why, if it did.
    pub(crate) fn reason(&self) -> Option<RefusedCertificate> {
        self.0.get().copied()
    }

    /// Takes it out of an error of the session.
    pub(crate) fn note(&self, error: &io::Error) {
        let why = error.get_ref().and_then(|why| why.downcast_ref::<rustls::Error>());
        let Some(rustls::Error::AlertReceived(alert)) = why else { return };
        let refused = match alert {
            AlertDescription::CertificateRevoked => RefusedCertificate::Revoked,
            AlertDescription::UnknownCA => RefusedCertificate::UnknownAuthority,
            _ => return,
        };
        // The first word counts: there is one alert in a session.
        let _ = self.0.set(refused);
    }
}

impl<IO> SessionStream<IO> {
    /// A session, and where it is noted that the certificate was refused.
    pub(crate) fn new(tls: TlsStream<IO>, refusal: CertificateRefusal) -> SessionStream<IO> {
        SessionStream { tls, refusal }
    }
}

/// What is said of a connection that is gone in the middle of its session.
const GONE: &str = "the other side closed the connection without ending the TLS session";

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncRead for SessionStream<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.tls).poll_read(cx, buf);
        read.map_err(|error| match error.kind() {
            kind @ io::ErrorKind::UnexpectedEof => io::Error::new(kind, GONE),
            _ => {
                self.refusal.note(&error);
                error
            }
        })
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for SessionStream<IO> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tls).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.tls.is_write_vectored()
    }
}
