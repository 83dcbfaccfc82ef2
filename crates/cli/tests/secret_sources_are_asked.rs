//! SEC-2: a secret's value comes from the first source that has it; what does not resolve, is too long, hangs or is for
//! another key ends the publish, and is named.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::time::Instant;

use cli::secret::{SecretError, SecretSettings};
use resolve::{SecretSource, SecretSourceKind};
use trust::SealingKey;
use trust::sealing::age;

fn key(of: u8) -> SealingKey {
    SealingKey::from_secret(&[of; 32]).unwrap()
}

fn source(name: &str, prefix: &str, kind: SecretSourceKind) -> SecretSource {
    SecretSource { name: name.to_owned(), prefix: prefix.to_owned(), timeout_secs: 5, kind }
}

fn shell(name: &str, prefix: &str, script: &str) -> SecretSource {
    let argv = ["sh", "-c", script, "source"].map(str::to_owned).to_vec();
    source(name, prefix, SecretSourceKind::Command(argv))
}

fn files() -> SecretSource {
    source("files", "", SecretSourceKind::Age { folder: "secrets".to_owned(), recipients: vec![] })
}

/// A fleet repo with age files, and the identity that they are for.
fn repo(dir: &Path, values: &[(&str, &[u8])]) -> SecretSettings {
    let settings = SecretSettings { repo: dir.to_owned(), identity: dir.join("age.key"), vault_token: None };
    std::fs::write(&settings.identity, key(1).to_file().as_bytes()).unwrap();
    for (at, (name, value)) in values.iter().enumerate() {
        let path = dir.join("secrets").join(format!("{name}.age"));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let seed = [u8::try_from(at).unwrap(); 32];
        std::fs::write(path, age::encrypt(value, &[key(1).public()], &seed).unwrap()).unwrap();
    }
    settings
}

fn why(asked: Result<cli::secret::source::SecretValue, SecretError>) -> String {
    model::text::chain(&asked.unwrap_err())
}

#[test]
fn the_first_source_that_has_it_gives_it_to_the_last_byte() {
    let temp = tempfile::tempdir().unwrap();
    let settings = repo(temp.path(), &[("team/a", b"from a file\n"), ("ops/a", b"unused"), ("empty", b"")]);
    let sources = [shell("pass", "ops/", "printf 'of %s\\n' \"$1\""), files()];
    let value = |name: &str| String::from_utf8(settings.value(&sources, name).unwrap().to_vec()).unwrap();
    assert_eq!(value("team/a"), "from a file\n");
    assert_eq!(value("ops/a"), "of ops/a\n");
    assert_eq!(value("empty"), "");
    let missing = why(settings.value(&sources, "team/b"));
    assert_eq!(missing, "secret `team/b` is in none of files");
    assert!(matches!(settings.value(&sources[..1], "team/a"), Err(SecretError::NoSource(_))));
    let names = ["team/a", "team/b", "team/c", "ops/x"].into();
    let errors = settings.values(&sources, &names).unwrap_err();
    assert_eq!(errors.len(), 2, "all that do not resolve are told: {errors:?}");
}

#[test]
fn a_source_that_hangs_fails_or_says_too_much_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let settings = repo(temp.path(), &[("big", &[b'x'; 70_000])]);
    let began = Instant::now();
    // What it starts holds its output open, and ends with it.
    let hangs = SecretSource { timeout_secs: 1, ..shell("hangs", "", "sleep 600 & sleep 600") };
    let said = why(settings.value(&[hangs], "team/a"));
    assert!(
        said.contains("source `hangs` does not give secret `team/a`") && said.contains("within 1 s"),
        "{said}"
    );
    assert!(began.elapsed().as_secs() < 30);
    let said = why(settings.value(&[shell("fails", "", "echo hunter2; echo hunter2 >&2; exit 3")], "team/a"));
    assert!(said.contains("exit status: 3") && !said.contains("hunter2"), "{said}");
    let said =
        why(settings.value(&[source("gone", "", SecretSourceKind::Command(vec!["/no/such".into()]))], "a"));
    assert!(said.contains("cannot start /no/such"), "{said}");
    let floods = shell("floods", "", "head -c 10485760 /dev/zero");
    assert_eq!(why(settings.value(&[floods], "team/a")), "secret `team/a` has more than 65536 bytes");
    assert_eq!(why(settings.value(&[files()], "big")), "secret `big` has more than 65536 bytes");
}

