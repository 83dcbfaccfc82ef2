//! IDN-8: a key is used wherever it is: in a file, in an age file, behind a command. What a command prints that is no
//! good signature of its public key is an error before anything is sent, and each failure has its own message.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cli::failure::UserError;
use cli::signer::{FleetSigner, SignError, SignerError, add_signature, sign};
use data_encoding::BASE64;
use model::{Digest, Timestamp};
use trust::sealing::SealingKey;
use trust::sealing::age::{self, ScryptWork};
use trust::{Header, KeyAlgorithm, SigningKey, Slots, signed};
use zeroize::Zeroizing;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// A signer file for a command in `sh`.
    fn command(&self, public: Option<&SigningKey>, script: &str) -> PathBuf {
        let argv = serde_json::json!(["/bin/sh", "-c", script]);
        let public = public.map(|key| format!("public: {}\n", key.public())).unwrap_or_default();
        self.write("signer.yaml", format!("# a key elsewhere\ncommand: {argv}\n{public}timeout: 5s\n"))
    }
}

fn key(algorithm: KeyAlgorithm) -> SigningKey {
    SigningKey::from_secret(algorithm, &[7; 32]).unwrap()
}

fn header() -> Header {
    Header {
        fleet: "acme-1".parse().unwrap(),
        channel: "stable".parse().unwrap(),
        seq: 7,
        label: None,
        created: Timestamp(1),
        freshness_secs: 1,
        selection: Digest::ZERO,
        fallbacks: Vec::new(),
        requires: Vec::new(),
        rollout: None,
    }
}

fn open(path: &Path) -> Result<FleetSigner, SignerError> {
    Ok(FleetSigner::open(path)?.expect("there is a file"))
}

#[track_caller]
fn signs(path: &Path, key: &SigningKey) {
    let signer = open(path).unwrap();
    assert_eq!(signer.public(), key.public());
    let document = sign(&header(), &[&signer]).unwrap();
    assert_eq!(signed::verify::<Header>(&document, &Slots::of(key.public())), Ok(header()));
}

/// What a text of errors says in all.
fn told(error: &SignerError) -> String {
    format!("{}; {}", model::text::chain(error), error.hint().unwrap_or_default())
}

#[track_caller]
fn refused(path: &Path, want: &str) {
    let error = match open(path) {
        Err(error) => error,
        Ok(signer) => signer.sign(b"hello").expect_err(want),
    };
    assert!(told(&error).contains(want), "{}", told(&error));
}

fn stretch(passphrase: &str) -> impl Fn(&ScryptWork) -> Result<Zeroizing<[u8; 32]>, age::AgeError> {
    move |work| {
        let mut out = Zeroizing::new([0; 32]);
        let params = scrypt::Params::new(work.log_n, 8, 1).unwrap();
        scrypt::scrypt(passphrase.as_bytes(), &work.salt, &params, out.as_mut_slice()).unwrap();
        Ok(out)
    }
}

#[test]
fn a_key_file_signs() {
    let folder = Folder::new();
    for algorithm in KeyAlgorithm::ALL {
        let key = key(algorithm);
        signs(&folder.write("release.key", key.to_file().as_bytes()), &key);
    }
    assert!(FleetSigner::open(&folder.path("nothing")).unwrap().is_none());
    refused(&folder.write("public", key(KeyAlgorithm::Ed25519).public().to_string()), "only the public half");
    refused(&folder.write("damaged", "ed25519-private:AAAA\n"), "the key in");
    for rubbish in ["", "hello\n", "- a\n- b\n", "a: [", "\u{1}\u{2}"] {
        refused(&folder.write("rubbish", rubbish), "is no key file, no age file and no signer file");
    }
}

#[test]
fn an_age_file_signs_with_its_identity_or_its_passphrase() {
    let (folder, key) = (Folder::new(), key(KeyAlgorithm::Ed25519));
    let [own, other] = [3, 4].map(|byte| SealingKey::from_secret(&[byte; 32]).unwrap());
    let file = age::encrypt(key.to_file().as_bytes(), &[own.public()], &[9; 32]).unwrap();
    folder.write("release.key.age", age::armor(&file));
    folder.write("own.txt", own.to_file().as_bytes());
    folder.write("other.txt", other.to_file().as_bytes());
    signs(&folder.write("s.yaml", "age: release.key.age\nidentity: own.txt\n"), &key);
    let by_other = folder.write("s.yaml", "age: release.key.age\nidentity: other.txt\n");
    refused(&by_other, "encrypted for other keys than the identity that is here");
    refused(&by_other, "name the age identity");
    refused(&folder.path("release.key.age"), "no identity is named that opens it");
    refused(&folder.write("s.yaml", "age: release.key.age\nidentity: s.yaml\n"), "holds no age identity");
    refused(&folder.write("s.yaml", "age: gone.age\nidentity: own.txt\n"), "gone.age");

    let file =
        age::encrypt_for_passphrase(key.to_file().as_bytes(), 4, &[9; 32], stretch("open sesame")).unwrap();
    folder.write("release.key.age", file);
    folder.write("right", "open sesame\n");
    folder.write("wrong", "open barley\n");
    folder.write("none", "\n");
    let by = |name: &str| folder.write("s.yaml", format!("age: release.key.age\npassphraseFile: {name}\n"));
    signs(&by("right"), &key);
    refused(&by("wrong"), "encrypted for another passphrase");
    refused(&by("none"), "a passphrase has from 1 to");
    // Something else than a key in it.
    let file = age::encrypt(b"hello", &[own.public()], &[9; 32]).unwrap();
    folder.write("release.key.age", file);
    refused(&folder.write("s.yaml", "age: release.key.age\nidentity: own.txt\n"), "the key in");
}

