//! What a control plane keeps beside its database, and the lab posture (ENR-8).
//!
//! A laboratory and a bank differ only in where the keys lie. On an empty directory
//! `muster server` makes everything itself; to leave the lab posture, move `root.key` and
//! `release.key` away and start again: the posture is what the files say.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use model::id::ParseIdError;
use model::{Digest, FleetId, Incarnation, Timestamp};
use net::identity::PeerRole;
use net::issue::{Ca, Certified, IssueError};
use net::{BelievedAuthority, ServerUrl};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spool::{Disk, SpoolError};
use trust::key::ParseKeyError;
use trust::{SigningKey, Slots, TrustDocument};

use crate::authority::AuthoritySet;
use crate::fleet_name::FleetName;
use crate::operators::FOUNDER;
use crate::operators::authority::OperatorAuthoritySet;
use crate::trust_chain::ChainDocuments;

/// Where the keys that sign intent lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Posture {
    /// The release key or the root key lies beside the control plane.
    Lab,
    /// All are elsewhere.
    Sealed,
}

impl Posture {
    /// The posture of a control plane over this directory, as it is now: keys are moved away while it runs.
    pub(crate) fn of(dir: &Path) -> Posture {
        // A key that signs freshness alone can make nobody do anything.
        let lab = [RELEASE_KEY, ROOT_KEY].iter().any(|key| dir.join(key).exists());
        if lab { Posture::Lab } else { Posture::Sealed }
    }
}

/// What an operator's client needs. Written 0600; holds a private key or a token.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Credentials {
    /// The operator port.
    pub url: ServerUrl,
    /// The CA certificate that the control plane's own certificate is under.
    pub ca_pem: String,
    /// The operator's certificate; empty where a token is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cert_pem: String,
    /// Its private key; empty where a token is, and in what waits for `muster operator login`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub key_pem: String,
    /// The operator's token, instead of a certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// A trust document of the fleet: its chain leads to the CA that counts, once the one above was replaced (IDN-8).
    /// Absent in credentials of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<TrustDocument>,
    /// The file that they were read from, which follows that chain.
    #[serde(skip)]
    pub file: Option<PathBuf>,
}

/// What an operator's client proves itself with.
pub enum OperatorProof<'a> {
    /// A certificate and its private key, both PEM.
    Certificate {
        /// The certificate.
        cert_pem: &'a str,
        /// The key.
        key_pem: &'a str,
    },
    /// A token, sent in each request.
    Token(&'a str),
}

impl Credentials {
    /// What they prove.
    pub fn proof(&self) -> OperatorProof<'_> {
        match &self.token {
            Some(token) => OperatorProof::Token(token),
            None => OperatorProof::Certificate { cert_pem: &self.cert_pem, key_pem: &self.key_pem },
        }
    }
}

