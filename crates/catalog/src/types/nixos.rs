//! `nixos`: the system that a NixOS host runs (ROL-10).

use std::collections::BTreeMap;
use std::str::FromStr;

use lang::Value;
use model::Fields;
use trust::nix::{CacheKey, StorePath};

use super::download::CA;
use super::{Ensure, Spec, StateSpec};
use crate::module::OnRemove::{Keep, Restore};
use crate::schema::{
    Attribute, AttributeProblem, FieldKind, Manages, ResourceAttributes, ResourceType, Short, literal,
    literals,
};

/// The one name of such a resource: a host has one system.
const NAME: &str = "system";
/// Seconds that a switch may take with all that it fetches, where `timeout:` says nothing.
const TIMEOUT_SECS: u32 = 3600;
/// The name of the system that runs, in a state.
pub const NIXOS_RUNNING_TEXT: &str = "closure";
/// The name of the system that the next boot runs, in a state.
pub const NIXOS_PROFILE_TEXT: &str = "profile";
/// How the switch to it stands, in a state.
pub const NIXOS_SWITCH_TEXT: &str = "switch";
/// That no switch is under way: an agent that was restarted by one is not done before.
pub const NIXOS_SWITCH_ENDED: &str = "ended";

/// The declaration.
pub(super) static TYPE: ResourceType = ResourceType {
    name: "nixos",
    summary: "The system of a NixOS host: a closure of the Nix store, which its profile `system` leads to and which \
              `switch-to-configuration` switches to, in a unit that outlives the agent. What the store lacks of it comes \
              from the caches in their order, and from the control plane where no cache gives it (`muster closure \
              upload`). Each path counts by the signature of a pinned key, and its archive by the hash and size that are \
              signed; nothing is switched before all of it is in the store. Archives may be packed by what `nix copy` \
              packs with (xz, zstd, bzip2, gzip, none). A release that is taken back goes to the path that was confirmed \
              before, without the network; both are kept from garbage collection. A changed kernel, initrd or set of \
              modules takes effect at the next boot, which is asked for as a package asks for one.",
    short: Short::Name,
    attributes: &[
        Attribute::required(
            "closure",
            FieldKind::Line,
            "the system's path, `/nix/store/HASH-NAME`, as `nix build .#nixosConfigurations.HOST.config.system.build.toplevel \
             --print-out-paths` prints it",
        ),
        Attribute::new(
            "caches",
            FieldKind::List,
            "",
            "binary caches, `https://` or `http://`, asked in this order",
        ),
        Attribute::required(
            "cache_keys",
            FieldKind::List,
            "the public keys whose signatures count, `NAME:BASE64`; one of them must have signed each path, wherever it \
             comes from",
        ),
        Attribute::new(
            "control_plane",
            FieldKind::Bool,
            "true",
            "whether the control plane is asked for what no cache gives",
        ),
        CA,
    ],
    timeout_secs: TIMEOUT_SECS,
    on_remove: &[Keep, Restore],
    handler: false,
    guarded: false,
    example: "- nixos: system\n  closure: /nix/store/1qg4rfmsd3j8a0b6v5kxz2pywn9hclqi-nixos-system-web-1-25.11\n  caches: [\"https://cache.example.com\"]\n  cache_keys: \
              [\"cache.example.com-1:7UCCrstCuunXZ82WXD7dtbk0VWFiIz51xYBhuszbLcw=\"]\n",
    manages: Manages::State,
    removal: &[],
    rules,
    bind,
};

/// `nixos`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NixosSpec {
    /// The system.
    pub closure: StorePath,
    /// The URLs of caches.
    pub caches: Vec<String>,
    /// Whose signatures count.
    pub cache_keys: Vec<CacheKey>,
    /// Whether the control plane is asked where no cache gives something.
    pub control_plane: bool,
    /// The certificates of the CAs that caches are believed by, in PEM.
    pub ca_file: String,
}

impl StateSpec for NixosSpec {
    fn ensure(&self) -> Ensure {
        Ensure::Present
    }

    fn declared(&self) -> Fields {
        let system = self.closure.to_string();
        let ended = NIXOS_SWITCH_ENDED.to_owned();
        let texts =
            [(NIXOS_RUNNING_TEXT, system.clone()), (NIXOS_PROFILE_TEXT, system), (NIXOS_SWITCH_TEXT, ended)];
        texts.map(|(name, text)| (name.to_owned(), text)).into()
    }
}

fn is_cache(url: &str) -> bool {
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    host.is_some_and(|host| {
        !host.is_empty() && host.bytes().all(|c| c.is_ascii_graphic()) && !host.contains(['?', '#'])
    })
}

fn rules(attributes: &BTreeMap<String, Value>) -> Vec<AttributeProblem> {
    let mut found = Vec::new();
    if let Some(name) = literal(attributes, "name").filter(|name| *name != NAME) {
        let message = format!("a host has one system, and `{name}` is no name for it");
        found.push(AttributeProblem::value("name", message, "write `nixos: system`"));
    }
    if let Some(Err(error)) = literal(attributes, "closure").map(StorePath::from_str) {
        let help = "the path that `nix build --print-out-paths` prints";
        found.push(AttributeProblem::value("closure", error.to_string(), help));
    }
    for error in literals(attributes, "cache_keys").filter_map(|key| CacheKey::from_str(key).err()) {
        let help = "the public key that the cache states, such as `cache.example.com-1:7UCC...=`";
        found.push(AttributeProblem::value("cache_keys", error.to_string(), help));
    }
    for cache in literals(attributes, "caches").filter(|cache| !is_cache(cache)) {
        let message = format!("`{cache}` is no URL of a cache");
        found.push(AttributeProblem::value("caches", message, "such as https://cache.example.com"));
    }
    found
}

fn bind(given: &ResourceAttributes<'_>) -> Result<Spec, String> {
    let closure = given.text_or_empty("closure").parse::<StorePath>().map_err(|error| error.to_string())?;
    let keys = given.list("cache_keys").unwrap_or_default();
    let cache_keys: Vec<CacheKey> =
        keys.iter().map(|key| key.parse()).collect::<Result<_, _>>().map_err(|error| format!("{error}"))?;
    if cache_keys.is_empty() {
        return Err("no key is pinned, so that no path could count".to_owned());
    }
    Ok(Spec::Nixos(NixosSpec {
        closure,
        caches: given.list("caches").unwrap_or_default(),
        cache_keys,
        control_plane: given.flag("control_plane").unwrap_or(true),
        ca_file: given.text("ca_file").unwrap_or_else(|| super::download::CA_FILE.to_owned()),
    }))
}
