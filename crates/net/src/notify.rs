//! What the service manager that started a program hears of it: that it serves, that it stops.
//!
//! The protocol is systemd's: one datagram of `NAME=VALUE` lines to the socket that `NOTIFY_SOCKET`
//! names, a path or, after `@`, an abstract name. Programs that nobody supervises say nothing.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// What a supervised program says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceState {
    /// It has started, and does its work now.
    Ready,
    /// It has to do something first, and starts within this time.
    StartsWithin(Duration),
    /// It was asked to stop, and lets its work end.
    Stopping,
}

/// Tells the service manager, if there is one. It is a courtesy: when it fails that is logged, and
/// the program goes on.
pub fn service_manager(state: ServiceState) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!(%error, "the service manager cannot be told: {state:?}");
    }
}

fn send(socket: &OsStr, state: ServiceState) -> io::Result<()> {
    let address = match socket.as_bytes().split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(socket)?,
    };
    let message = match state {
        ServiceState::Ready => "READY=1\n".to_owned(),
        ServiceState::StartsWithin(time) => format!("EXTEND_TIMEOUT_USEC={}\n", time.as_micros()),
        ServiceState::Stopping => "STOPPING=1\n".to_owned(),
    };
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(|_| ())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn heard(receiver: &UnixDatagram) -> Vec<u8> {
        let mut buffer = [0; 64];
        let length = receiver.recv(&mut buffer).unwrap();
        buffer[..length].to_vec()
    }

    #[test]
    fn both_kinds_of_sockets_hear_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let receiver = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), ServiceState::Ready).unwrap();
        assert_eq!(heard(&receiver), b"READY=1\n");

        let name = format!("muster-notify-{}", std::process::id());
        let receiver = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        send(&OsString::from(format!("@{name}")), ServiceState::Stopping).unwrap();
        assert_eq!(heard(&receiver), b"STOPPING=1\n");
        let name = OsString::from(format!("@{name}"));
        send(&name, ServiceState::StartsWithin(Duration::from_secs(3600))).unwrap();
        assert_eq!(heard(&receiver), b"EXTEND_TIMEOUT_USEC=3600000000\n");
    }

    #[test]
    fn a_manager_that_is_gone_is_an_error() {
        assert!(send(OsStr::new("/nowhere/notify"), ServiceState::Ready).is_err());
    }
}
