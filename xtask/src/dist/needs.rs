//! What a program needs of the system it is installed on: Debian's packages of the shared libraries
//! that it is linked to, in the versions whose symbols it uses.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Libraries that a program of ours may be linked to: name, Debian's package, and the name of its
/// symbols' versions.
const KNOWN: &[(&str, &str, &str)] = &[
    ("libc.so.", "libc6", "GLIBC_"),
    ("libm.so.", "libc6", "GLIBC_"),
    ("libdl.so.", "libc6", "GLIBC_"),
    ("libpthread.so.", "libc6", "GLIBC_"),
    ("librt.so.", "libc6", "GLIBC_"),
    ("ld-linux", "libc6", "GLIBC_"),
    ("libgcc_s.so.", "libgcc-s1", "GCC_"),
];

/// What the C library calls packed relative relocations, and the version that first reads them.
const RELATIVE: (&str, &str) = ("GLIBC_ABI_DT_RELR", "2.36");

/// The packages that a program depends on, as a `Depends` field has them, in order.
///
/// # Errors
/// When the program cannot be read, or is linked to a library of which no package is known.
pub fn of(program: &Path) -> Result<Vec<String>, String> {
    let mut readelf = Command::new("readelf");
    readelf.args(["--wide", "--dynamic", "--version-info"]).arg(program).env("LC_ALL", "C");
    let output = readelf.output().map_err(|error| format!("readelf: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(format!("readelf {}: {said}", program.display()));
    }
    from_text(&String::from_utf8_lossy(&output.stdout))
        .map_err(|error| format!("{}: {error}", program.display()))
}

fn from_text(text: &str) -> Result<Vec<String>, String> {
    let mut newest: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for library in text.lines().filter_map(needed) {
        let (_, package, _) = known(library)
            .ok_or_else(|| format!("no Debian package is known for {library} (xtask/src/dist/needs.rs)"))?;
        newest.entry(package).or_default();
    }
    let mut library = None;
    for line in text.lines() {
        if let Some(file) = after(line, "File: ") {
            library = known(file);
        }
        // Only what the library is asked for; what the program defines names no file.
        let (Some((_, package, prefix)), Some(version)) = (library, after(line, "Name: ")) else { continue };
        let numbers = match version == RELATIVE.0 {
            true => numbers(RELATIVE.1),
            false => version.strip_prefix(prefix).and_then(numbers),
        };
        if let (Some(newest), Some(numbers)) = (newest.get_mut(package), numbers) {
            *newest = numbers.max(std::mem::take(newest));
        }
    }
    let field = |(package, version): (&str, Vec<u32>)| {
        let version: Vec<String> = version.iter().map(u32::to_string).collect();
        if version.is_empty() { package.to_owned() } else { format!("{package} (>= {})", version.join(".")) }
    };
    Ok(newest.into_iter().map(field).collect())
}

fn known(library: &str) -> Option<&'static (&'static str, &'static str, &'static str)> {
    KNOWN.iter().find(|(name, _, _)| library.starts_with(name))
}

/// The library of a line `0x... (NEEDED)  Shared library: [libc.so.6]`.
fn needed(line: &str) -> Option<&str> {
    line.contains("(NEEDED)").then(|| line.split_once('[')?.1.split_once(']'))?.map(|(name, _)| name)
}

fn after<'l>(line: &'l str, mark: &str) -> Option<&'l str> {
    line.split_once(mark)?.1.split_whitespace().next()
}

fn numbers(version: &str) -> Option<Vec<u32>> {
    version.split('.').map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::from_text;

    const TEXT: &str = "
 0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]
 0x0000000000000001 (NEEDED)             Shared library: [libc.so.6]
Version needs section '.gnu.version_r' contains 2 entries:
  000000: Version: 1  File: libgcc_s.so.1  Cnt: 2
  0x0010:   Name: GCC_3.0  Flags: none  Version: 8
  0x0020:   Name: GCC_4.2.0  Flags: none  Version: 5
  0x0030: Version: 1  File: libc.so.6  Cnt: 3
  0x0040:   Name: GLIBC_2.9  Flags: none  Version: 9
  0x0050:   Name: GLIBC_2.34  Flags: none  Version: 9
  0x0060:   Name: GLIBC_PRIVATE  Flags: none  Version: 9
";

    #[test]
    fn the_newest_symbols_count() {
        assert_eq!(from_text(TEXT).unwrap(), ["libc6 (>= 2.34)", "libgcc-s1 (>= 4.2.0)"]);
    }

    #[test]
    fn packed_relocations_need_a_library_that_reads_them() {
        let text = TEXT.replace("GLIBC_PRIVATE", "GLIBC_ABI_DT_RELR");
        assert_eq!(from_text(&text).unwrap(), ["libc6 (>= 2.36)", "libgcc-s1 (>= 4.2.0)"]);
    }

    #[test]
    fn a_library_without_a_known_package_is_named() {
        let text = TEXT.replace("libgcc_s.so.1]", "libssl.so.3]");
        assert!(from_text(&text).unwrap_err().contains("libssl.so.3"));
    }
}