/// What minting a token offline needs besides the root key. Nothing in it is secret.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnrollInfo {
    /// The fleet.
    pub fleet: FleetId,
    /// Node ports in order of preference.
    pub servers: Vec<ServerUrl>,
    /// SHA-256 of the CA certificate.
    pub ca: Digest,
    /// The digest of the trust document.
    pub trust: Digest,
}

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FoundError {
    /// A file could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file could not be written whole.
    #[error("the control plane's directory cannot be written")]
    Disk(#[from] SpoolError),
    /// A file could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file's content is not what it should be.
    #[error("{} is not what this program wrote there: {what}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Nodes believe a CA whose key is not here.
    #[error("{} holds no CA with the key {believed}, which nodes and operators believe", dir.display())]
    AuthorityKey {
        /// The directory.
        dir: PathBuf,
        /// The id of the key.
        believed: String,
    },
    /// The CA that nodes believe lies under the name of the next one.
    #[error("the CA with the key {believed}, which nodes believe, lies in {} as the next one: start the control plane anew, which puts it in its place", dir.display())]
    AuthorityNotInPlace {
        /// The directory.
        dir: PathBuf,
        /// The id of the key.
        believed: String,
    },
    /// A certificate could not be made or read.
    #[error("the certificate authority of {} cannot be used", dir.display())]
    Authority {
        /// The directory.
        dir: PathBuf,
        /// Why.
        #[source]
        source: IssueError,
    },
    /// The fleet that was founded here has another name than the one asked for.
    #[error("{} is of fleet {founded}, not of a fleet {asked:?}", dir.display(), asked = asked.to_string())]
    OtherName {
        /// The directory.
        dir: PathBuf,
        /// The fleet that is there.
        founded: FleetId,
        /// The name asked for.
        asked: FleetName,
    },
    /// A restore into the directory was cut off.
    #[error("a restore into {} was cut off before its end", dir.display())]
    RestoreUnfinished {
        /// The directory.
        dir: PathBuf,
    },
    /// There is a database, but not the keys of its fleet.
    #[error("{} holds a fleet's database and no {TRUST}: its keys are not here", dir.display())]
    KeysMissing {
        /// The directory.
        dir: PathBuf,
    },
    /// Links of the chain of trust documents are gone.
    #[error("{} does not lead to the trust document that {ENROLL} names: links of it are gone", path.display())]
    LinksMissing {
        /// The file of links.
        path: PathBuf,
    },
    /// Nodes believe a key that signs for the control plane, and it does not have it.
    #[error("{} is not the key {believed}, which nodes believe to be the control plane's", path.display())]
    ControlPlaneKey {
        /// The file.
        path: PathBuf,
        /// The id of the key that nodes believe.
        believed: String,
    },
    /// The operating system gives no randomness.
    #[error("no randomness")]
    Random(#[source] getrandom::Error),
}

/// What a control plane starts with.
pub struct Founded {
    /// Whom the fleet's nodes believe.
    pub trust: TrustDocument,
    /// How that came to be, from the first version on.
    pub chain: ChainDocuments,
    /// Issue nodes', proxies' and the control plane's certificates.
    pub node_ca: AuthoritySet,
    /// Issue operators' certificates.
    pub operator_ca: OperatorAuthoritySet,
    /// The release key, in lab posture.
    pub release_key: Option<SigningKey>,
    /// Lab or sealed.
    pub posture: Posture,
    /// The directory was empty.
    pub new: bool,
}

/// A file of a control plane's directory beside its database, as a backup holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetFile {
    /// Its name.
    pub name: &'static str,
    /// Its mode.
    pub mode: u32,
    /// Whether every fleet has it.
    pub presence: FilePresence,
}

/// Whether every fleet has a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilePresence {
    /// It does.
    Always,
    /// Keys that sign intent and what clients are given may lie elsewhere.
    MayLieElsewhere,
    /// Once keys were rotated, or secrets set; fleets of before them have none.
    Rotated,
}

/// Every file that founding a fleet makes beside the database. What a publisher remembers of its last release
/// is not among them: it would go back with the rest.
pub const FLEET_FILES: [FleetFile; 17] = {
    use FilePresence::{Always, MayLieElsewhere, Rotated};
    const fn file(name: &'static str, mode: u32, presence: FilePresence) -> FleetFile {
        FleetFile { name, mode, presence }
    }
    [
        file("node-ca.key", 0o600, Always),
        file("node-ca.pem", 0o644, Always),
        file(NEXT_CA, 0o600, Rotated),
        file(PREVIOUS_CA, 0o600, Rotated),
        file("operator-ca.key", 0o600, Always),
        file("operator-ca.pem", 0o644, Always),
        file(NEXT_OPERATOR_CA, 0o600, Rotated),
        file(PREVIOUS_OPERATOR_CA, 0o600, Rotated),
        file(ROOT_KEY, 0o600, MayLieElsewhere),
        file(RELEASE_KEY, 0o600, MayLieElsewhere),
        file(BEACON_KEY, 0o600, MayLieElsewhere),
        file(CONTROL_PLANE_KEY, 0o600, Rotated),
        file(OPERATOR, 0o600, MayLieElsewhere),
        file(ENROLL, 0o644, MayLieElsewhere),
        file(AGE_IDENTITY, 0o600, Rotated),
        file(TRUST_LINKS, 0o644, Rotated),
        file(TRUST, 0o644, Always),
    ]
};
/// The identity that secrets of the fleet repo are encrypted for, once `muster secret set` made one here.
pub const AGE_IDENTITY: &str = "age.key";
/// The database's file in the directory.
pub const DATABASE: &str = "muster.db";
/// It is there while a restore puts files into the directory.
pub const RESTORING: &str = "restore-unfinished";
/// Whom the fleet's nodes believed first.
pub const TRUST: &str = "trust.json";
/// The signed versions of that after the first.
pub const TRUST_LINKS: &str = "trust-links.json";
/// The key that signs tokens.
pub const ROOT_KEY: &str = "root.key";
/// The key that signs releases.
pub const RELEASE_KEY: &str = "release.key";
/// The key that signs beacons and nothing else. A fleet has one if the file is there when it is founded.
pub const BEACON_KEY: &str = "beacon.key";
/// The key that signs objects and actions in the control plane's name (IDN-9). It lies beside the control plane in
/// every posture. A fleet has one if the file is there when it is founded, and from `muster key rotate control-plane` on.
pub const CONTROL_PLANE_KEY: &str = "control-plane.key";
pub(crate) const NODE_CA: &str = "node-ca";
/// The certificate and the key of the CA that is to count next, in PEM.
pub const NEXT_CA: &str = "node-ca.next";
/// The same of the CA before, which goes on certifying while it counts.
pub const PREVIOUS_CA: &str = "node-ca.previous";
pub(crate) const OPERATOR_CA: &str = "operator-ca";
/// The certificate and the key of the CA of operators that is being put in place.
pub const NEXT_OPERATOR_CA: &str = "operator-ca.next";
/// The same of the one before. Its certificates count while it lies here.
pub const PREVIOUS_OPERATOR_CA: &str = "operator-ca.previous";
/// The operator's credentials.
pub const OPERATOR: &str = "operator.json";
/// What minting a token needs besides the root key.
pub const ENROLL: &str = "enroll.json";

