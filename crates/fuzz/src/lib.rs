//! Every parser of bytes that others write, as one function of bytes each (SECURITY.md).
//!
//! A target neither panics nor takes long, whatever it gets; where a parser has an inverse, what was read is written
//! and read again as the same. `fuzz/corpus/NAME` holds seeds of each; `tests/corpora.rs` replays them with stable Rust,
//! and changes them a little. `cargo xtask fuzz` runs the same functions under libFuzzer.

mod documents;
mod evidence;
mod repos;
mod travel;

/// A parser.
#[derive(Clone, Copy)]
pub struct FuzzTarget {
    /// Its name, and that of its folder of seeds.
    pub name: &'static str,
    /// Parses.
    pub run: fn(&[u8]),
}

/// All of them, in the order of their names.
pub const TARGETS: &[FuzzTarget] = &[
    FuzzTarget { name: "age_file", run: documents::age_file },
    FuzzTarget { name: "audit", run: documents::audit },
    FuzzTarget { name: "certificate", run: documents::certificate },
    FuzzTarget { name: "check_in", run: travel::check_in },
    FuzzTarget { name: "chunk", run: documents::chunk },
    FuzzTarget { name: "cloudevents_json", run: travel::cloudevents_json },
    FuzzTarget { name: "csr", run: documents::csr },
    FuzzTarget { name: "expression", run: repos::expression },
    FuzzTarget { name: "feed_proof", run: evidence::feed_proof },
    FuzzTarget { name: "fleet_repo", run: repos::fleet_repo },
    FuzzTarget { name: "grpc", run: travel::grpc },
    FuzzTarget { name: "header", run: documents::header },
    FuzzTarget { name: "joins", run: travel::joins },
    FuzzTarget { name: "key_file", run: documents::key_file },
    FuzzTarget { name: "manifest", run: repos::manifest },
    FuzzTarget { name: "narinfo", run: evidence::narinfo },
    FuzzTarget { name: "pattern", run: repos::pattern },
    FuzzTarget { name: "proof", run: documents::proof },
    FuzzTarget { name: "protobuf", run: travel::protobuf },
    FuzzTarget { name: "provenance", run: evidence::provenance },
    FuzzTarget { name: "proxy_answer", run: travel::proxy_answer },
    FuzzTarget { name: "proxy_header", run: travel::proxy_header },
    FuzzTarget { name: "sealed", run: documents::sealed },
    FuzzTarget { name: "sealing_statement", run: evidence::sealing_statement },
    FuzzTarget { name: "selector", run: repos::selector },
    FuzzTarget { name: "signature", run: travel::signature },
    FuzzTarget { name: "signed_list", run: documents::signed_list },
    FuzzTarget { name: "sse", run: travel::sse },
    FuzzTarget { name: "ssh_key", run: documents::ssh_key },
    FuzzTarget { name: "template", run: repos::template },
    FuzzTarget { name: "token", run: documents::token },
    FuzzTarget { name: "trust_links", run: documents::trust_links },
];

/// Runs the target of a name.
///
/// # Panics
/// When there is none, or when what it tests does not hold.
pub fn run(name: &str, data: &[u8]) {
    let found = TARGETS.iter().find(|target| target.name == name);
    let Some(target) = found else { panic!("there is no fuzz target {name:?}") };
    (target.run)(data);
}

/// The text in bytes, where they are one.
fn text(data: &[u8]) -> &str {
    std::str::from_utf8(data).unwrap_or_default()
}
