//! SYN-1, SYN-4, SYN-5, SYN-6, SYN-13: the objects of the real programs through outages. The cable is
//! pulled; objects change at the control plane, in nodes' folders and under nobody's eyes; one side
//! or the other, or both, are killed. With the cable back both sides have every object as its source
//! of truth left it: in both modes, over streams and by polling.
//!
//! Needs root and `ip`; says why when it is skipped.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use test_support::programs::cable::{Cable, V4};
use test_support::programs::{Host, Prefix, Running, Server, write};
use test_support::wait::until_blocking as until;
use test_support::wait::until_ok;

/// Nodes, and how events travel with each. What begins with `edge` is managed.
const NODES: [(&str, &str); 4] =
    [("edge-1", "auto"), ("edge-2", "poll"), ("shop-1", "websocket"), ("shop-2", "auto")];
const FOLDER: &str = "/srv/manifests";

fn write_fleet(repo: &Path) {
    let channel = |(name, transport): (&str, &str)| {
        format!("  {name}: {{contact: 1s, jitter: 10%, freshness: 24h, transport: {transport}}}\n")
    };
    let sync = |nodes: &str, mode: &str| {
        format!("  {mode}: {{nodes: [\"{nodes}\"], mode: {mode}, kinds: [Item], folder: {FOLDER}}}\n")
    };
    let fleet = format!(
        "format: 1\nname: e2e\nchannels:\n{}sync:\n{}{}",
        NODES.map(channel).concat(),
        sync("edge-*", "managed"),
        sync("shop-*", "autonomous"),
    );
    let node = |(name, _): (&str, &str)| format!("  - {{match: [{name}], channel: {name}}}\n");
    write(&repo.join("fleet.yaml"), &fleet);
    write(&repo.join("nodes.yaml"), &format!("nodes:\n{}", NODES.map(node).concat()));
}

/// What objects say, by their names.
type Texts = BTreeMap<String, String>;

/// A node, and what is to be on it.
struct Site {
    host: Host,
    daemon: Option<Running>,
    managed: bool,
    want: Texts,
    /// What a tool on the node says of the object `kept`.
    status: Value,
}

impl Site {
    fn join(server: &Server, dir: &Path, name: &str, at: &Prefix) -> Site {
        let host = Host::new(dir, name, at);
        server.token(name, &host.token_file());
        host.join();
        let managed = name.starts_with("edge");
        if !managed {
            std::fs::create_dir_all(host.path(FOLDER)).unwrap();
        }
        let daemon = Some(host.start());
        Site { host, daemon, managed, want: Texts::new(), status: Value::Null }
    }

    fn name(&self) -> &str {
        &self.host.name
    }

    fn kill(&mut self) {
        self.daemon.take().unwrap().kill();
    }

    fn start(&mut self) {
        self.daemon.get_or_insert_with(|| self.host.start());
    }

    /// Where an object lies on the node.
    fn file(&self, object: &str) -> PathBuf {
        self.host.path(FOLDER).join(format!("item/{}/{object}.yaml", self.name()))
    }

    fn manifest(&self, object: &str, text: &str) -> String {
        let node = self.name();
        format!("kind: Item\nmetadata:\n  namespace: {node}\n  name: {object}\nspec:\n  text: {text}\n")
    }

    /// The source of truth makes an object so.
    fn put(&mut self, server: &Server, object: &str, text: &str) {
        let manifest = self.manifest(object, text);
        if self.managed {
            let file = self.host.dir.join("manifest.yaml");
            write(&file, &manifest);
            server.ok(&["object", "apply", "-f", file.to_str().unwrap()]);
        } else {
            write(&self.file(object), &manifest);
        }
        self.want.insert(object.to_owned(), text.to_owned());
    }

    /// The source of truth takes an object away.
    fn remove(&mut self, server: &Server, object: &str) {
        if self.managed {
            server.ok(&["object", "delete", self.name(), &format!("Item/{object}"), "--yes"]);
        } else {
            std::fs::remove_file(self.file(object)).unwrap();
        }
        self.want.remove(object);
    }

    /// A tool on the node says how `kept` fares.
    fn say(&mut self, status: Value) {
        write(&self.file("kept").with_extension("yaml.status.json"), &status.to_string());
        self.status = status;
    }

    /// What lies on the node.
    fn here(&self) -> Texts {
        let files = std::fs::read_dir(self.file("kept").parent().unwrap()).into_iter().flatten();
        let manifests = files.map(|entry| entry.unwrap().path()).filter(|path| is_manifest(path));
        let text = |path: &Path| {
            let manifest = std::fs::read_to_string(path).ok()?;
            let (_, text) = manifest.split_once("\n  text: ")?;
            Some(text.lines().next()?.trim_matches('"').to_owned())
        };
        let named = |path: PathBuf| {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            (name, text(&path).unwrap_or_default())
        };
        manifests.map(named).collect()
    }

