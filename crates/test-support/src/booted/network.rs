//! The network of one test: a bridge in a namespace of the control plane, and a namespace for each
//! host with one interface, `eth0`, into that bridge. Hosts reach the control plane and nothing else,
//! not even each other.
//!
//! ```text
//! muster server  10.213.80.1  fd00:213:80::1   bridge in the namespace  mt-ID-c
//! host 1         10.213.80.11 fd00:213:80::11  eth0 in the namespace    mt-ID-1
//! host 2         10.213.80.12 ...
//! ```
//! The namespaces are the test's, not the hosts': a reboot leaves interface and addresses as they are.

use std::process::Command;

use super::commands::{ip, succeed};

/// The control plane's addresses.
pub const V4: &str = "10.213.80.1";
pub const V6: &str = "fd00:213:80::1";
/// The control plane's name in the hosts.
pub const NAME: &str = "control.test";

/// A test's network; removed when it goes.
pub(super) struct TestNetwork {
    id: String,
}

impl TestNetwork {
    pub(super) fn make(id: &str) -> Result<TestNetwork, String> {
        let network = TestNetwork { id: id.to_owned() };
        let control = network.control();
        ip(&format!("netns add {control}"))?;
        ip(&format!("-n {control} link set lo up"))?;
        ip(&format!("-n {control} link add bridge type bridge"))?;
        ip(&format!("-n {control} addr add {V4}/24 dev bridge"))?;
        ip(&format!("-n {control} addr add {V6}/64 dev bridge nodad"))?;
        ip(&format!("-n {control} link set bridge up"))?;
        Ok(network)
    }

    /// The namespace in which the control plane runs.
    pub(super) fn control(&self) -> String {
        format!("mt-{}-c", self.id)
    }

    /// The namespace of a host.
    pub(super) fn host(&self, number: u32) -> String {
        format!("mt-{}-{number}", self.id)
    }

    /// Makes the namespace of a host and plugs it into the bridge.
    pub(super) fn add(&self, number: u32) -> Result<(), String> {
        let (control, host, last) = (self.control(), self.host(number), 10 + number);
        ip(&format!("netns add {host}"))?;
        ip(&format!("-n {host} link set lo up"))?;
        ip(&format!("link add eth0 netns {host} type veth peer name port{number} netns {control}"))?;
        ip(&format!("-n {host} addr add 10.213.80.{last}/24 dev eth0"))?;
        ip(&format!("-n {host} addr add fd00:213:80::{last}/64 dev eth0 nodad"))?;
        ip(&format!("-n {host} link set eth0 up"))?;
        ip(&format!("-n {control} link set port{number} master bridge up"))?;
        ip(&format!("-n {control} link set port{number} type bridge_slave isolated on"))
    }

    /// Unplugs a host at the bridge, or plugs it in again.
    pub(super) fn plug(&self, number: u32, is_plugged: bool) -> Result<(), String> {
        let state = if is_plugged { "up" } else { "down" };
        ip(&format!("-n {} link set port{number} {state}", self.control()))
    }

    /// Lets this many bytes more reach a host, and drops the rest: a connection that is cut in the
    /// middle of what it carries.
    pub(super) fn lose_after(&self, number: u32, bytes: u64) -> Result<(), String> {
        let _ = self.lose_nothing(number);
        self.nft(
            number,
            &format!(
                "add table inet loss; add chain inet loss input {{ type filter hook input priority 0 ; }}; \
             add rule inet loss input quota over {bytes} bytes counter drop"
            ),
        )
        .map(drop)
    }

    /// Whether anything was lost since [`Self::lose_after`].
    pub(super) fn has_lost(&self, number: u32) -> Result<bool, String> {
        Ok(!self.nft(number, "list table inet loss")?.contains("counter packets 0 "))
    }

    /// Lets everything reach a host again.
    pub(super) fn lose_nothing(&self, number: u32) -> Result<(), String> {
        self.nft(number, "delete table inet loss").map(drop)
    }

    fn nft(&self, number: u32, commands: &str) -> Result<String, String> {
        succeed(Command::new("ip").args(["netns", "exec", &self.host(number), "nft", commands]))
    }
}
