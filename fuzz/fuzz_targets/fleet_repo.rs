#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("fleet_repo", data));
