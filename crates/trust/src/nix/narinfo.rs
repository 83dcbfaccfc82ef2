//! [`NarInfo`]: what a cache says of one path.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use data_encoding::{BASE64, HEXLOWER};
use model::Digest;

use super::base32;
use super::cache_key::MAX_KEY_NAME;
use super::{CacheKey, StorePath};

/// The longest text of one path, in bytes.
pub const MAX_NARINFO: usize = 1024 * 1024;
/// The largest archive of one path, in bytes.
pub const MAX_NAR: u64 = 16 * 1024 * 1024 * 1024;
/// The most signatures that are looked at.
const MAX_SIGNATURES: usize = 32;
/// The length of a signature that is looked at, in bytes: ed25519.
const SIGNATURE_BYTES: usize = 64;
/// The longest URL, in bytes.
const MAX_URL: usize = 1024;

/// What a cache says of one path. Only what [`NarInfo::verified`] returns may be believed, and of that neither the URL
/// nor how the archive is packed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NarInfo {
    /// The path.
    pub path: StorePath,
    /// Where the archive lies, below the cache's URL: no scheme, no way up.
    pub url: String,
    /// How it is packed.
    pub compression: NarCompression,
    /// SHA-256 of the archive, unpacked.
    pub nar_hash: Digest,
    /// Its length in bytes, unpacked; at most [`MAX_NAR`].
    pub nar_size: u64,
    /// The length of what lies at the URL, where it is said.
    pub file_size: Option<u64>,
    /// The paths that it needs, in order; it may be one of them.
    pub references: Vec<StorePath>,
    /// What it was built from, where it is said.
    pub deriver: Option<StorePath>,
    signatures: Vec<CacheSignature>,
}

/// How an archive is packed in a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NarCompression {
    /// Not at all.
    None,
    /// `xz`, which is Nix's default.
    Xz,
    /// `zstd`.
    Zstd,
    /// `bzip2`, which is meant where nothing is said.
    Bzip2,
    /// `gzip`.
    Gzip,
}