/// Opens a control plane's directory, and founds a fleet in it if it is empty. Without a name
/// the fleet that is there is meant, whatever its name.
///
/// # Errors
/// [`FoundError`] names the file. A fleet of another name than the one asked for is refused.
pub fn open(dir: &Path, fleet: Option<&FleetName>, now: Timestamp) -> Result<Founded, FoundError> {
    // The database holds every node's contents: nothing in here is for other users.
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(|source| FoundError::Write { path: dir.to_owned(), source })?;
    if dir.join(RESTORING).exists() {
        return Err(FoundError::RestoreUnfinished { dir: dir.to_owned() });
    }
    let new = !dir.join(TRUST).exists();
    if new && fs::metadata(dir.join(DATABASE)).is_ok_and(|found| found.len() > 0) {
        return Err(FoundError::KeysMissing { dir: dir.to_owned() });
    }
    if new {
        let names = || FLEET_FILES.iter().map(|file| file.name);
        let made: Vec<&str> = names().filter(|name| !dir.join(name).exists()).collect();
        found(dir, &fleet.cloned().unwrap_or_default(), now).inspect_err(|_| {
            // Half a fleet is none: what was made goes, and what was there stays.
            made.iter().for_each(|name| drop(fs::remove_file(dir.join(name))));
        })?;
    }
    let chain = ChainDocuments::read(dir)?;
    let trust = chain.newest().document.clone();
    if let Some(asked) = fleet.filter(|name| !name.is_of(&trust.fleet)) {
        let (dir, asked) = (dir.to_owned(), asked.clone());
        return Err(FoundError::OtherName { dir, founded: trust.fleet, asked });
    }
    let release_key = read_key(&dir.join(RELEASE_KEY))?;
    let node_ca = AuthoritySet::open(dir, &chain)?;
    Ok(Founded {
        trust,
        chain,
        node_ca,
        operator_ca: OperatorAuthoritySet::open(dir)?,
        release_key,
        posture: Posture::of(dir),
        new,
    })
}

/// The key in a directory that signs beacons and nothing else, if nodes believe it.
///
/// # Errors
/// [`FoundError`] names the file.
pub fn beacon_key(dir: &Path, trust: &TrustDocument) -> Result<Option<SigningKey>, FoundError> {
    // Another key that lies there signs nothing.
    let is_believed =
        |key: &SigningKey| trust.beacon.iter().flat_map(Slots::keys).any(|known| *known == key.public());
    Ok(read_key(&dir.join(BEACON_KEY))?.filter(is_believed))
}

/// The key in a directory that signs in the control plane's name, if nodes believe it. `None` where the fleet has no
/// such key.
///
/// # Errors
/// [`FoundError`] names the file, also when it is not there though nodes believe such a key.
pub(crate) fn control_plane_key(dir: &Path, trust: &TrustDocument) -> Result<Option<SigningKey>, FoundError> {
    let Some(slots) = &trust.control_plane else { return Ok(None) };
    let path = dir.join(CONTROL_PLANE_KEY);
    match read_key(&path)?.filter(|key| slots.keys().any(|known| *known == key.public())) {
        Some(key) => Ok(Some(key)),
        None => Err(FoundError::ControlPlaneKey { path, believed: slots.current.id() }),
    }
}

