//! A joined host without a control plane: membership, an adopted set, its contents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use agent::identity::Membership;
use agent::machine::MachineOptions;
use agent::state::StateDir;
use catalog::module::{CommandLine, Declared, DeclaredResource, Module, Params};
use lang::Value;
use model::exchange::Signed;
use model::object::ObjectKey;
use model::policy::Policy;
use model::work::Delegation;
use model::{Digest, Kind, ObjectSet, Stub, Timestamp};
use node::Adoption;
use trust::token::KeySource;
use trust::{Floor, Freshness, SigningKey, Slots, TrustDocument};

/// Where the host is, for every verb.
pub fn machine_options(state: &Path, root: &Path, allow_exec: bool) -> MachineOptions {
    MachineOptions { state: Some(state.to_owned()), root: Some(root.to_owned()), allow_exec }
}

/// Records a membership of a fleet that is nowhere.
pub fn join(state: &Path, root: &Path, allow_exec: bool) {
    let key = SigningKey::from_seed(&[7; 32]).public();
    let trust = TrustDocument::first("test-fleet".parse().unwrap(), Slots::of(key), Slots::of(key));
    let membership = Membership {
        node_id: key.node_id(),
        hostname: "host.test".parse().unwrap(),
        servers: vec!["https://127.0.0.1:1".parse().unwrap()],
        tls_termination: Default::default(),
        proxy: None,
        ca_pem: String::new(),
        cert_pem: String::new(),
        trust,
        key: KeySource::Own,
        root: Some(root.to_owned()),
        allow_exec,
    };
    std::fs::create_dir_all(root).unwrap();
    StateDir::create(state).unwrap().save_membership(&membership).unwrap();
}

/// Adopts a set of these modules as release `seq`, as if it had been verified.
pub fn adopt(state: &Path, seq: u64, modules: Vec<Module>) {
    let (adoption, contents) = release(seq, modules, None);
    let durable = StateDir::create(state).unwrap().open().unwrap();
    for bytes in contents {
        durable.keep(&bytes, Digest::of(&bytes)).unwrap();
    }
    durable.adopt(&adoption).unwrap();
}

/// A release of these modules that a node can hold, as if it had been verified, and its contents.
pub fn release(seq: u64, modules: Vec<Module>, delegation: Option<&Delegation>) -> (Adoption, Vec<Vec<u8>>) {
    let names = modules.iter().map(|module| module.name.clone()).collect();
    let params = Params {
        node: Declared { channel: "stable".to_owned(), ..Declared::default() },
        modules: names,
        ..Params::default()
    };
    let mut contents = vec![
        (ObjectKey::of(Kind::PARAMS, "node"), model::canonical::to_bytes(&params).unwrap()),
        (ObjectKey::of(Kind::POLICY, "channel"), model::canonical::to_bytes(&Policy::default()).unwrap()),
    ];
    for module in modules {
        let bytes = model::canonical::to_bytes(&module).unwrap();
        contents.push((ObjectKey::of(Kind::MODULE, &module.name), bytes));
    }
    if let Some(delegation) = delegation {
        let bytes = model::canonical::to_bytes(delegation).unwrap();
        contents.push((ObjectKey::of(Kind::DELEGATION, "commands"), bytes));
    }
    let objects: BTreeMap<ObjectKey, Stub> =
        contents.iter().map(|(key, bytes)| (key.clone(), Stub::of(bytes))).collect();
    let set = ObjectSet::of(objects.clone());
    let signed_at = Timestamp::from_secs(1_795_219_200);
    let adoption = Adoption {
        header: Signed { payload: "{}".to_owned(), signatures: Vec::new() },
        digest: Digest::of(&seq.to_be_bytes()),
        channel: "stable".parse().unwrap(),
        seq,
        root: set.root(),
        objects,
        floor: Floor { seq, ..Floor::default() },
        freshness: Some(Freshness { signed_at, window_secs: 20 * 365 * 24 * 3600 }),
        adopted_at: signed_at,
        same_as: None,
    };
    (adoption, contents.into_iter().map(|(_, bytes)| bytes).collect())
}

/// A module without anything.
pub fn module(name: &str) -> Module {
    Module {
        name: name.to_owned(),
        depends_on: BTreeSet::new(),
        when: None,
        params: BTreeMap::new(),
        resources: Vec::new(),
        handlers: Vec::new(),
        verify: None,
        observe: false,
        templates: BTreeMap::new(),
        files: BTreeMap::new(),
        blobs: BTreeSet::new(),
    }
}

/// A resource with these attributes.
pub fn resource(kind: &str, name: &str, attributes: &[(&str, Value)]) -> DeclaredResource {
    DeclaredResource {
        kind: kind.to_owned(),
        name: name.to_owned(),
        attributes: attributes.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
        ..DeclaredResource::default()
    }
}

/// A file with this content.
pub fn file(path: &str, content: &str) -> DeclaredResource {
    resource("file", path, &[("content", content.into()), ("mode", "0644".into())])
}

/// A shell handler.
pub fn handler(name: &str, script: &str) -> DeclaredResource {
    resource("shell", name, &[("command", script.into())])
}

/// A verify command.
pub fn verify(script: &str) -> Option<CommandLine> {
    Some(CommandLine::Shell(script.to_owned()))
}
