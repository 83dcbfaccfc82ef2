//! `muster-agent executor test`: a custom executor, tried out.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use super::{VerbFailure, exit, print};
use crate::machine::MachineOptions;

pub(super) fn executor_test(
    machine: &MachineOptions,
    script: &Path,
    timeout: Duration,
) -> Result<ExitCode, VerbFailure> {
    /// The longest request read from stdin, in bytes.
    const MAX_REQUEST: u64 = 1024 * 1024;
    let mut request = Vec::new();
    std::io::stdin().take(MAX_REQUEST).read_to_end(&mut request)?;
    if request.trim_ascii().is_empty() {
        request = br#"{"name":"test","state":"present","params":{}}"#.to_vec();
    }
    let options = host::HostOptions { allow_exec: machine.allow_exec, ..host::HostOptions::default() };
    let host = host::Host::open(&machine.root_dir(), options)?;
    let tested = providers::custom::test_script(&host, script, &request, timeout)?;
    if !tested.stderr.is_empty() {
        eprintln!("{}", tested.stderr.trim_end());
    }
    let millis = tested.duration.as_millis();
    print(&format!("sha256 {}\ntook {millis} ms\n", tested.digest));
    match tested.reply {
        Ok(reply) if reply.error.is_empty() => {
            print(&format!("changed: {}\n", reply.changed));
            Ok(ExitCode::SUCCESS)
        }
        Ok(reply) => {
            print(&format!("failed, as the script says: {}\n", reply.error));
            Ok(ExitCode::from(exit::SOME_FAILED))
        }
        Err(why) => {
            print(&format!("not a valid answer: {why}\nit printed: {}\n", tested.stdout.trim_end()));
            Ok(ExitCode::from(exit::ERROR))
        }
    }
}