/// Writes what clients are given: `operator.json` (once; its URL is kept up to date) and
/// `enroll.json`.
///
/// # Errors
/// [`FoundError`] names the file.
pub fn write_client_files(
    dir: &Path,
    founded: &Founded,
    operator_url: &ServerUrl,
    node_urls: &[ServerUrl],
    now: Timestamp,
) -> Result<(), FoundError> {
    let path = dir.join(OPERATOR);
    let ca_pem = founded.node_ca.bundle();
    let trust = match founded.node_ca.is_named_by(&founded.trust) {
        true => Some(founded.trust.clone()),
        // The CA that counts is not here, and who is to name another one must be able to call.
        false => founded.chain.versions.first().map(|first| first.head.document.clone()),
    };
    let credentials = if path.exists() {
        Credentials { url: operator_url.clone(), ca_pem, trust, ..read_json(&path)? }
    } else {
        let (cert_pem, key_pem) = founder_certificate(dir, founded.operator_ca.current(), now)?;
        let url = operator_url.clone();
        Credentials { url, ca_pem, cert_pem, key_pem, token: None, trust, file: None }
    };
    write_json(&path, &credentials, 0o600)?;
    recertify_founder(dir, founded.operator_ca.current(), now)?;
    let info = EnrollInfo {
        fleet: founded.trust.fleet.clone(),
        servers: node_urls.to_vec(),
        ca: founded.node_ca.presenting().digest(),
        trust: founded.chain.newest().digest,
    };
    write_json(&dir.join(ENROLL), &info, 0o644)
}

/// A certificate of the first admin, and its key; both PEM.
fn founder_certificate(dir: &Path, ca: &Ca, now: Timestamp) -> Result<(String, String), FoundError> {
    let issued = ca.issue_operator(FOUNDER, random()?, now);
    let Certified { cert_pem, key_pem } = issued.map_err(authority(dir))?;
    Ok((cert_pem, key_pem.to_string()))
}

/// The credentials in a directory are the first admin's, by a certificate.
pub(crate) fn holds_founder(dir: &Path) -> bool {
    let path = dir.join(OPERATOR);
    path.exists() && read_json::<Credentials>(&path).is_ok_and(|credentials| is_founders(&credentials))
}

fn is_founders(credentials: &Credentials) -> bool {
    let certificates = net::tls::certificates(&credentials.cert_pem).unwrap_or_default();
    let peer = certificates.first().and_then(|der| net::identity::read(der).ok());
    let role = peer.map(|peer| peer.role);
    credentials.token.is_none() && matches!(role, Some(PeerRole::Operator(name)) if name == FOUNDER)
}

/// Gives the first admin's credentials a certificate of this CA, where they lie in the directory with one of another.
pub(crate) fn recertify_founder(dir: &Path, ca: &Ca, now: Timestamp) -> Result<(), FoundError> {
    let path = dir.join(OPERATOR);
    if !holds_founder(dir) {
        return Ok(());
    }
    let credentials: Credentials = read_json(&path)?;
    let own = BelievedAuthority::Certificates(ca.cert_pem().to_owned());
    if own.certifies(&credentials.cert_pem).unwrap_or(false) {
        return Ok(());
    }
    let (cert_pem, key_pem) = founder_certificate(dir, ca, now)?;
    write_json(&path, &Credentials { cert_pem, key_pem, ..credentials }, 0o600)
}

/// Writes an operator's credentials, for their owner alone to read.
///
/// # Errors
/// [`FoundError`] names the file.
pub fn write_credentials(path: &Path, credentials: &Credentials) -> Result<(), FoundError> {
    write_json(path, credentials, 0o600)
}

/// Has what clients are given, where it lies here, go by other CAs.
///
/// # Errors
/// [`FoundError`] names the file.
pub(crate) fn rewrite_client_files(
    dir: &Path,
    authorities: &AuthoritySet,
    trust: &TrustDocument,
) -> Result<(), FoundError> {
    let (operator, enroll) = (dir.join(OPERATOR), dir.join(ENROLL));
    if operator.exists() {
        let (ca_pem, trust) = (authorities.bundle(), Some(trust.clone()));
        write_json(&operator, &Credentials { ca_pem, trust, ..read_json(&operator)? }, 0o600)?;
    }
    if enroll.exists() {
        let ca = authorities.presenting().digest();
        write_json(&enroll, &EnrollInfo { ca, ..read_json(&enroll)? }, 0o644)?;
    }
    Ok(())
}

