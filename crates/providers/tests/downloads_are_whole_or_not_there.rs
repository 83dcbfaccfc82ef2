//! EXE-1: a download goes on where it broke off, becomes visible whole or not at all, and a server that
//! lies about it is named with both digests.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use catalog::schema::{BindContext, bind};
use catalog::types::Spec;
use common::{Lab, lab, mode};
use lang::Value;
use model::Digest;
use serde_json::json;

/// The requests that a server saw: first lines and headers, in lower case.
type Seen = Arc<Mutex<Vec<Vec<String>>>>;

/// A server that answers the n-th request by `answer`, then closes the connection.
fn serve(answer: impl Fn(usize, &[String], &mut TcpStream) + Send + 'static) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Seen::default();
    let log = seen.clone();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .map(|line| line.to_lowercase())
                .collect();
            log.lock().unwrap().push(head.clone());
            answer(number, &head, &mut stream);
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
    (url, seen)
}

fn say(stream: &mut TcpStream, head: &str, body: &[u8]) {
    let _ = stream.write_all(head.replace('\n', "\r\n").as_bytes());
    let _ = stream.write_all(b"\r\n\r\n");
    let _ = stream.write_all(body);
}

fn spec(url: &str, digest: Digest, more: serde_json::Value) -> Spec {
    let mut attributes = json!({"url": url, "sha256": digest.to_string()});
    attributes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let attributes: BTreeMap<String, Value> = serde_json::from_value(attributes).unwrap();
    let context = BindContext { files: &BTreeMap::new(), rendered: None };
    bind("download", "/opt/tool", &attributes, &context).unwrap()
}

fn opt() -> Lab {
    let lab = lab();
    fs::create_dir_all(lab.path("/opt")).unwrap();
    lab
}

/// The names that are left in the directory.
fn names(lab: &Lab) -> Vec<String> {
    let names = fs::read_dir(lab.path("/opt")).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn body() -> Vec<u8> {
    (0..300_000u32).flat_map(|number| number.to_le_bytes()).collect()
}

#[test]
fn it_is_fetched_once_and_again_only_when_it_differs() {
    let lab = opt();
    let (url, seen) = serve(|_, _, stream| {
        say(stream, &format!("HTTP/1.1 200 OK\nContent-Length: {}", body().len()), &body());
    });
    let more = json!({"mode": "0600", "headers": {"X-Token": "secret"}});
    let spec = spec(&format!("{url}/tool?x=1"), Digest::of(&body()), more);
    assert!(lab.apply(&spec).unwrap().changed);
    assert!(lab.check(&spec).edit.is_none());
    assert!(!lab.apply(&spec).unwrap().changed);
    assert_eq!((fs::read(lab.path("/opt/tool")).unwrap(), mode(&lab.path("/opt/tool"))), (body(), 0o600));
    assert_eq!(names(&lab), ["tool"]);
    let requests = seen.lock().unwrap().clone();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0][0], "get /tool?x=1 http/1.1");
    assert!(requests[0].contains(&"x-token: secret".to_owned()));
    assert!(!format!("{spec:?}").contains("secret"));
    lab.write("/opt/tool", b"by hand");
    assert!(lab.apply(&spec).unwrap().changed);
    assert_eq!(seen.lock().unwrap().len(), 2);
}

#[test]
fn what_breaks_off_goes_on_where_it_was() {
    let lab = opt();
    let (url, seen) = serve(|number, head, stream| {
        let body = body();
        let range = head.iter().find_map(|line| line.strip_prefix("range: bytes=")?.strip_suffix('-'));
        let from: usize = range.map_or(0, |from| from.parse().unwrap());
        let to = (from + 400_000).min(body.len());
        let (whole, part) = (body.len(), body.len() - from);
        match from {
            0 => say(stream, &format!("HTTP/1.1 200 OK\nETag: \"a\"\nContent-Length: {whole}"), &body[..to]),
            _ => {
                let range = format!("Content-Range: bytes {from}-{}/{whole}", whole - 1);
                let head =
                    format!("HTTP/1.1 206 Partial Content\nETag: \"a\"\nContent-Length: {part}\n{range}");
                say(stream, &head, &body[from..to]);
            }
        }
        assert!(number < 10);
    });
    let spec = spec(&url, Digest::of(&body()), json!({}));
    assert!(lab.apply(&spec).unwrap().changed);
    assert_eq!(fs::read(lab.path("/opt/tool")).unwrap(), body());
    let requests = seen.lock().unwrap();
    assert!(requests.len() >= 3, "{requests:?}");
    assert!(requests[1].contains(&"if-range: \"a\"".to_owned()), "{:?}", requests[1]);
}

