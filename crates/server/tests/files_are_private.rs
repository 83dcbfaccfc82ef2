//! ENR-8: what a control plane keeps is readable by its own user alone, the database with
//! every node's contents too.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

fn config(dir: &Path) -> server::Config {
    let any = "127.0.0.1:0".parse().unwrap();
    server::Config {
        dir: dir.to_owned(),
        fleet: "acme".parse().ok(),
        node_address: any,
        operator_address: any,
        names: vec!["localhost".to_owned()],
        connections: 16,
        balancers: Default::default(),
        metrics_address: None,
        proxy_address: None,
        log: None,
        links: Default::default(),
        certificates: Default::default(),
    }
}

/// What anybody may read; it stands behind the directory's mode all the same.
const PUBLIC: [&str; 4] = ["trust.json", "enroll.json", "node-ca.pem", "operator-ca.pem"];

#[tokio::test]
async fn nobody_else_reads_what_a_control_plane_keeps() {
    let above = tempfile::tempdir().unwrap();
    let dir = above.path().join("made").join("here");
    let running = server::start(config(&dir)).await.unwrap();
    assert_eq!(mode(&dir), 0o700);
    let mut seen = 0;
    for entry in fs::read_dir(&dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let want = if PUBLIC.contains(&name.as_str()) { 0o644 } else { 0o600 };
        assert_eq!(mode(&entry.path()), want, "{name}");
        seen += usize::from(name.starts_with("muster.db"));
    }
    assert!(seen >= 2, "the database and its journal are there");
    running.stop().await;
}

#[tokio::test]
async fn a_database_that_others_could_read_is_closed_to_them() {
    let dir = tempfile::tempdir().unwrap();
    server::start(config(dir.path())).await.unwrap().stop().await;
    let database = dir.path().join("muster.db");
    fs::set_permissions(&database, fs::Permissions::from_mode(0o644)).unwrap();
    server::start(config(dir.path())).await.unwrap().stop().await;
    assert_eq!(mode(&database), 0o600);
}
