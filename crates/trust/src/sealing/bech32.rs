//! Bech32 (BIP 173) without its bound on length, as age writes keys.

/// The digits of Bech32.
const CHARSET: &[u8; 32] = b"qpzry9x8gf2tvdw0s3jn54khce6mua7l";
/// Digits of the checksum.
const CHECKSUM: usize = 6;
/// The longest text that is read, in bytes.
const MAX_TEXT: usize = 256;

/// Writes bytes after a prefix, in lower case.
pub(super) fn encode(prefix: &str, data: &[u8]) -> String {
    let mut digits = regroup(data.iter().copied(), 8, 5, true).unwrap_or_default();
    let mut sum = expanded(prefix);
    sum.extend(&digits);
    sum.extend([0; CHECKSUM]);
    let rest = polymod(&sum) ^ 1;
    digits.extend((0..CHECKSUM).map(|at| (rest >> (5 * (CHECKSUM - 1 - at)) & 31) as u8));
    let text = digits.iter().map(|digit| char::from(CHARSET[usize::from(*digit & 31)]));
    format!("{prefix}1{}", text.collect::<String>())
}

/// Reads what stands after a prefix, in one case; `None` for anything else.
pub(super) fn decode(prefix: &str, text: &str) -> Option<Vec<u8>> {
    let mixed = text.bytes().any(|b| b.is_ascii_lowercase()) && text.bytes().any(|b| b.is_ascii_uppercase());
    if text.len() > MAX_TEXT || !text.is_ascii() || mixed {
        return None;
    }
    let lower = zeroize::Zeroizing::new(text.to_ascii_lowercase());
    let digits = lower.strip_prefix(prefix)?.strip_prefix('1')?;
    let digit = |b: u8| CHARSET.iter().position(|known| *known == b).and_then(|at| u8::try_from(at).ok());
    let digits: Vec<u8> = digits.bytes().map(digit).collect::<Option<_>>()?;
    let mut sum = expanded(prefix);
    sum.extend(&digits);
    if digits.len() < CHECKSUM || polymod(&sum) != 1 {
        return None;
    }
    regroup(digits[..digits.len() - CHECKSUM].iter().copied(), 5, 8, false)
}

fn expanded(prefix: &str) -> Vec<u8> {
    let high = prefix.bytes().map(|b| b >> 5);
    high.chain([0]).chain(prefix.bytes().map(|b| b & 31)).collect()
}

fn polymod(values: &[u8]) -> u32 {
    const GENERATOR: [u32; 5] = [0x3b6a_57b2, 0x2650_8e6d, 0x1ea1_19fa, 0x3d42_33dd, 0x2a14_62b3];
    values.iter().fold(1, |sum, value| {
        let top = sum >> 25;
        let next = (sum & 0x01ff_ffff) << 5 ^ u32::from(*value);
        GENERATOR
            .iter()
            .enumerate()
            .fold(next, |next, (bit, word)| if top >> bit & 1 == 1 { next ^ word } else { next })
    })
}

/// Bits in groups of another size; `None` where what is left over is no padding.
fn regroup(values: impl Iterator<Item = u8>, from: u32, to: u32, pad: bool) -> Option<Vec<u8>> {
    let (mut kept, mut bits, mut out) = (0_u32, 0, Vec::new());
    let most = (1_u32 << to) - 1;
    for value in values {
        kept = (kept << from | u32::from(value)) & 0xffff;
        bits += from;
        while bits >= to {
            bits -= to;
            out.push((kept >> bits & most) as u8);
        }
    }
    let rest = kept & ((1 << bits) - 1);
    if pad {
        if bits > 0 {
            out.push((rest << (to - bits) & most) as u8);
        }
    } else if bits >= from || rest != 0 {
        return None;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for data in [&[][..], &[0], &[255; 32], &[1, 2, 3, 4, 5]] {
            let text = encode("age", data);
            assert_eq!(decode("age", &text).as_deref(), Some(data), "{text}");
            assert_eq!(decode("age", &text.to_ascii_uppercase()).as_deref(), Some(data));
            assert_eq!(decode("edge", &text), None);
        }
        let text = encode("age", &[7; 32]);
        for at in 4..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'q' { b'p' } else { b'q' };
            assert_eq!(decode("age", std::str::from_utf8(&other).unwrap()), None, "{at}");
        }
    }
}
