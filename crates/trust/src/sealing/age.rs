//! Files of the age format, version 1, with X25519 recipients: the form in which secrets lie in a fleet repo (SEC-2).
//!
//! Read and written as <https://age-encryption.org/v1> has it, armored or not. A file for a passphrase or for an SSH key
//! is told apart from one that is for another key. What is not exactly of the form is refused. A passphrase is stretched
//! by the caller ([`ScryptWork`]), as only operators' programs need that.

use std::borrow::Cow;

use data_encoding::{BASE64, BASE64_NOPAD};
use zeroize::Zeroizing;

use super::key::{RecipientKey, SealingKey};
use super::primitives::{self, KEY_LEN, Key, NONCE_LEN, TAG_LEN};

/// The longest file that is read, in bytes.
pub const MAX_FILE: usize = 512 * 1024;
/// The most recipients of a file.
pub const MAX_RECIPIENTS: usize = 1000;
/// The first line of every file.
const VERSION: &str = "age-encryption.org/v1";
/// What an armored file begins and ends with.
const BEGIN: &str = "-----BEGIN AGE ENCRYPTED FILE-----";
const END: &str = "-----END AGE ENCRYPTED FILE-----";
/// How many characters a line of base64 has.
const COLUMNS: usize = 64;
/// The length of a file's key, in bytes.
const FILE_KEY_LEN: usize = 16;
/// The length of the nonce before the payload, in bytes.
const PAYLOAD_NONCE_LEN: usize = 16;
/// The bytes of one chunk of the payload.
const CHUNK: usize = 64 * 1024;
/// What a file's key is wrapped under.
const X25519_INFO: &[u8] = b"age-encryption.org/v1/X25519";

/// What a passphrase is stretched with.
const SCRYPT_LABEL: &[u8] = b"age-encryption.org/v1/scrypt";
/// The length of a file's own salt, in bytes.
const SCRYPT_SALT_LEN: usize = 16;
/// The most work that a file may ask for: 2^20 blocks of 1 KiB, so 1 GiB of memory.
pub const MAX_SCRYPT_LOG_N: u8 = 20;

/// How a file wants its passphrase stretched into a key of 32 bytes: scrypt with N = 2^log_n, r = 8 and p = 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScryptWork {
    /// The whole salt, age's label in it.
    pub salt: Vec<u8>,
    /// The binary logarithm of N, 1 to [`MAX_SCRYPT_LOG_N`].
    pub log_n: u8,
}

impl ScryptWork {
    fn of(salt: &[u8], log_n: u8) -> ScryptWork {
        ScryptWork { salt: [SCRYPT_LABEL, salt].concat(), log_n }
    }
}

/// Why an age file cannot be read, or made.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgeError {
    /// It does not begin as an age file does.
    #[error("it is not an age file")]
    NotAge,
    /// It begins so, and is not of the form.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// Its recipients are others.
    #[error("it is encrypted for other keys than the identity that is here")]
    OtherRecipients,
    /// It is for a passphrase.
    #[error("it is encrypted for a passphrase; encrypt it for a key")]
    Passphrase,
    /// It is for keys, and not for a passphrase.
    #[error("it is encrypted for keys, not for a passphrase")]
    NoPassphrase,
    /// The passphrase is another one.
    #[error("it is encrypted for another passphrase")]
    OtherPassphrase,
    /// To try a passphrase would take more memory than there may be.
    #[error("its passphrase asks for more work than 2^{MAX_SCRYPT_LOG_N}")]
    Work,
    /// It, or what it holds, is too long.
    #[error("it holds more than {0} bytes")]
    TooLarge(usize),
    /// It would be for nobody, or for too many.
    #[error("a file has from 1 to {MAX_RECIPIENTS} recipients")]
    Recipients,
}

/// A stanza of the header.
struct Stanza<'f> {
    args: Vec<&'f str>,
    body: Vec<u8>,
}

/// Whether bytes begin as an age file does, armored or not.
pub fn is_age(bytes: &[u8]) -> bool {
    bytes.starts_with(BEGIN.as_bytes()) || bytes.starts_with(VERSION.as_bytes())
}