#[test]
fn what_begins_anew_is_passed_over_and_what_changed_is_refused() {
    for (second, right) in [("a", true), ("b", false)] {
        let lab = opt();
        let (url, _) = serve(move |number, _, stream| {
            let (tag, to) = if number == 0 { ("a", 300_000) } else { (second, body().len()) };
            let head = format!("HTTP/1.1 200 OK\nETag: \"{tag}\"\nContent-Length: {}", body().len());
            say(stream, &head, &body()[..to]);
        });
        let spec = spec(&url, Digest::of(&body()), json!({}));
        match lab.apply(&spec) {
            Ok(applied) => assert!(right && applied.changed),
            Err(why) => {
                assert!(!right && why.contains("changed while it was fetched"), "{why}");
                assert!(names(&lab).is_empty());
            }
        }
    }
}

#[test]
fn a_download_that_lies_or_shrinks_changes_nothing() {
    let wanted = Digest::of(b"what was declared");
    let given = Digest::of(b"something else");
    let both =
        format!("is sha256:{given} (14 bytes) and not the declared sha256:{wanted}; nothing was written");
    let table: Vec<(&str, &[u8], &str)> = vec![
        ("HTTP/1.1 200 OK\nContent-Length: 14", b"something else", &both),
        ("HTTP/1.1 200 OK\nContent-Length: 99", b"something", "broke off after 9 bytes of 99"),
        // More than was announced is not read.
        ("HTTP/1.1 200 OK\nContent-Length: 14", b"something else, and more", &both),
        ("HTTP/1.1 200 OK\nContent-Length: 999999999999", b"", "at most 268435456 are fetched"),
        ("HTTP/1.1 404 Not Found\nContent-Length: 2", b"no", "answered 404 Not Found"),
        ("HTTP/1.1 302 Found\nLocation: /again", b"", "there are too many redirects"),
        ("HTTP/1.1 302 Found\nLocation: ftp://x/", b"", "it is no URL"),
        ("nonsense", b"", "no connection to 127.0.0.1"),
    ];
    for (head, body, words) in table {
        let lab = opt();
        lab.write("/opt/tool", b"before");
        let (head, body) = (head.to_owned(), body.to_owned());
        let (url, _) = serve(move |number, request, stream| {
            // What broke off is never continued.
            match number > 0 && request.iter().any(|line| line.starts_with("range:")) {
                true => drop(stream.shutdown(Shutdown::Both)),
                false => say(stream, &head, &body),
            }
        });
        let why = lab.apply(&spec(&url, wanted, json!({}))).unwrap_err();
        assert!(why.contains(words), "{why}");
        assert_eq!(lab.read("/opt/tool"), "before");
        assert_eq!(names(&lab), ["tool"]);
    }
}

#[test]
fn headers_do_not_follow_a_redirect_to_another_host() {
    let lab = opt();
    let (there, seen) = serve(|_, _, stream| say(stream, "HTTP/1.1 200 OK\nContent-Length: 1", b"x"));
    let target = there.replace("127.0.0.1", "localhost");
    let (url, _) = serve(move |_, _, stream| {
        say(stream, &format!("HTTP/1.1 302 Found\nContent-Length: 0\nLocation: {target}/x"), b"");
    });
    let spec = spec(&url, Digest::of(b"x"), json!({"headers": {"Authorization": "secret"}}));
    assert!(lab.apply(&spec).unwrap().changed);
    assert!(!seen.lock().unwrap()[0].iter().any(|line| line.contains("secret")));
}

#[test]
fn a_redirect_from_http_to_https_begins_tls_with_the_cas_of_the_host() {
    let lab = opt();
    let ca = concat!(env!("CARGO_MANIFEST_DIR"), "/../server/tests/golden/directory/operator-ca.pem");
    fs::copy(ca, lab.path("/opt/ca.pem")).unwrap();
    // It speaks no TLS: that it is asked to is what counts.
    let (there, _) = serve(|_, _, _| ());
    let target = there.replace("http:", "https:");
    let (url, _) = serve(move |_, _, stream| {
        say(stream, &format!("HTTP/1.1 301 Moved Permanently\nContent-Length: 0\nLocation: {target}/x"), b"");
    });
    let with = |ca: &str| spec(&url, Digest::of(b"x"), json!({"ca_file": ca}));
    let error = lab.apply(&with("/opt/ca.pem")).unwrap_err();
    assert!(!error.contains("no certificate of a CA"), "{error}");
    assert!(error.contains("no connection to 127.0.0.1:"), "{error}");
    assert!(lab.apply(&with("/opt/none.pem")).unwrap_err().contains("no certificate of a CA"));
}

#[test]
fn a_server_that_is_away_and_a_directory_in_its_place_are_failures() {
    let lab = opt();
    let away = spec("http://127.0.0.1:1/x", Digest::of(b"x"), json!({}));
    assert!(lab.apply(&away).unwrap_err().contains("no connection to 127.0.0.1:1"));
    fs::create_dir(lab.path("/opt/tool")).unwrap();
    assert!(lab.failed_check(&away).contains("not a regular file (directory)"));
}