#[test]
fn an_age_file_for_another_key_is_told_apart_from_a_damaged_one() {
    let temp = tempfile::tempdir().unwrap();
    let settings = repo(temp.path(), &[("a", b"x")]);
    std::fs::write(temp.path().join("secrets/b.age"), "hunter2").unwrap();
    let said = why(settings.value(&[files()], "b"));
    assert!(
        said.contains("b.age") && said.contains("not an age file") && !said.contains("hunter2"),
        "{said}"
    );
    std::fs::write(&settings.identity, key(2).to_file().as_bytes()).unwrap();
    let said = why(settings.value(&[files()], "a"));
    assert!(said.contains("a.age") && said.contains("for other keys"), "{said}");
    std::fs::write(&settings.identity, "hunter2").unwrap();
    let said = why(settings.value(&[files()], "a"));
    assert!(said.contains("holds no age identity") && !said.contains("hunter2"), "{said}");
    std::fs::remove_file(&settings.identity).unwrap();
    let said = why(settings.value(&[files()], "a"));
    assert!(said.contains("there is no age identity"), "{said}");
}

/// As `--identity <(command)` makes it.
#[test]
fn an_identity_that_can_be_read_once_opens_all_secrets() {
    let temp = tempfile::tempdir().unwrap();
    let mut settings = repo(temp.path(), &[("a", b"x"), ("b", b"y"), ("c", b"z")]);
    settings.identity = temp.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &settings.identity, rustix::fs::Mode::RWXU).unwrap();
    let (pipe, text) = (settings.identity.clone(), key(1).to_file());
    // One that reads it again waits for somebody who writes.
    std::thread::spawn(move || std::fs::write(pipe, text.as_bytes()));
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        tell.send(settings.values(&[files()], &["a", "b", "c"].into()).unwrap().len())
    });
    assert_eq!(told.recv_timeout(std::time::Duration::from_secs(20)), Ok(3));
}

/// Each failure says what to do.
#[test]
fn what_does_not_resolve_says_what_to_do() {
    let temp = tempfile::tempdir().unwrap();
    let settings = repo(temp.path(), &[("a", b"x"), ("big", &[b'x'; 70_000])]);
    let hint =
        |sources: &[SecretSource], name: &str| settings.value(sources, name).unwrap_err().hint().unwrap();
    let hangs = SecretSource { timeout_secs: 1, ..shell("slow", "", "sleep 600") };
    assert!(hint(&[hangs], "a").contains("gives source slow more: `timeout: 2m`"));
    assert!(hint(&[shell("fails", "", "exit 3")], "a").contains("by hand"));
    assert!(hint(&[files()], "big").contains("make its key the secret"));
    assert!(hint(&[files()], "b").contains("muster secret set b"));
    assert!(hint(&[], "a").contains("secrets: {sources:"));
    std::fs::write(temp.path().join("secrets/b.age"), "hunter2").unwrap();
    assert!(hint(&[files()], "b").contains("writes it anew"));
    std::fs::write(&settings.identity, key(2).to_file().as_bytes()).unwrap();
    assert!(hint(&[files()], "a").contains("--identity FILE"));
}

/// Answers each request of an HTTP API as told; gives the requests.
fn api(answers: Vec<(&'static str, String)>) -> (String, std::thread::JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let mut requests = Vec::new();
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap() == 1 {
                request.push(byte[0]);
            }
            requests.push(String::from_utf8(request).unwrap());
            let head =
                format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).unwrap();
        }
        requests
    });
    (url, served)
}

#[test]
fn a_vault_compatible_api_is_asked_and_404_leads_on() {
    let temp = tempfile::tempdir().unwrap();
    let settings = repo(temp.path(), &[("team/b", b"from a file")]);
    let (url, served) = api(vec![
        ("200 OK", r#"{"data":{"data":{"value":"from the vault"}}}"#.to_owned()),
        ("404 Not Found", "{}".to_owned()),
        ("403 Forbidden", "{}".to_owned()),
        ("200 OK", "<html>".to_owned()),
    ]);
    let settings = SecretSettings { vault_token: Some("planted-token".to_owned()), ..settings };
    let vault = source("vault", "", SecretSourceKind::Vault { url, path: "kv/muster".to_owned() });
    let sources = [vault, files()];
    let value = |name: &str| settings.value(&sources, name);
    let first = String::from_utf8(value("team/a").unwrap().to_vec()).unwrap();
    let second = String::from_utf8(value("team/b").unwrap().to_vec()).unwrap();
    let asked = (first, second, why(value("team/c")), why(value("team/d")));
    assert_eq!((asked.0.as_str(), asked.1.as_str()), ("from the vault", "from a file"));
    assert!(asked.2.contains("source `vault`") && asked.2.contains("403"), "{}", asked.2);
    assert!(asked.3.contains("not of the form"), "{}", asked.3);
    let requests = served.join().unwrap();
    assert!(requests[0].starts_with("GET /v1/kv/data/muster/team/a HTTP/1.1"), "{}", requests[0]);
    assert!(requests[0].to_lowercase().contains("x-vault-token: planted-token"), "{}", requests[0]);
}