/// Decrypts a file of at most [`MAX_FILE`] bytes that holds at most `limit` bytes.
///
/// # Errors
/// [`AgeError`]; nothing of what it holds is in it.
pub fn decrypt(file: &[u8], identities: &[SealingKey], limit: usize) -> Result<Zeroizing<Vec<u8>>, AgeError> {
    let file = binary(file, limit)?;
    let parsed = ParsedFile::of(&file)?;
    let file_key = file_key(&parsed.stanzas, identities)?;
    parsed.open(&file_key, limit)
}

/// How a file wants its passphrase stretched; `None` for a file that is for keys.
///
/// # Errors
/// When it is no age file, or asks for too much work.
pub fn passphrase_work(file: &[u8]) -> Result<Option<ScryptWork>, AgeError> {
    let file = binary(file, MAX_FILE)?;
    let parsed = ParsedFile::of(&file)?;
    Ok(passphrase_stanza(&parsed.stanzas)?.map(|(work, _)| work))
}

/// As [`decrypt`], with the key that a passphrase was stretched into ([`passphrase_work`]).
///
/// # Errors
/// [`AgeError::OtherPassphrase`], and as [`decrypt`].
pub fn decrypt_stretched(
    file: &[u8],
    stretched: &[u8; KEY_LEN],
    limit: usize,
) -> Result<Zeroizing<Vec<u8>>, AgeError> {
    let file = binary(file, limit)?;
    let parsed = ParsedFile::of(&file)?;
    let (_, wrapped) = passphrase_stanza(&parsed.stanzas)?.ok_or(AgeError::NoPassphrase)?;
    let file_key = primitives::open(stretched, [0; NONCE_LEN], &[], wrapped);
    parsed.open(&file_key.ok_or(AgeError::OtherPassphrase)?, limit)
}

/// Encrypts for a passphrase, which `stretch` makes a key of. `seed` is 32 fresh random bytes.
///
/// # Errors
/// [`AgeError::Work`], [`AgeError::TooLarge`], and what `stretch` refuses.
pub fn encrypt_for_passphrase<E: From<AgeError>>(
    plain: &[u8],
    log_n: u8,
    seed: &[u8; KEY_LEN],
    stretch: impl FnOnce(&ScryptWork) -> Result<Zeroizing<[u8; KEY_LEN]>, E>,
) -> Result<Vec<u8>, E> {
    if !(1..=MAX_SCRYPT_LOG_N).contains(&log_n) {
        return Err(AgeError::Work.into());
    }
    let file_key = fresh_file_key(seed);
    let salt = primitives::hkdf(None, seed, &[b"muster age scrypt salt"]);
    let salt = &salt[..SCRYPT_SALT_LEN];
    let stretched = stretch(&ScryptWork::of(salt, log_n))?;
    let body = primitives::seal(&stretched, [0; NONCE_LEN], &[], &file_key).unwrap_or_default();
    let (salt, body) = (BASE64_NOPAD.encode(salt), BASE64_NOPAD.encode(&body));
    Ok(sealed_file(format!("{VERSION}\n-> scrypt {salt} {log_n}\n{body}\n"), &file_key, seed, plain)?)
}

/// Encrypts for these recipients. `seed` is 32 fresh random bytes: with the same seed the same file comes out.
///
/// # Errors
/// [`AgeError::Recipients`], and [`AgeError::TooLarge`] for what cannot be read again.
pub fn encrypt(plain: &[u8], recipients: &[RecipientKey], seed: &[u8; KEY_LEN]) -> Result<Vec<u8>, AgeError> {
    if recipients.is_empty() || recipients.len() > MAX_RECIPIENTS {
        return Err(AgeError::Recipients);
    }
    let file_key = fresh_file_key(seed);
    let mut header = format!("{VERSION}\n");
    for (at, recipient) in recipients.iter().enumerate() {
        let ephemeral = primitives::hkdf(None, seed, &[b"muster age ephemeral", &(at as u64).to_be_bytes()]);
        let refused = AgeError::Damaged("a recipient is no key");
        let point = primitives::public(&ephemeral).ok_or(refused.clone())?;
        let shared = primitives::shared(&ephemeral, recipient.raw()).ok_or(refused)?;
        let wrap = wrap_key(&shared, &point, recipient.raw());
        let body = primitives::seal(&wrap, [0; NONCE_LEN], &[], &file_key).unwrap_or_default();
        header += &format!("-> X25519 {}\n{}\n", BASE64_NOPAD.encode(&point), BASE64_NOPAD.encode(&body));
    }
    sealed_file(header, &file_key, seed, plain)
}