impl NarCompression {
    const ALL: [(NarCompression, &'static str); 5] = [
        (NarCompression::None, "none"),
        (NarCompression::Xz, "xz"),
        (NarCompression::Zstd, "zstd"),
        (NarCompression::Bzip2, "bzip2"),
        (NarCompression::Gzip, "gzip"),
    ];

    /// Its name, which is that of the program, too.
    pub fn as_str(self) -> &'static str {
        NarCompression::ALL.into_iter().find(|(known, _)| *known == self).map_or("none", |(_, name)| name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CacheSignature {
    key: String,
    bytes: Vec<u8>,
}

/// Why what a cache says of a path is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NarInfoError {
    /// It is too long.
    #[error("the narinfo is longer than {MAX_NARINFO} bytes")]
    TooLong,
    /// A line is no field.
    #[error("line {0} of the narinfo is no field")]
    Line(usize),
    /// A field is not there.
    #[error("the narinfo has no {0}")]
    Missing(&'static str),
    /// A field is there twice.
    #[error("the narinfo has {0} twice")]
    Twice(String),
    /// A field cannot be read.
    #[error("{field} of the narinfo cannot be read: `{value}`")]
    Field {
        /// Its name.
        field: &'static str,
        /// Its value, the beginning of it.
        value: String,
    },
    /// The archive is larger than [`MAX_NAR`].
    #[error("the archive of the narinfo has {0} bytes, and at most {MAX_NAR} are taken")]
    Large(u64),
    /// It is of another path than was asked for.
    #[error("the narinfo is of {0}, which was not asked for")]
    OtherPath(StorePath),
    /// Nobody signed it.
    #[error("nobody signed {0}")]
    Unsigned(StorePath),
    /// None of the pinned keys signed it.
    #[error("{path} is signed by {by}, and by none of the pinned keys")]
    OtherKeys {
        /// The path.
        path: StorePath,
        /// The names in its signatures.
        by: String,
    },
}

impl NarInfo {
    /// Checks that it is of this path and that a pinned key signed it.
    ///
    /// # Errors
    /// [`NarInfoError`] says which of both fails.
    pub fn verified(self, path: &StorePath, keys: &[CacheKey]) -> Result<NarInfo, NarInfoError> {
        if self.path != *path {
            return Err(NarInfoError::OtherPath(self.path));
        }
        let signed = self.fingerprint();
        let counts = |key: &CacheKey| {
            let of_key = self.signatures.iter().filter(|signature| signature.key == key.name());
            of_key.into_iter().any(|signature| key.verifies(signed.as_bytes(), &signature.bytes))
        };
        if keys.iter().any(counts) {
            return Ok(self);
        }
        if self.signatures.is_empty() {
            return Err(NarInfoError::Unsigned(self.path));
        }
        let by =
            self.signatures.iter().map(|signature| signature.key.as_str()).collect::<Vec<_>>().join(", ");
        Err(NarInfoError::OtherKeys { path: self.path, by })
    }

    /// What is signed: path, hash, size and references.
    pub fn fingerprint(&self) -> String {
        let references: Vec<String> = self.references.iter().map(StorePath::to_string).collect();
        let (path, hash, size) = (&self.path, base32::encode(&self.nar_hash), self.nar_size);
        format!("1;{path};sha256:{hash};{size};{}", references.join(","))
    }

    /// The paths that it needs besides itself.
    pub fn needs(&self) -> impl Iterator<Item = &StorePath> {
        self.references.iter().filter(|reference| **reference != self.path)
    }

    /// The names of the keys by which it says to be signed; none of it is verified.
    pub fn signers(&self) -> impl Iterator<Item = &str> {
        self.signatures.iter().map(|signature| signature.key.as_str())
    }

    /// The same where its archive lies at another URL, not packed.
    #[must_use]
    pub fn unpacked_at(self, url: String) -> NarInfo {
        NarInfo { url, compression: NarCompression::None, file_size: None, ..self }
    }

    /// The same with the signatures of another narinfo of the same fingerprint besides its own, at most as many as are looked
    /// at.
    #[must_use]
    pub fn with_signatures_of(mut self, other: &NarInfo) -> NarInfo {
        for signature in &other.signatures {
            if self.signatures.len() < MAX_SIGNATURES && !self.signatures.contains(signature) {
                self.signatures.push(signature.clone());
            }
        }
        self
    }

    /// The same with another signature, made over [`NarInfo::fingerprint`].
    #[must_use]
    pub fn signed(mut self, key: &str, signature: &[u8]) -> NarInfo {
        self.signatures.push(CacheSignature { key: key.to_owned(), bytes: signature.to_vec() });
        self
    }
}

/// The fields while they are read.
#[derive(Default)]
struct NarInfoFields<'t> {
    path: Option<&'t str>,
    url: Option<&'t str>,
    compression: Option<&'t str>,
    nar_hash: Option<&'t str>,
    nar_size: Option<&'t str>,
    file_size: Option<&'t str>,
    references: Option<&'t str>,
    deriver: Option<&'t str>,
    signatures: Vec<CacheSignature>,
}

impl<'t> NarInfoFields<'t> {
    fn read(text: &'t str) -> Result<NarInfoFields<'t>, NarInfoError> {
        let mut fields = NarInfoFields::default();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or(NarInfoError::Line(at + 1))?;
            let value = value.trim();
            let single = match name {
                "StorePath" => &mut fields.path,
                "URL" => &mut fields.url,
                "Compression" => &mut fields.compression,
                "NarHash" => &mut fields.nar_hash,
                "NarSize" => &mut fields.nar_size,
                "FileSize" => &mut fields.file_size,
                "References" => &mut fields.references,
                "Deriver" => &mut fields.deriver,
                "Sig" => {
                    // None of others can count, and thousands of paths are held at once.
                    let signature = signature(value)?;
                    let may_count =
                        signature.key.len() <= MAX_KEY_NAME && signature.bytes.len() == SIGNATURE_BYTES;
                    if may_count && fields.signatures.len() < MAX_SIGNATURES {
                        fields.signatures.push(signature);
                    }
                    continue;
                }
                // What other caches and later versions say besides.
                _ => continue,
            };
            if single.replace(value).is_some() {
                return Err(NarInfoError::Twice(name.to_owned()));
            }
        }
        Ok(fields)
    }
}

fn unreadable(field: &'static str, value: &str) -> NarInfoError {
    NarInfoError::Field { field, value: value.chars().take(80).collect() }
}

fn signature(value: &str) -> Result<CacheSignature, NarInfoError> {
    let read = value.split_once(':').and_then(|(key, sig)| {
        let bytes = BASE64.decode(sig.as_bytes()).ok()?;
        (!key.is_empty() && key.bytes().all(|c| c.is_ascii_graphic()))
            .then(|| CacheSignature { key: key.to_owned(), bytes })
    });
    read.ok_or_else(|| unreadable("Sig", value))
}

impl FromStr for NarInfo {
    type Err = NarInfoError;

    fn from_str(text: &str) -> Result<NarInfo, NarInfoError> {
        if text.len() > MAX_NARINFO {
            return Err(NarInfoError::TooLong);
        }
        let fields = NarInfoFields::read(text)?;
        let path = fields.path.ok_or(NarInfoError::Missing("StorePath"))?;
        let url = fields.url.ok_or(NarInfoError::Missing("URL"))?;
        let hash = fields.nar_hash.ok_or(NarInfoError::Missing("NarHash"))?;
        let size = fields.nar_size.ok_or(NarInfoError::Missing("NarSize"))?;
        let packed = fields.compression.unwrap_or("bzip2");
        let compression = NarCompression::ALL.into_iter().find(|(_, name)| *name == packed);
        let name = |field: &'static str| {
            move |name: &str| StorePath::of_name(name).map_err(|_| unreadable(field, name))
        };
        let mut references: Vec<StorePath> = fields
            .references
            .unwrap_or_default()
            .split_ascii_whitespace()
            .map(name("References"))
            .collect::<Result<_, _>>()?;
        references.sort_unstable();
        references.dedup();
        let deriver = fields.deriver.filter(|deriver| !deriver.is_empty() && *deriver != "unknown-deriver");
        Ok(NarInfo {
            path: path.parse().map_err(|_| unreadable("StorePath", path))?,
            url: if is_below(url) { url.to_owned() } else { return Err(unreadable("URL", url)) },
            compression: compression.ok_or_else(|| unreadable("Compression", packed))?.0,
            nar_hash: nar_hash(hash).ok_or_else(|| unreadable("NarHash", hash))?,
            nar_size: nar_size(size)?,
            file_size: fields
                .file_size
                .map(|size| size.parse().map_err(|_| unreadable("FileSize", size)))
                .transpose()?,
            references,
            deriver: deriver.map(name("Deriver")).transpose()?,
            signatures: fields.signatures,
        })
    }
}

/// `sha256:` and Nix's base 32, or hexadecimal digits.
fn nar_hash(text: &str) -> Option<Digest> {
    let digits = text.strip_prefix("sha256:")?;
    let hex = || HEXLOWER.decode(digits.as_bytes()).ok()?.try_into().ok().map(Digest);
    base32::decode(digits).or_else(hex)
}

fn nar_size(text: &str) -> Result<u64, NarInfoError> {
    match text.parse() {
        Ok(size @ 1..=MAX_NAR) => Ok(size),
        Ok(0) | Err(_) => Err(unreadable("NarSize", text)),
        Ok(size) => Err(NarInfoError::Large(size)),
    }
}

/// Whether a URL leads to something below that of the cache.
fn is_below(url: &str) -> bool {
    let (path, _) = url.split_once('?').unwrap_or((url, ""));
    let goes_down = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    let fits = (1..=MAX_URL).contains(&url.len())
        && url.bytes().all(|c| c.is_ascii_graphic() && !b"\\#".contains(&c));
    fits && goes_down && !path.contains(':') && !path.contains("%2e") && !path.contains("%2E")
}

impl fmt::Display for NarInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let names: Vec<&str> = self.references.iter().map(StorePath::name).collect();
        writeln!(text, "StorePath: {}", self.path)?;
        writeln!(text, "URL: {}", self.url)?;
        writeln!(text, "Compression: {}", self.compression.as_str())?;
        if let Some(size) = self.file_size {
            writeln!(text, "FileSize: {size}")?;
        }
        writeln!(text, "NarHash: sha256:{}", base32::encode(&self.nar_hash))?;
        writeln!(text, "NarSize: {}", self.nar_size)?;
        writeln!(text, "References: {}", names.join(" "))?;
        if let Some(deriver) = &self.deriver {
            writeln!(text, "Deriver: {}", deriver.name())?;
        }
        for signature in &self.signatures {
            writeln!(text, "Sig: {}:{}", signature.key, BASE64.encode(&signature.bytes))?;
        }
        f.write_str(&text)
    }
}
