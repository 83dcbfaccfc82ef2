//! [`SigningCommand`]: a hardware token or a key service, behind a command.
//!
//! ```text
//! MUSTER_SIGNER=sign         standard input: the bytes to sign; standard output: the signature
//! MUSTER_SIGNER=public-key   standard output: the public key
//! ```
//!
//! A signature is 64 raw bytes or, of P-256, DER; either as it is or in base64. ECDSA hashes the bytes with SHA-256.

use std::time::Duration;

use data_encoding::BASE64;
use trust::PublicKey;
use trust::key::SIGNATURE_LEN;

use super::{SignerError, public};
use crate::child::{BoundedCommand, ChildError, ChildErrors};

/// Says to the command what is asked for.
const ASKED: &str = "MUSTER_SIGNER";
/// The most that a command may print, in bytes: a public key in PEM.
const MAX_OUTPUT: usize = 4 * 1024;

/// A command that signs.
pub(crate) struct SigningCommand {
    argv: Vec<String>,
    timeout: Duration,
}

/// What was printed, and the last that was said beside it.
struct Printed {
    stdout: Vec<u8>,
    said: String,
}

impl SigningCommand {
    /// The command of these arguments, of which there is at least the program.
    pub(super) fn new(argv: Vec<String>, timeout: Duration) -> SigningCommand {
        SigningCommand { argv, timeout }
    }

    /// What is run.
    pub(super) fn program(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }

    /// Asks for the public key.
    pub(super) fn public_key(&self) -> Result<PublicKey, SignerError> {
        let Printed { stdout, said } = self.ask("public-key", &[])?;
        let program = self.program().to_owned();
        public::parse(&stdout).ok_or(SignerError::NoPublicKey { program, said })
    }

    /// Asks for a signature, which is not verified here.
    pub(super) fn sign(&self, key: &PublicKey, message: &[u8]) -> Result<[u8; SIGNATURE_LEN], SignerError> {
        let Printed { stdout, said } = self.ask("sign", message)?;
        read(key, &stdout).ok_or_else(|| SignerError::Rubbish {
            program: self.program().to_owned(),
            why: format!("{} bytes that are none of {}", stdout.len(), key.algorithm()),
            said,
        })
    }

    fn ask(&self, what: &str, stdin: &[u8]) -> Result<Printed, SignerError> {
        let command = BoundedCommand {
            argv: &self.argv,
            last: None,
            env: Some((ASKED, what)),
            stdin: Some(stdin),
            errors: ChildErrors::Tell,
            most: MAX_OUTPUT,
            timeout: self.timeout,
        };
        let program = || self.program().to_owned();
        let output = command.run().map_err(|error| match error {
            ChildError::Empty => {
                SignerError::Start { program: program(), source: std::io::ErrorKind::InvalidInput.into() }
            }
            ChildError::Start { program, source } => SignerError::Start { program, source },
            ChildError::Hangs { said } => {
                SignerError::Hangs { program: program(), after: self.timeout, said }
            }
        })?;
        let said = output.said;
        // First: nobody read the rest, of which it may have died.
        if output.stdout.len() > MAX_OUTPUT {
            let why = format!("more than {MAX_OUTPUT} bytes");
            return Err(SignerError::Rubbish { program: program(), why, said });
        }
        if !output.status.success() {
            return Err(SignerError::Ended { program: program(), status: output.status, said });
        }
        Ok(Printed { stdout: output.stdout.to_vec(), said })
    }
}

/// A signature in any of its forms.
fn read(key: &PublicKey, printed: &[u8]) -> Option<[u8; SIGNATURE_LEN]> {
    let decoded = || {
        let text: String = std::str::from_utf8(printed).ok()?.split_whitespace().collect();
        key.raw_signature(&BASE64.decode(text.as_bytes()).ok()?)
    };
    key.raw_signature(printed).or_else(decoded)
}

#[cfg(test)]
mod tests {
    use trust::{KeyAlgorithm, SigningKey};

    use super::*;

    #[test]
    fn signatures_are_read_in_each_form() {
        for algorithm in KeyAlgorithm::ALL {
            let key = SigningKey::from_secret(algorithm, &[7; 32]).unwrap();
            let (raw, public) = (key.sign(b"hello"), key.public());
            let in_base64 = BASE64.encode(&raw);
            let wrapped = format!("{}\n{}\n", &in_base64[..40], &in_base64[40..]);
            for printed in [raw.as_slice(), in_base64.as_bytes(), wrapped.as_bytes()] {
                assert_eq!(read(&public, printed), Some(raw), "{algorithm}");
            }
            for rubbish in [&b""[..], b"signed", &raw[..63], &in_base64.as_bytes()[..40]] {
                assert_eq!(read(&public, rubbish), None, "{algorithm}");
            }
        }
    }

    /// As a key service prints one: a sequence of two integers, of which one may need a zero before it.
    #[test]
    fn p256_signatures_are_read_as_der_too() {
        let key = SigningKey::from_secret(KeyAlgorithm::EcdsaP256, &[7; 32]).unwrap();
        let integer = |bytes: &[u8]| {
            let bytes: Vec<u8> = bytes.iter().copied().skip_while(|byte| *byte == 0).collect();
            let zero: &[u8] = if bytes[0] & 0x80 != 0 { &[0] } else { &[] };
            let body = [zero, &bytes].concat();
            [&[2, body.len() as u8][..], &body].concat()
        };
        for message in 0..20_u8 {
            let raw = key.sign(&[message]);
            let body = [integer(&raw[..32]), integer(&raw[32..])].concat();
            let der = [&[0x30, body.len() as u8][..], &body].concat();
            assert_eq!(read(&key.public(), &der), Some(raw));
            assert_eq!(read(&key.public(), BASE64.encode(&der).as_bytes()), Some(raw));
        }
    }
}