fn fresh_file_key(seed: &[u8; KEY_LEN]) -> Zeroizing<Vec<u8>> {
    let derived = primitives::hkdf(None, seed, &[b"muster age file key"]);
    Zeroizing::new(derived[..FILE_KEY_LEN].to_vec())
}

/// The whole file behind the stanzas of its header.
fn sealed_file(
    mut header: String,
    file_key: &[u8],
    seed: &[u8; KEY_LEN],
    plain: &[u8],
) -> Result<Vec<u8>, AgeError> {
    if plain.len() > MAX_FILE / 2 {
        return Err(AgeError::TooLarge(MAX_FILE / 2));
    }
    header += "---";
    let mac_key = primitives::hkdf(None, file_key, &[b"header"]);
    let tag = primitives::mac(&mac_key, &[header.as_bytes()]);
    header += &format!(" {}\n", BASE64_NOPAD.encode(tag.as_slice()));
    let mut out = header.into_bytes();
    let nonce = primitives::hkdf(None, seed, &[b"muster age payload nonce"]);
    let nonce = &nonce[..PAYLOAD_NONCE_LEN];
    out.extend_from_slice(nonce);
    let key = primitives::hkdf(Some(nonce), file_key, &[b"payload"]);
    let mut chunks = plain.chunks(CHUNK).enumerate().peekable();
    if chunks.peek().is_none() {
        out.extend(primitives::seal(&key, chunk_nonce(0, true), &[], &[]).unwrap_or_default());
    }
    while let Some((at, chunk)) = chunks.next() {
        let last = chunks.peek().is_none();
        out.extend(primitives::seal(&key, chunk_nonce(at, last), &[], chunk).unwrap_or_default());
    }
    Ok(out)
}

/// The armored form of a file.
pub fn armor(file: &[u8]) -> String {
    let text = BASE64.encode(file);
    let mut out = format!("{BEGIN}\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(COLUMNS));
        out.push_str(line);
        out.push('\n');
        rest = after;
    }
    out.push_str(END);
    out.push('\n');
    out
}

/// A file's bytes without its armor.
fn binary(file: &[u8], limit: usize) -> Result<Cow<'_, [u8]>, AgeError> {
    if file.len() > MAX_FILE {
        return Err(AgeError::TooLarge(limit));
    }
    match file.starts_with(BEGIN.as_bytes()) {
        true => dearmor(file).map(Cow::Owned),
        false => Ok(Cow::Borrowed(file)),
    }
}

/// A file's header, and what follows it.
struct ParsedFile<'f> {
    stanzas: Vec<Stanza<'f>>,
    signed: &'f str,
    tag: Vec<u8>,
    payload: &'f [u8],
}

