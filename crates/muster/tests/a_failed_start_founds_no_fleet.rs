//! ENR-8: `muster server` founds a fleet only where it can serve it, and the fleet that was
//! founded is the one that is asked for.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::net::TcpListener;

use test_support::programs::Server;
use test_support::programs::repo::{code, err, muster};

const FREE: &str = "127.0.0.1:0";

#[tokio::test(flavor = "multi_thread")]
async fn where_a_port_is_taken_nothing_is_founded() {
    let dir = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind(FREE).unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (option, others) in [
        ("--listen", ["--operator-listen", "--metrics", "--proxy-listen"]),
        ("--operator-listen", ["--listen", "--metrics", "--proxy-listen"]),
        ("--metrics", ["--listen", "--operator-listen", "--proxy-listen"]),
        ("--proxy-listen", ["--listen", "--operator-listen", "--metrics"]),
    ] {
        let mut arguments = vec!["server", "--fleet", "acme", option, &taken];
        arguments.extend(others.iter().flat_map(|other| [*other, FREE]));
        let output = muster(dir.path(), &arguments).await;
        assert_eq!(code(&output), 1, "{option}: {}", err(&output));
        assert!(err(&output).contains(&format!("cannot listen on {taken}")), "{}", err(&output));
        assert!(!dir.path().join("muster-data").exists(), "{option}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_file_cannot_be_written_nothing_is_founded() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("muster-data");
    // The key cannot take this name, and is among the last that are written.
    std::fs::create_dir_all(data.join("release.key/kept")).unwrap();
    let start = ["server", "--listen", FREE, "--operator-listen", FREE];
    let output = muster(dir.path(), &start).await;
    assert_eq!(code(&output), 1, "{}", err(&output));
    assert!(err(&output).contains("cannot be written"), "{}", err(&output));
    let hint = "muster-data/release.key is to be: move it away; or choose another directory with --data";
    assert!(err(&output).contains(hint), "{}", err(&output));
    let left: Vec<_> = std::fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["release.key"], "what was there is left");
    std::fs::write(dir.path().join("file"), "").unwrap();
    let output = muster(dir.path(), &[&start[..], &["--data", "file/data"]].concat()).await;
    assert_eq!(code(&output), 1);
    assert!(err(&output).contains("cannot write file/data"), "{}", err(&output));
    assert!(err(&output).contains("file/data is to be: move it away; or choose"), "{}", err(&output));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_in_use_and_a_broken_database_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::new(dir.path(), &["127.0.0.1"], "127.0.0.1", &Vec::new());
    let running = server.start();
    let start = ["server", "--listen", FREE, "--operator-listen", FREE];
    let second = muster(dir.path(), &start).await;
    assert_eq!(code(&second), 1, "{}", err(&second));
    assert!(err(&second).contains("in use by another process"), "{}", err(&second));
    assert!(err(&second).contains("hint: one control plane at a time"), "{}", err(&second));
    drop(running);
    let database = server.dir.join("muster.db");
    let mut bytes = std::fs::read(&database).unwrap();
    bytes[..64].fill(0);
    std::fs::write(&database, bytes).unwrap();
    for file in ["muster.db-wal", "muster.db-shm"] {
        let _ = std::fs::remove_file(server.dir.join(file));
    }
    let broken = muster(dir.path(), &start).await;
    assert_eq!(code(&broken), 1, "{}", err(&broken));
    assert!(err(&broken).contains("the store is corrupt"), "{}", err(&broken));
    assert!(err(&broken).contains("hint: restore the newest backup"), "{}", err(&broken));
    assert!(!err(&broken).contains("one control plane"), "{}", err(&broken));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_of_another_name_is_refused_with_the_one_that_is_there() {
    let dir = tempfile::tempdir().unwrap();
    // The fleet e2e.
    drop(Server::new(dir.path(), &["127.0.0.1"], "127.0.0.1", &Vec::new()).start());
    let start = ["server", "--listen", FREE, "--operator-listen", FREE, "--fleet", "acme"];
    let output = muster(dir.path(), &start).await;
    assert_eq!(code(&output), 1, "{}", err(&output));
    let text = err(&output);
    assert!(
        text.contains("muster-data is of fleet e2e-") && text.contains("not of a fleet \"acme\""),
        "{text}"
    );
    assert!(text.contains("hint: a fleet keeps its name: leave out --fleet to serve e2e-"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_cannot_be_are_refused_as_arguments() {
    let dir = tempfile::tempdir().unwrap();
    for (option, value) in [
        ("--name", "https://control.example.com"),
        ("--name", "control.example.com:1530"),
        ("--name", "not a name"),
        ("--name", ""),
        ("--fleet", "Acme"),
        ("--fleet", "my fleet"),
    ] {
        let start = ["server", "--listen", FREE, "--operator-listen", FREE, option, value];
        let output = muster(dir.path(), &start).await;
        assert_eq!(code(&output), 1, "{option} {value}");
        assert!(
            err(&output).contains(&format!("invalid value '{value}' for '{option} <NAME>'")),
            "{}",
            err(&output)
        );
        assert!(!dir.path().join("muster-data").exists(), "{option} {value}");
    }
}