fn found(dir: &Path, fleet: &FleetName, now: Timestamp) -> Result<(), FoundError> {
    let root = SigningKey::from_seed(&random()?);
    let release = SigningKey::from_seed(&random()?);
    let unnamed =
        |error: ParseIdError| FoundError::Malformed { path: dir.join(TRUST), what: error.to_string() };
    let fleet = fleet.id(&random()?).map_err(unnamed)?;
    let disk = Disk::new();
    let write =
        |name: String, bytes: &[u8], mode| spool::atomic::write_file(&disk, &dir.join(name), bytes, mode);
    for name in [NODE_CA, OPERATOR_CA] {
        let (_, files) = Ca::generate(&format!("{fleet} {name}"), now).map_err(authority(dir))?;
        write(format!("{name}.key"), files.key_pem.as_bytes(), 0o600)?;
        write(format!("{name}.pem"), files.cert_pem.as_bytes(), 0o644)?;
    }
    write(ROOT_KEY.to_owned(), root.to_file().as_bytes(), 0o600)?;
    write(RELEASE_KEY.to_owned(), release.to_file().as_bytes(), 0o600)?;
    let (release, root) = (Slots::of(release.public()), Slots::of(root.public()));
    let beacon = read_key(&dir.join(BEACON_KEY))?.map(|key| Slots::of(key.public()));
    // Last: its presence says that everything before it is there.
    // Agents of the release before cannot join where it is named: whoever founds a fleet decides.
    let control_plane = read_key(&dir.join(CONTROL_PLANE_KEY))?.map(|key| Slots::of(key.public()));
    let first = TrustDocument { beacon, control_plane, ..TrustDocument::first(fleet, release, root) };
    write_json(&dir.join(TRUST), &first, 0o644)
}

pub(crate) fn read_ca(dir: &Path, name: &str) -> Result<Ca, FoundError> {
    let cert = read(&dir.join(format!("{name}.pem")))?;
    let key = zeroize::Zeroizing::new(read(&dir.join(format!("{name}.key")))?);
    Ca::load(&cert, &key).map_err(authority(dir))
}

pub(crate) fn authority(dir: &Path) -> impl Fn(IssueError) -> FoundError + '_ {
    |source| FoundError::Authority { dir: dir.to_owned(), source }
}

/// Reads a key file; `None` when there is none.
///
/// # Errors
/// When it cannot be read or is no key file.
pub fn read_key(path: &Path) -> Result<Option<SigningKey>, FoundError> {
    if !path.exists() {
        return Ok(None);
    }
    let text = zeroize::Zeroizing::new(read(path)?);
    let key = SigningKey::from_file(&text).map_err(|error: ParseKeyError| FoundError::Malformed {
        path: path.to_owned(),
        what: error.to_string(),
    })?;
    Ok(Some(key))
}

/// Reads a JSON file of a control plane's directory.
///
/// # Errors
/// When it cannot be read or has another shape; the content is not repeated.
pub fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, FoundError> {
    let text = zeroize::Zeroizing::new(read(path)?);
    serde_json::from_str(&text).map_err(|error| FoundError::Malformed {
        path: path.to_owned(),
        what: format!("line {}, column {}", error.line(), error.column()),
    })
}

pub(crate) fn read(path: &Path) -> Result<String, FoundError> {
    fs::read_to_string(path).map_err(|source| FoundError::Read { path: path.to_owned(), source })
}

pub(crate) fn write_json<T: Serialize>(path: &Path, value: &T, mode: u32) -> Result<(), FoundError> {
    let mut bytes = zeroize::Zeroizing::new(
        serde_json::to_vec_pretty(value)
            .map_err(|error| FoundError::Malformed { path: path.to_owned(), what: error.to_string() })?,
    );
    bytes.push(b'\n');
    Ok(spool::atomic::write_file(&Disk::new(), path, &bytes, mode)?)
}

/// Makes a file that only its owner can read, if there is none; one that is there becomes so.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn private(path: &Path) -> Result<(), FoundError> {
    let failed = |source| FoundError::Write { path: path.to_owned(), source };
    let mut options = fs::OpenOptions::new();
    let file = options.create(true).append(true).mode(0o600).open(path).map_err(failed)?;
    file.set_permissions(fs::Permissions::from_mode(0o600)).map_err(failed)
}

/// The id of an incarnation of a database that may begin.
///
/// # Errors
/// When the operating system gives no randomness.
pub fn fresh_incarnation() -> Result<Incarnation, FoundError> {
    let text = format!("d{}", data_encoding::HEXLOWER.encode(&random::<8>()?));
    text.parse().map_err(|error: ParseIdError| FoundError::Malformed {
        path: DATABASE.into(),
        what: error.to_string(),
    })
}

/// Random bytes of the operating system.
///
/// # Errors
/// When it gives none.
pub fn random<const N: usize>() -> Result<[u8; N], FoundError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(FoundError::Random)?;
    Ok(bytes)
}
