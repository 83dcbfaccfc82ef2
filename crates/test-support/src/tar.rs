//! Tar files as no program would write them: each member by its fields.

/// One member, as ustar has it, of the user and group 1000. Kinds are those of the format: `b'0'` a file, `b'1'` a hard link,
/// `b'2'` a symbolic link, `b'5'` a directory.
pub fn member(name: &str, kind: u8, link: &str, mode: u32, content: &[u8]) -> Vec<u8> {
    let mut header = vec![0u8; 512];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, &format!("{mode:07o}"));
    put(108, "0001750");
    put(116, "0001750");
    put(124, &format!("{:011o}", content.len()));
    put(136, "00000000000");
    put(148, "        ");
    put(157, link);
    put(257, "ustar\x0000");
    header[156] = kind;
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header.extend(content);
    header.resize(header.len().next_multiple_of(512), 0);
    header
}

/// A whole tar file of these members.
pub fn tar(members: &[Vec<u8>]) -> Vec<u8> {
    let mut all = members.concat();
    all.extend([0; 1024]);
    all
}