impl<'f> ParsedFile<'f> {
    fn of(file: &'f [u8]) -> Result<ParsedFile<'f>, AgeError> {
        let end = header_end(file)?;
        let header =
            std::str::from_utf8(&file[..end]).map_err(|_| AgeError::Damaged("its header is no text"))?;
        let (stanzas, signed, tag) = parse(header)?;
        Ok(ParsedFile { stanzas, signed, tag, payload: &file[end..] })
    }

    fn open(&self, file_key: &[u8], limit: usize) -> Result<Zeroizing<Vec<u8>>, AgeError> {
        let mac_key = primitives::hkdf(None, file_key, &[b"header"]);
        if !primitives::is_mac(&mac_key, self.signed.as_bytes(), &self.tag) {
            return Err(AgeError::Damaged("its header was changed"));
        }
        let split = self.payload.split_at_checked(PAYLOAD_NONCE_LEN);
        let (nonce, chunks) = split.ok_or(AgeError::Damaged("it is cut off"))?;
        let key = primitives::hkdf(Some(nonce), file_key, &[b"payload"]);
        open_chunks(&key, chunks, limit)
    }
}

/// The stanza of a file that is for a passphrase, which has no other.
fn passphrase_stanza<'s>(stanzas: &'s [Stanza<'_>]) -> Result<Option<(ScryptWork, &'s [u8])>, AgeError> {
    const DAMAGED: AgeError = AgeError::Damaged("its passphrase's line is not of the form");
    if !stanzas.iter().any(|stanza| stanza.args[0] == "scrypt") {
        return Ok(None);
    }
    let [Stanza { args, body }] = stanzas else { return Err(DAMAGED) };
    let [_, salt, log_n] = args.as_slice() else { return Err(DAMAGED) };
    let salt = BASE64_NOPAD.decode(salt.as_bytes()).map_err(|_| DAMAGED)?;
    let is_number = log_n.bytes().all(|b| b.is_ascii_digit()) && !log_n.starts_with('0');
    if salt.len() != SCRYPT_SALT_LEN || body.len() != FILE_KEY_LEN + TAG_LEN || !is_number {
        return Err(DAMAGED);
    }
    let log_n = log_n.parse().ok().filter(|log_n| *log_n <= MAX_SCRYPT_LOG_N).ok_or(AgeError::Work)?;
    Ok(Some((ScryptWork::of(&salt, log_n), body)))
}

fn dearmor(file: &[u8]) -> Result<Vec<u8>, AgeError> {
    const DAMAGED: AgeError = AgeError::Damaged("its armor is not of the form");
    let text = std::str::from_utf8(file).map_err(|_| DAMAGED)?;
    let text = text.trim_end_matches(['\n', '\r', ' ', '\t']);
    let body = text.strip_prefix(BEGIN).and_then(|text| text.strip_suffix(END)).ok_or(DAMAGED)?;
    let lines: Vec<&str> = body.lines().skip(1).collect();
    let (last, full) = lines.split_last().ok_or(DAMAGED)?;
    if full.iter().any(|line| line.len() != COLUMNS) || last.len() > COLUMNS || !body.ends_with('\n') {
        return Err(DAMAGED);
    }
    BASE64.decode(lines.concat().as_bytes()).map_err(|_| DAMAGED)
}

/// Where the header ends: after the line that begins with `---`.
fn header_end(file: &[u8]) -> Result<usize, AgeError> {
    if !file.starts_with(VERSION.as_bytes()) || file.get(VERSION.len()) != Some(&b'\n') {
        return Err(AgeError::NotAge);
    }
    let mut at = 0;
    loop {
        let line =
            file[at..].iter().position(|b| *b == b'\n').ok_or(AgeError::Damaged("its header has no end"))?;
        let next = at + line + 1;
        if file[at..next].starts_with(b"---") {
            return Ok(next);
        }
        at = next;
    }
}

/// The stanzas, what the tag is of, and the tag.
fn parse(header: &str) -> Result<(Vec<Stanza<'_>>, &str, Vec<u8>), AgeError> {
    const DAMAGED: AgeError = AgeError::Damaged("its header is not of the form");
    let mut lines = header.strip_suffix('\n').ok_or(DAMAGED)?.split('\n').skip(1);
    let mut stanzas = Vec::new();
    loop {
        let line = lines.next().ok_or(DAMAGED)?;
        if let Some(tag) = line.strip_prefix("--- ") {
            let tag = BASE64_NOPAD.decode(tag.as_bytes()).map_err(|_| DAMAGED)?;
            let signed = header.rfind("--- ").ok_or(DAMAGED)? + "---".len();
            if stanzas.is_empty() || tag.len() != KEY_LEN {
                return Err(DAMAGED);
            }
            return Ok((stanzas, &header[..signed], tag));
        }
        let args: Vec<&str> = line.strip_prefix("-> ").ok_or(DAMAGED)?.split(' ').collect();
        let plain = |arg: &&str| !arg.is_empty() && arg.bytes().all(|b| (33..=126).contains(&b));
        if !args.iter().all(plain) || stanzas.len() == MAX_RECIPIENTS {
            return Err(DAMAGED);
        }
        let mut body = Vec::new();
        loop {
            let line = lines.next().ok_or(DAMAGED)?;
            if line.len() > COLUMNS {
                return Err(DAMAGED);
            }
            body.extend(BASE64_NOPAD.decode(line.as_bytes()).map_err(|_| DAMAGED)?);
            if line.len() < COLUMNS {
                break;
            }
        }
        stanzas.push(Stanza { args, body });
    }
}

fn file_key(stanzas: &[Stanza<'_>], identities: &[SealingKey]) -> Result<Zeroizing<Vec<u8>>, AgeError> {
    if stanzas.iter().any(|stanza| stanza.args[0] == "scrypt") {
        return Err(AgeError::Passphrase);
    }
    for stanza in stanzas.iter().filter(|stanza| stanza.args[0] == "X25519") {
        const DAMAGED: AgeError = AgeError::Damaged("a recipient is not of the form");
        let [_, point] = stanza.args.as_slice() else { return Err(DAMAGED) };
        let point = BASE64_NOPAD.decode(point.as_bytes()).map_err(|_| DAMAGED)?;
        let point: &[u8; KEY_LEN] = point.as_slice().try_into().map_err(|_| DAMAGED)?;
        if stanza.body.len() != FILE_KEY_LEN + TAG_LEN {
            return Err(DAMAGED);
        }
        for identity in identities {
            let shared = primitives::shared(identity.secret(), point).ok_or(DAMAGED)?;
            let wrap = wrap_key(&shared, point, identity.public().raw());
            if let Some(key) = primitives::open(&wrap, [0; NONCE_LEN], &[], &stanza.body) {
                return Ok(key);
            }
        }
    }
    Err(AgeError::OtherRecipients)
}

fn wrap_key(shared: &Key, point: &[u8; KEY_LEN], recipient: &[u8; KEY_LEN]) -> Key {
    let salt = [point.as_slice(), recipient.as_slice()].concat();
    primitives::hkdf(Some(&salt), shared.as_slice(), &[X25519_INFO])
}

fn open_chunks(key: &Key, mut rest: &[u8], limit: usize) -> Result<Zeroizing<Vec<u8>>, AgeError> {
    if rest.len() > limit.saturating_add(TAG_LEN * (limit / CHUNK + 1)) {
        return Err(AgeError::TooLarge(limit));
    }
    // Made as long as it may get, so that no copy of it is left behind.
    let mut out = Zeroizing::new(Vec::with_capacity(rest.len()));
    let mut at = 0;
    loop {
        let (chunk, after) = rest.split_at(rest.len().min(CHUNK + TAG_LEN));
        let last = after.is_empty();
        let plain = primitives::open(key, chunk_nonce(at, last), &[], chunk);
        let plain = plain.ok_or(AgeError::Damaged("what it holds was changed, or is cut off"))?;
        // Only an empty file has an empty chunk.
        if plain.is_empty() && at > 0 {
            return Err(AgeError::Damaged("it ends with an empty chunk"));
        }
        out.extend_from_slice(&plain);
        if out.len() > limit {
            return Err(AgeError::TooLarge(limit));
        }
        if last {
            return Ok(out);
        }
        (rest, at) = (after, at + 1);
    }
}

/// The number of a chunk in eleven bytes, and whether it is the last one.
fn chunk_nonce(at: usize, last: bool) -> [u8; NONCE_LEN] {
    let mut nonce = [0; NONCE_LEN];
    nonce[NONCE_LEN - 9..NONCE_LEN - 1].copy_from_slice(&(at as u64).to_be_bytes());
    nonce[NONCE_LEN - 1] = u8::from(last);
    nonce
}
