//! OPS-6: the container file copies what `cargo xtask dist` makes, runs as nobody's root, and starts
//! the control plane with options that it has.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs;

use xtask::root;

/// The instructions of a container file, with the lines that they go on in: name and arguments.
fn instructions(text: &str) -> Vec<(String, String)> {
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let split = |line: &str| {
        let (name, arguments) = line.split_once(' ').unwrap_or((line, ""));
        (name.to_owned(), arguments.trim().to_owned())
    };
    lines.map(split).collect()
}

#[test]
fn the_container_file_fits_what_is_made() {
    let text = fs::read_to_string(root().join("packaging/Containerfile")).unwrap();
    let instructions = instructions(&text);
    let of = |wanted: &str| -> Vec<String> {
        let same = instructions.iter().filter(|(name, _)| name == wanted);
        same.map(|(_, arguments)| arguments.clone()).collect()
    };
    const KNOWN: &[&str] =
        &["FROM", "RUN", "COPY", "USER", "WORKDIR", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT"];
    for (name, _) in &instructions {
        assert!(KNOWN.contains(&name.as_str()), "{name} is no instruction that is meant here");
    }
    assert_eq!(instructions[0].0, "FROM");
    // What `dist` puts into the directory that it is built in.
    for copied in of("COPY") {
        let (source, to) = copied.split_once(' ').unwrap();
        assert!(["muster", "muster-agent"].contains(&source), "nothing makes {source}");
        assert_eq!(to, format!("/usr/bin/{source}"));
    }
    let [user] = of("USER").try_into().unwrap();
    let (uid, gid) = user.split_once(':').unwrap();
    assert!(uid.parse::<u32>().unwrap() > 0 && gid.parse::<u32>().unwrap() > 0, "{user}");
    assert_eq!(of("EXPOSE"), ["1530"]);
    let [volume] = of("VOLUME").try_into().unwrap();
    let [entry] = of("ENTRYPOINT").try_into().unwrap();
    let entry: Vec<String> = serde_json::from_str(&entry).unwrap();
    assert_eq!(entry[..2], ["/usr/bin/muster", "server"]);
    assert!(entry.contains(&volume), "{entry:?} does not keep its state in {volume}");
    let reference = fs::read_to_string(root().join("docs/reference/cli.md")).unwrap();
    let server = reference.split("\n### muster server\n").nth(1).unwrap();
    for option in entry.iter().filter(|word| word.starts_with("--")) {
        assert!(server.contains(&format!(" {option} <")), "`muster server` has no {option}");
    }
    let [health] = of("HEALTHCHECK").try_into().unwrap();
    let command: Vec<String> = serde_json::from_str(health.split_once("CMD ").unwrap().1).unwrap();
    assert_eq!(command[0], "bash");
    let address = entry.iter().skip_while(|word| *word != "--metrics").nth(1).unwrap();
    assert!(command[2].contains(&address.replace(':', "/")), "{command:?} asks somebody else than {address}");
}
