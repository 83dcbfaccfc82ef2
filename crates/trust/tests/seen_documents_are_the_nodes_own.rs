//! WIR-1, ROL-4: what a node has seen of releases counts under the node's own key alone, whichever
//! algorithm that is of, and for that node alone.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use common::{CREATED, header};
use model::Digest;
use model::log::Cursor;
use trust::seen::{Seen, SeenError};
use trust::signed::VerifyError;
use trust::{KeyAlgorithm, SigningKey, signed};

fn seen(key: &SigningKey) -> Seen {
    let log_head = Cursor { incarnation: "i1".parse().unwrap(), seq: 7 };
    Seen {
        node: key.public().node_id(),
        header: Digest::of(b"header"),
        seq: 5,
        log_head,
        at: CREATED,
        acked: None,
    }
}

#[test]
fn only_the_node_s_key_counts() {
    for algorithm in KeyAlgorithm::ALL {
        let key = SigningKey::from_secret(algorithm, &[1; 32]).unwrap();
        let other = SigningKey::from_secret(algorithm, &[2; 32]).unwrap();
        let document = seen(&key).sign(&key).unwrap();
        assert_eq!(Seen::verify(&document, &key.public()).unwrap(), seen(&key));
        let refused = Seen::verify(&document, &other.public()).unwrap_err();
        assert_eq!(refused, SeenError::Document(VerifyError::Untrusted));
        // Another node's words under one's own signature.
        let borrowed = seen(&other).sign(&key).unwrap();
        let refused = Seen::verify(&borrowed, &key.public()).unwrap_err();
        assert_eq!(refused, SeenError::OtherNode(other.public().node_id()));
        let mut changed = document.clone();
        changed.payload = changed.payload.replace(r#""seq":5"#, r#""seq":6"#);
        assert_ne!(changed, document);
        Seen::verify(&changed, &key.public()).unwrap_err();
        // A document of another type, signed by the node.
        let header = signed::sign(&header(5), &[&key]).unwrap();
        Seen::verify(&header, &key.public()).unwrap_err();
    }
}

/// A node signs what it has seen once, and not in each check-in.
#[test]
fn the_same_at_another_time_says_the_same() {
    let said = seen(&SigningKey::from_seed(&[1; 32]));
    assert!(
        said.says_the_same(&Seen { at: CREATED.plus(std::time::Duration::from_secs(9)), ..said.clone() })
    );
    assert!(!said.says_the_same(&Seen { seq: 6, ..said.clone() }));
    assert!(!said.says_the_same(&Seen { acked: Some(7), ..said.clone() }));
}

/// Other implementations can follow it: the payload, to the letter.
#[test]
fn the_document_to_the_letter() {
    let key = SigningKey::from_seed(&[1; 32]);
    let (node, header) = (key.public().node_id(), Digest::of(b"header"));
    let expected = format!(
        r#"{{"at":"{CREATED}","header":"{header}","logHead":{{"incarnation":"i1","seq":7}},"node":"{node}","seq":5}}"#
    );
    let document = seen(&key).sign(&key).unwrap();
    assert_eq!(document.payload, expected);
    assert_eq!(document.signatures[0].key, key.public().id());
    let signature = data_encoding::BASE64.decode(document.signatures[0].sig.as_bytes()).unwrap();
    assert!(key.public().verifies(&signed::message("seen", expected.as_bytes()), &signature));
}