/// A program that signs what it reads with a key file: what a user's own command does.
fn signing_script(folder: &Folder, key: &SigningKey, message: &[u8]) -> String {
    let answer = folder.write("answer", BASE64.encode(&key.sign(message)));
    let want = folder.write("want", message);
    format!(
        "case $MUSTER_SIGNER in public-key) echo {} ;; sign) cmp -s - {} && cat {} || exit 3 ;; esac",
        key.public(),
        want.display(),
        answer.display()
    )
}

#[test]
fn a_command_signs_what_it_reads() {
    let folder = Folder::new();
    for algorithm in KeyAlgorithm::ALL {
        let key = key(algorithm);
        let unsigned = signed::UnsignedDocument::of(&header()).unwrap();
        let script = signing_script(&folder, &key, unsigned.message());
        signs(&folder.command(Some(&key), &script), &key);
        // Without a public key in the file it is asked for it.
        signs(&folder.command(None, &script), &key);
        let raw = folder.write("raw", key.sign(b"hello"));
        let signer = open(&folder.command(Some(&key), &format!("cat {}", raw.display()))).unwrap();
        assert_eq!(signer.sign(b"hello").unwrap(), key.sign(b"hello"), "raw, and its input unread");
        // A signature of other bytes, and one of another key.
        let wrong = signer.sign(b"other").unwrap_err();
        assert!(matches!(wrong, SignerError::Wrong { .. }) && told(&wrong).contains("nothing was sent"));
        let other = SigningKey::from_secret(algorithm, &[8; 32]).unwrap();
        let signer = open(&folder.command(Some(&other), &format!("cat {}", raw.display()))).unwrap();
        assert!(matches!(signer.sign(b"hello"), Err(SignerError::Wrong { .. })));
    }
}

#[test]
fn a_command_that_fails_hangs_or_prints_rubbish_is_named() {
    let (folder, key) = (Folder::new(), key(KeyAlgorithm::Ed25519));
    let of = |script: &str| folder.command(Some(&key), script);
    refused(&of("echo 'no token is plugged in' >&2; exit 3"), "no token is plugged in");
    refused(&of("exit 3"), "ended with exit status: 3");
    refused(&of("echo signed"), "printed no signature: 7 bytes");
    refused(&of("true"), "printed no signature: 0 bytes");
    refused(&of("head -c 100000 /dev/zero"), "more than 4096 bytes");
    refused(&folder.command(None, "echo hello"), "printed no public key");
    refused(
        &folder.write("s.yaml", "command: [/no/such/program]\ntimeout: 5s\n"),
        "cannot start /no/such/program",
    );
    let hangs = folder.write(
        "s.yaml",
        format!(
            "command: [/bin/sh, -c, 'echo touch it >&2; sleep 600']\npublic: {}\ntimeout: 1s\n",
            key.public()
        ),
    );
    let began = Instant::now();
    refused(&hangs, "did not sign within 1 s, and was stopped: touch it");
    assert!(began.elapsed() < Duration::from_secs(60));
}

#[test]
fn mistakes_in_a_signer_file_are_named() {
    let folder = Folder::new();
    for (text, want) in [
        ("command: []\n", "`command` is empty"),
        ("command: [a]\nage: b\n", "it has either `command`"),
        ("command: [a]\nidentity: b\n", "it has either `command`"),
        ("age: b\ntimeout: 1s\n", "it has either `command`"),
        ("public: x\n", "it has either `command`"),
        ("command: [a]\npublic: x\n", "`public` is no public key"),
        ("command: [a]\ntimeout: 0s\n", "`timeout` is from 1s to 600s"),
        ("command: [a]\ntimeout: 11m\n", "`timeout` is from 1s to 600s"),
        ("command: [a]\ntimeout: soon\n", "`timeout`"),
        ("command: a\n", "cannot be used"),
        ("commands: [a]\n", "unknown field `commands`"),
    ] {
        refused(&folder.write("s.yaml", text), want);
    }
}

#[test]
fn one_key_signs_a_document_once() {
    let (a, b): (FleetSigner, FleetSigner) =
        (SigningKey::from_seed(&[1; 32]).into(), SigningKey::from_seed(&[2; 32]).into());
    let mut document = sign(&header(), &[&a]).unwrap();
    assert!(matches!(add_signature::<Header>(&mut document, &a), Err(SignError::Twice(_))));
    add_signature::<Header>(&mut document, &b).unwrap();
    for signer in [&a, &b] {
        assert!(signed::verify::<Header>(&document, &Slots::of(signer.public())).is_ok());
    }
    // One that stands there under its id and is not good makes way.
    document.signatures[1].sig = document.signatures[0].sig.clone();
    add_signature::<Header>(&mut document, &b).unwrap();
    assert_eq!(document.signatures.len(), 2);
    assert!(signed::verify::<Header>(&document, &Slots::of(b.public())).is_ok());
}

/// SEC-1: what did not change is sealed as the same bytes at each publish, also by a key that this program never sees.
#[test]
fn a_command_seals_the_same_each_time() {
    let (folder, key) = (Folder::new(), key(KeyAlgorithm::Ed25519));
    let message = signed::message("sealing-seed", key.public().fingerprint().as_bytes());
    let signer = open(&folder.command(Some(&key), &signing_script(&folder, &key, &message))).unwrap();
    let sealed = || signer.sealer().unwrap().seal("db", b"secret").unwrap().sealed().clone();
    assert_eq!(sealed(), sealed());
    let of_key =
        FleetSigner::from(SigningKey::from_seed(&[7; 32])).sealer().unwrap().seal("db", b"secret").unwrap();
    assert_ne!(sealed(), *of_key.sealed());
}