    /// What the control plane has of the node, with each object's uid.
    fn there(&self, server: &Server) -> (Texts, Texts, Value) {
        let (mut texts, mut uids, mut status) = (Texts::new(), Texts::new(), Value::Null);
        for listed in server.json(&["object", "list", self.name(), "--kind", "Item"]).as_array().unwrap() {
            let name = listed["name"].as_str().unwrap();
            let one = server.json(&["object", "get", self.name(), &format!("Item/{name}")]);
            texts.insert(
                name.to_owned(),
                one["manifest"]["spec"]["text"].as_str().unwrap_or_default().to_owned(),
            );
            uids.insert(name.to_owned(), one["uid"].as_str().unwrap_or_default().to_owned());
            if name == "kept" {
                status = one["status"].clone();
            }
        }
        (texts, uids, status)
    }

    /// Waits until both sides have what they should; gives the uids.
    #[track_caller]
    fn until_equal(&self, server: &Server) -> Texts {
        until_ok(&format!("{} is as it should be on both sides", self.name()), || {
            let (here, told) = (self.here(), &server.json(&["object", "status", self.name()])[0]);
            if here != self.want || told["condition"]["state"] != "in-sync" {
                return Err(format!("{told}\n{here:?}, and wanted is {:?}", self.want));
            }
            let (there, uids, status) = self.there(server);
            match there == self.want && status == self.status {
                true => Ok(uids),
                false => Err(format!(
                    "{there:?} with {status}, and wanted is {:?} with {}",
                    self.want, self.status
                )),
            }
        })
    }
}

/// Not a status, and not what is still being written.
fn is_manifest(path: &Path) -> bool {
    let hidden = path.file_name().unwrap().as_encoded_bytes().starts_with(b".");
    !hidden && path.extension().is_some_and(|extension| extension == "yaml")
}

/// What the operator and the hosts do while the cable is pulled.
fn change_all(server: &Server, sites: &mut [Site], outage: &str) {
    for site in &mut *sites {
        site.put(server, "kept", outage);
        site.put(server, &format!("new-{outage}"), "one");
        site.say(json!({"health": "poor", "in": outage}));
        if site.managed {
            // By hand: the node alone puts it right, as the source left it.
            write(&site.file("still"), &site.manifest("still", "by-hand"));
        }
    }
    for site in sites.iter().filter(|site| site.managed) {
        until("the edit by hand is put back", || (site.here()["still"] == "one").then_some(()));
        assert_ne!(site.here()["kept"], outage, "nothing gets through");
        let told = &server.json(&["object", "status", site.name()])[0];
        assert_eq!(told["condition"]["state"], "behind", "{told}");
    }
}

#[test]
fn both_sides_are_equal_after_each_outage() {
    let Some(cable) = Cable::lay() else { return };
    let temp = tempfile::tempdir().unwrap();
    let (dir, repo) = (temp.path(), temp.path().join("repo"));
    let mut server = Server::new(dir, &[V4], "[::]", &cable.at_control());
    let mut control = server.start();
    write_fleet(&repo);
    server.publish(&repo);
    let mut sites = NODES.map(|(name, _)| Site::join(&server, dir, name, &cable.at_host()));
    for site in &mut sites {
        for object in ["kept", "still", "gone-first", "gone-second"] {
            site.put(&server, object, "one");
        }
    }
    for site in &mut sites {
        site.until_equal(&server);
        site.say(json!({"health": "good"}));
    }
    let uids = sites.each_ref().map(|site| site.until_equal(&server));

    // In the first outage the control plane dies, and one node of each mode. In the second the other
    // two do, and leave the control plane with links that nobody is at the end of.
    for (outage, doomed) in [("first", ["edge-1", "shop-1"]), ("second", ["edge-2", "shop-2"])] {
        cable.pull();
        change_all(&server, &mut sites, outage);
        if outage == "first" {
            control.kill();
            control = server.start();
        }
        sites.iter_mut().filter(|site| doomed.contains(&site.name())).for_each(Site::kill);
        for site in &mut sites {
            site.remove(&server, &format!("gone-{outage}"));
            site.start();
        }
        cable.plug_in();
        for (site, before) in sites.iter().zip(&uids) {
            let after = site.until_equal(&server);
            for object in ["kept", "still"] {
                assert_eq!(after[object], before[object], "{object} is the same object as before");
            }
        }
    }
    for site in &sites {
        let file = dir.join("all.yaml");
        let all: Vec<String> = site.want.iter().map(|(object, text)| site.manifest(object, text)).collect();
        write(&file, &all.join("---\n"));
        let diff = server.muster(&["object", "diff", "-f", file.to_str().unwrap()]);
        // What a node authors is not the operator's to change, nor to compare with something else.
        let code = if site.managed { 0 } else { 5 };
        assert_eq!(diff.status.code(), Some(code), "{diff:?}");
    }
    drop((sites, control));
}
