//! DLT-4, ROL-9: bytes count only under their digest; downloads go on where they stopped.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};

use common::fault_at;
use model::Digest;
use spool::{BlobStore, Disk, FaultAction, SpoolError};

fn store(directory: &tempfile::TempDir) -> BlobStore {
    BlobStore::open_dir(&Disk::new(), directory.path(), 1000).unwrap()
}

fn file_of(directory: &tempfile::TempDir, digest: &Digest) -> std::path::PathBuf {
    let name = digest.to_string();
    directory.path().join("blobs").join(&name[..2]).join(name)
}

#[test]
fn what_is_put_is_what_is_read() {
    let directory = common::tempdir();
    let blobs = store(&directory);
    let digest = Digest::of(b"hello");
    assert_eq!(blobs.put(&mut b"hello".as_slice(), Some(digest), 5).unwrap(), digest);
    assert_eq!(blobs.put(&mut b"hello".as_slice(), None, 5).unwrap(), digest);
    assert_eq!(blobs.total(), 5, "one blob is stored once");
    assert!(blobs.has(&digest));
    let mut text = String::new();
    blobs.open(&digest).unwrap().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
    assert_eq!(blobs.read(&digest, 5).unwrap().unwrap(), b"hello");
    assert!(matches!(blobs.read(&digest, 4), Err(SpoolError::TooLarge { .. })));
    let other = Digest::of(b"other");
    assert!(!blobs.has(&other) && blobs.open(&other).unwrap().is_none());
    assert!(blobs.read(&other, 5).unwrap().is_none());
    assert_eq!(store(&directory).total(), 5);
}

#[test]
fn other_bytes_than_expected_are_refused() {
    let directory = common::tempdir();
    let blobs = store(&directory);
    let refused = blobs.put(&mut b"evil".as_slice(), Some(Digest::of(b"good")), 100).unwrap_err();
    assert!(matches!(refused, SpoolError::WrongDigest { .. }), "{refused:?}");
    assert!(!blobs.has(&Digest::of(b"good")) && !blobs.has(&Digest::of(b"evil")));
    let refused = blobs.put(&mut [0u8; 101].as_slice(), None, 100).unwrap_err();
    assert!(matches!(refused, SpoolError::TooLarge { limit: 100, .. }), "{refused:?}");
    let refused = blobs.put(&mut std::io::repeat(0), None, 1001).unwrap_err();
    assert!(matches!(refused, SpoolError::TooLarge { .. }), "an endless source: {refused:?}");
    assert_eq!(std::fs::read_dir(directory.path().join("partial")).unwrap().count(), 0);
    assert_eq!(blobs.total(), 0);
}

#[test]
fn damaged_bytes_are_set_aside_and_never_returned() {
    for read in [true, false] {
        let directory = common::tempdir();
        let blobs = store(&directory);
        let digest = blobs.put(&mut b"hello".as_slice(), None, 5).unwrap();
        std::fs::write(file_of(&directory, &digest), b"hellO").unwrap();
        if read {
            assert!(blobs.read(&digest, 5).unwrap().is_none());
        } else {
            assert!(blobs.open(&digest).unwrap().is_none());
        }
        assert!(!blobs.has(&digest), "so it is fetched again");
        let aside = directory.path().join("corrupt").join(digest.to_string());
        assert_eq!(std::fs::read(aside).unwrap(), b"hellO");
        assert!(blobs.was_damaged(&digest) && !blobs.was_damaged(&Digest::of(b"other")));
        assert_eq!(blobs.total(), 0);
        blobs.put(&mut b"hello".as_slice(), Some(digest), 5).unwrap();
        assert!(blobs.read(&digest, 5).unwrap().is_some());
    }
}

