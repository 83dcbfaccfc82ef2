//! [`ConnectProxy`]: an HTTP proxy that opens tunnels (`CONNECT`), as a network that lets nothing else out has one.
//! It alone knows the name [`HIDDEN`]: who reaches a control plane of this name went through it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A name that only the proxy resolves, to loopback (RFC 2606: it never has an address elsewhere).
pub const HIDDEN: &str = "control.invalid";

/// What the proxy was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxiedRequest {
    /// Its first line.
    pub line: String,
    /// Its `Proxy-Authorization`.
    pub authorization: Option<String>,
    /// What came first through the tunnel; empty while nothing did.
    pub first: Vec<u8>,
}

/// A proxy that serves until the test ends.
pub struct ConnectProxy {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<ProxiedRequest>>>,
}

impl ConnectProxy {
    /// Starts one that asks for this value of `Proxy-Authorization`, if any.
    pub fn start(authorization: Option<&str>) -> ConnectProxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<ProxiedRequest>>>::default();
        let (seen, wants) = (requests.clone(), authorization.map(str::to_owned));
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let (seen, wants) = (seen.clone(), wants.clone());
                // What breaks off is the agent's to tell.
                std::thread::spawn(move || drop(serve(near, wants.as_deref(), &seen)));
            }
        });
        ConnectProxy { address, requests }
    }

    /// Where it is, without user and password.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What was asked of it so far.
    pub fn requests(&self) -> Vec<ProxiedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(mut near: TcpStream, wants: Option<&str>, seen: &Mutex<Vec<ProxiedRequest>>) -> io::Result<()> {
    let head = read_head(&mut near)?;
    let line = head.lines().next().unwrap_or_default().to_owned();
    let authorization = head.lines().find_map(|line| line.strip_prefix("Proxy-Authorization: "));
    let request = ProxiedRequest {
        line: line.clone(),
        authorization: authorization.map(str::to_owned),
        first: Vec::new(),
    };
    let number = {
        let mut seen = seen.lock().unwrap();
        seen.push(request);
        seen.len() - 1
    };
    if wants != authorization {
        let asks =
            b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic realm=\"x\"\r\n\r\n";
        return near.write_all(asks);
    }
    let to = line.strip_prefix("CONNECT ").and_then(|rest| rest.strip_suffix(" HTTP/1.1"));
    let Some(to) = to else { return near.write_all(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n") };
    let Ok(mut far) = TcpStream::connect(to.replace(HIDDEN, "127.0.0.1")) else {
        return near.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n");
    };
    near.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
    let (mut back, mut forth) = (far.try_clone()?, near.try_clone()?);
    std::thread::spawn(move || {
        let _ = io::copy(&mut back, &mut forth);
        let _ = forth.shutdown(Shutdown::Both);
    });
    let mut first = [0; 3];
    near.read_exact(&mut first)?;
    seen.lock().unwrap()[number].first = first.to_vec();
    far.write_all(&first)?;
    let _ = io::copy(&mut near, &mut far);
    far.shutdown(Shutdown::Both)
}

fn read_head(near: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        near.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
