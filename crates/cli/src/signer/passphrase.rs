//! Passphrases of encrypted key files: from a file, or from the terminal without showing it.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use trust::sealing::age::ScryptWork;
use zeroize::Zeroizing;

use super::SignerError;

/// The longest passphrase, in bytes.
const MAX_PASSPHRASE: usize = 1024;
/// The user's terminal, also where standard input is a pipe.
const TERMINAL: &str = "/dev/tty";
/// age's block size and parallelism.
const SCRYPT_R: u32 = 8;
const SCRYPT_P: u32 = 1;

/// The first line of a file.
///
/// # Errors
/// When it cannot be read, or is none that a passphrase can be.
pub(crate) fn read_passphrase(path: &Path) -> Result<Zeroizing<String>, SignerError> {
    let file = fs::File::open(path).map_err(|source| SignerError::Read { path: path.to_owned(), source })?;
    line(file).map_err(|source| SignerError::Read { path: path.to_owned(), source })?
}

/// Asks the user, who is shown what for and not what is typed.
pub(super) fn ask(path: &Path) -> Result<Zeroizing<String>, SignerError> {
    let nobody = |_| SignerError::NobodyToAsk(path.to_owned());
    let mut terminal = fs::File::options().read(true).write(true).open(TERMINAL).map_err(nobody)?;
    let _quiet = QuietTerminal::of(&terminal).map_err(SignerError::Ask)?;
    let asked = write!(terminal, "passphrase of {}: ", path.display()).and_then(|()| terminal.flush());
    asked.map_err(SignerError::Ask)?;
    let typed = terminal.try_clone().and_then(line).map_err(SignerError::Ask)?;
    // The newline that was typed is not shown either.
    writeln!(terminal).map_err(SignerError::Ask)?;
    typed
}

/// The first line, which may have any length that a passphrase has.
fn line(from: impl Read) -> io::Result<Result<Zeroizing<String>, SignerError>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_PASSPHRASE + 2));
    BufReader::new(from.take(MAX_PASSPHRASE as u64 + 2)).read_until(b'\n', &mut bytes)?;
    let refused = || SignerError::Passphrase(MAX_PASSPHRASE);
    let text = std::str::from_utf8(&bytes).map(|text| text.trim_end_matches(['\n', '\r']).to_owned());
    let text = text.map(Zeroizing::new).map_err(|_| refused());
    Ok(text.and_then(
        |text| {
            if (1..=MAX_PASSPHRASE).contains(&text.len()) { Ok(text) } else { Err(refused()) }
        },
    ))
}

/// A terminal that does not show what is typed, until this is dropped.
struct QuietTerminal {
    terminal: fs::File,
    before: Termios,
}

impl QuietTerminal {
    fn of(terminal: &fs::File) -> io::Result<QuietTerminal> {
        let before = tcgetattr(terminal.as_fd())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        let terminal = terminal.try_clone()?;
        tcsetattr(terminal.as_fd(), OptionalActions::Flush, &quiet)?;
        Ok(QuietTerminal { terminal, before })
    }
}

impl Drop for QuietTerminal {
    fn drop(&mut self) {
        // Nobody is left to tell when the terminal is gone.
        let _ = tcsetattr(self.terminal.as_fd(), OptionalActions::Flush, &self.before);
    }
}

/// Stretches a passphrase into the key that an age file is opened with.
///
/// # Errors
/// When the work is none that scrypt has.
pub(crate) fn stretch(passphrase: &str, work: &ScryptWork) -> Result<Zeroizing<[u8; 32]>, SignerError> {
    let params = scrypt::Params::new(work.log_n, SCRYPT_R, SCRYPT_P).map_err(|_| SignerError::Stretch)?;
    let mut out = Zeroizing::new([0; 32]);
    scrypt::scrypt(passphrase.as_bytes(), &work.salt, &params, out.as_mut_slice())
        .map_err(|_| SignerError::Stretch)?;
    Ok(out)
}