#[test]
fn a_download_goes_on_where_it_stopped() {
    let directory = common::tempdir();
    let digest = Digest::of(b"hello world");
    let mut partial = store(&directory).partial(&digest).unwrap();
    partial.write(b"hello ", 11).unwrap();
    drop(partial);
    let blobs = store(&directory);
    let mut partial = blobs.partial(&digest).unwrap();
    assert_eq!(partial.offset(), 6);
    assert!(matches!(partial.write(b"world!", 11), Err(SpoolError::TooLarge { .. })));
    partial.write(b"world", 11).unwrap();
    assert!(!blobs.has(&digest), "it counts only when it is verified");
    blobs.finish(&digest).unwrap();
    assert_eq!(blobs.read(&digest, 11).unwrap().unwrap(), b"hello world");

    let wrong = Digest::of(b"other");
    blobs.partial(&wrong).unwrap().write(b"evil", 11).unwrap();
    let refused = blobs.finish(&wrong).unwrap_err();
    assert!(matches!(refused, SpoolError::WrongDigest { .. }), "{refused:?}");
    assert_eq!(blobs.partial(&wrong).unwrap().offset(), 0, "and it begins again");
    let mut partial = blobs.partial(&wrong).unwrap();
    partial.write(b"other", 11).unwrap();
    blobs.finish(&wrong).unwrap();
}

#[test]
fn only_what_is_wanted_stays_and_the_bound_holds() {
    let directory = common::tempdir();
    let blobs = store(&directory);
    let digests: Vec<Digest> =
        (0..3u8).map(|n| blobs.put(&mut [n; 300].as_slice(), None, 300).unwrap()).collect();
    let refused = blobs.put(&mut [9u8; 300].as_slice(), None, 300).unwrap_err();
    assert!(matches!(refused, SpoolError::TooLarge { limit: 1000, .. }), "{refused:?}");
    blobs.partial(&Digest::of(b"x")).unwrap().write(b"x", 1).unwrap();
    blobs.retain(&BTreeSet::from([digests[1]])).unwrap();
    assert_eq!(blobs.total(), 300);
    assert!(blobs.has(&digests[1]) && !blobs.has(&digests[0]) && !blobs.has(&digests[2]));
    assert_eq!(blobs.partial(&Digest::of(b"x")).unwrap().offset(), 0);
    blobs.put(&mut [9u8; 300].as_slice(), None, 300).unwrap();
}

#[test]
fn a_put_that_fails_at_any_point_leaves_a_whole_blob_or_none() {
    let digest = Digest::of(b"hello");
    let points = {
        let directory = common::tempdir();
        let disk = Disk::new();
        let blobs = BlobStore::open_dir(&disk, directory.path(), 1000).unwrap();
        blobs.put(&mut b"hello".as_slice(), None, 5).unwrap();
        disk.points()
    };
    for point in 0..points {
        for action in [FaultAction::Fail(ErrorKind::Other), FaultAction::Tear(ErrorKind::StorageFull)] {
            let directory = common::tempdir();
            let disk = fault_at(point, action);
            let put = BlobStore::open_dir(&disk, directory.path(), 1000)
                .and_then(|blobs| blobs.put(&mut b"hello".as_slice(), None, 5));
            assert!(put.is_err(), "point {point} did not fail");
            let blobs = store(&directory);
            let there = blobs.read(&digest, 5).unwrap();
            assert!(there.is_none_or(|bytes| bytes == b"hello"), "point {point}");
            blobs.put(&mut b"hello".as_slice(), None, 5).unwrap();
        }
    }
}

/// CNV-3: damage is found before anything needs the bytes, a bounded part at a time, each blob once a round.
#[test]
fn a_scrub_finds_damage_part_by_part() {
    let directory = common::tempdir();
    let blobs = store(&directory);
    let texts: [&[u8]; 3] = [b"one..", b"two..", b"three"];
    let mut all: Vec<Digest> = texts.iter().map(|text| blobs.put(&mut &**text, None, 5).unwrap()).collect();
    all.sort();
    std::fs::write(file_of(&directory, &all[1]), b"other").unwrap();
    let first = blobs.scrub(None, 10).unwrap();
    assert_eq!((first.last, first.damaged), (Some(all[1]), vec![all[1]]));
    let second = blobs.scrub(first.last, 10).unwrap();
    assert_eq!(second, spool::blobs::ScrubbedBlobs::default(), "the last of them; then it begins anew");
    assert!(blobs.has(&all[0]) && !blobs.has(&all[1]) && blobs.has(&all[2]));
    assert_eq!(blobs.scrub(None, 1).unwrap().last, Some(all[0]), "at least one");
}
