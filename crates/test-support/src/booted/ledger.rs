//! The ledger of minutes: one line for each test that booted hosts, in the file that
//! `MUSTER_BOOTED` names (`cargo xtask booted` prints them as a table).

use std::fs::File;
use std::io::Write;
use std::time::Instant;

/// The time of one test; its row is written when this goes.
pub(super) struct LedgerRow {
    test: String,
    begun: Instant,
}

impl LedgerRow {
    pub(super) fn begin() -> LedgerRow {
        let test = std::thread::current().name().unwrap_or("a thread without a name").to_owned();
        LedgerRow { test, begun: Instant::now() }
    }
}

impl Drop for LedgerRow {
    fn drop(&mut self) {
        write(&self.test, &seconds(self.begun));
    }
}

/// Says that the calling test was skipped.
pub(super) fn skipped(why: &str) {
    let test = std::thread::current().name().unwrap_or_default().to_owned();
    eprintln!("skipped: {why}");
    write(&test, &format!("skipped: {}", why.lines().next().unwrap_or_default()));
}

/// The time since then, as rows have it.
pub(super) fn seconds(begun: Instant) -> String {
    format!("{:.1}", begun.elapsed().as_secs_f64())
}

/// Writes a row, in one write: tests run side by side.
pub(super) fn write(test: &str, took: &str) {
    let Some(path) = std::env::var_os("MUSTER_BOOTED") else { return };
    if let Ok(mut file) = File::options().append(true).open(path) {
        let _ = file.write_all(format!("{test}\t{took}\n").as_bytes());
    }
}
