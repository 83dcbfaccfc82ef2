//! Debian packages that a test makes, and the source from which hosts install them
//! (`/srv/packages/test`, in every host's `sources.list`).

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::commands::{script, succeed};
use super::testbed::Testbed;

/// A package to be built: few files, and whatever scripts and relations a test needs.
///
/// ```ignore
/// testbed.publish_packages(&[
///     TestPackage::new("shop", "1.0").conffile("/etc/shop.conf", "port 80\n"),
///     TestPackage::new("shop", "2.0").conffile("/etc/shop.conf", "port 8080\n"),
///     TestPackage::new("broken", "1.0").script("postinst", "#!/bin/sh\nexit 3\n"),
///     TestPackage::new("rival", "1.0").field("Conflicts", "shop"),
/// ]);
/// host.ok(["apt-get", "update"]);
/// ```
#[derive(Clone, Debug)]
pub struct TestPackage {
    name: String,
    version: String,
    fields: Vec<(String, String)>,
    files: Vec<(String, String)>,
    conffiles: Vec<String>,
    scripts: Vec<(String, String)>,
}

impl TestPackage {
    /// An empty package for every architecture.
    pub fn new(name: &str, version: &str) -> TestPackage {
        let (name, version) = (name.to_owned(), version.to_owned());
        let (fields, files) = (Vec::new(), Vec::new());
        TestPackage { name, version, fields, files, conffiles: Vec::new(), scripts: Vec::new() }
    }

    /// With a file that is read.
    pub fn file(mut self, path: &str, content: &str) -> TestPackage {
        self.files.push((path.to_owned(), content.to_owned()));
        self
    }

    /// With a file that belongs to the administrator once it is installed.
    pub fn conffile(mut self, path: &str, content: &str) -> TestPackage {
        self.conffiles.push(path.to_owned());
        self.file(path, content)
    }

    /// With a maintainer's script: `preinst`, `postinst`, `prerm`, `postrm`.
    pub fn script(mut self, name: &str, text: &str) -> TestPackage {
        self.scripts.push((name.to_owned(), text.to_owned()));
        self
    }

    /// With a field of its control file: `Depends`, `Conflicts`, `Provides`, `Essential` and so on.
    pub fn field(mut self, name: &str, value: &str) -> TestPackage {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Builds it below a folder; gives the file's path.
    pub fn build(&self, folder: &Path) -> PathBuf {
        let file = folder.join(format!("{}_{}_all.deb", self.name, self.version.replace(':', "%3a")));
        let tree = file.with_extension("tree");
        let control = tree.join("DEBIAN");
        fs::create_dir_all(&control).unwrap();
        let mut fields = format!(
            "Package: {}\nVersion: {}\nArchitecture: all\nMaintainer: Tests <tests@muster.invalid>\n",
            self.name, self.version
        );
        for (name, value) in &self.fields {
            fields += &format!("{name}: {value}\n");
        }
        fs::write(control.join("control"), fields + "Description: made by a test\n").unwrap();
        if !self.conffiles.is_empty() {
            fs::write(control.join("conffiles"), self.conffiles.join("\n") + "\n").unwrap();
        }
        for (name, text) in &self.scripts {
            fs::write(control.join(name), text).unwrap();
            fs::set_permissions(control.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        for (path, content) in &self.files {
            let path = tree.join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let build = ["--root-owner-group", "-Znone", "--build"];
        succeed(Command::new("dpkg-deb").args(build).arg(&tree).arg(&file)).unwrap();
        fs::remove_dir_all(tree).unwrap();
        file
    }
}

impl Testbed {
    /// Builds packages into the test's own source and writes its index; those of before stay.
    pub fn publish_packages(&self, packages: &[TestPackage]) {
        let folder = self.packages();
        for package in packages {
            package.build(&folder);
        }
        self.index_packages();
    }

    /// Writes the index of the test's own source anew, after files came or went.
    pub fn index_packages(&self) {
        let index = "cd \"$1\" && dpkg-scanpackages --multiversion . >.new && mv .new Packages";
        script(index, &[&self.packages().display().to_string()]).unwrap();
    }
}
