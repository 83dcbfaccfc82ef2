#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::run("signed_list", data));
